//! Compares the settings of kube-proxy.

use super::super::difference::{DumpChange, DumpLocation, Side};
use super::{Comparison, value_change};
use crate::node::proxy::KubeProxySettings;

/// Compares the effective settings that determine rules. A dump without the process is a
/// difference.
pub(super) fn compare(comparison: &mut Comparison<'_>) {
    let (first, second) = (&comparison.first.proxy, &comparison.second.proxy);
    let changes: Vec<DumpChange> = match (first.is_known(), second.is_known()) {
        (true, true) => KubeProxySettings::names()
            .filter_map(|flag| value_change(flag, first.value(flag), second.value(flag)))
            .collect(),
        (false, false) => Vec::new(),
        (is_first, _) => vec![DumpChange::Whole {
            only: if is_first { Side::First } else { Side::Second },
            line: 0,
        }],
    };
    for change in changes {
        comparison.add_difference(DumpLocation::KubeProxy, change, None);
    }
}
