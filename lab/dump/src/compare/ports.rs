//! Compares the settings of bridge ports. Settings that a version of iproute2 does not print have the
//! kernel's default.

use super::super::difference::DumpLocation;
use super::super::owner;
use super::{Comparison, union_of_names, value_change};
use svclab_ruleset::bridge::port::{Ports, SETTINGS};

/// Compares ports that both dumps have. The bridge of a port is an attribute of its interface, and
/// interfaces of only one dump are differences themselves.
pub(super) fn compare(comparison: &mut Comparison<'_>, first: &Ports, second: &Ports) {
    for name in union_of_names(first.keys(), second.keys()) {
        let (Some(a), Some(b)) = (first.get(name), second.get(name)) else {
            continue;
        };
        let changes = SETTINGS.iter().filter_map(|(setting, _)| {
            value_change(setting, Some(a.setting(setting)), Some(b.setting(setting)))
        });
        for change in changes {
            let location = DumpLocation::BridgePort { name: name.clone() };
            comparison.add_difference(location, change, owner::link_owner(name));
        }
    }
}
