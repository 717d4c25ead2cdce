//! Finds conntrack entries that existed before the packets and may be the cause.

use super::Failures;
use crate::why::change::ProposedChange;
use svclab_judge::{Fact, UntranslatedReason};
use svclab_ruleset::Protocol;

/// Returns the deletion of the entries by which a node translated a request, or because of which it
/// did not.
pub(super) fn deletions(failures: &Failures<'_>, fact: &Fact) -> Vec<ProposedChange> {
    let (Fact::TranslatedByEntry {
        namespace,
        original,
        ..
    }
    | Fact::NotTranslated {
        namespace,
        reason: UntranslatedReason::Entry { original, .. },
        ..
    }) = fact
    else {
        return Vec::new();
    };
    let protocols = failures.probes();
    let protocols = protocols.filter_map(|probe| Protocol::try_from(probe.protocol).ok());
    let changes = protocols.map(|protocol| ProposedChange::DeleteConnections {
        namespace: namespace.clone(),
        protocol,
        destination: original.destination,
    });
    changes.collect()
}
