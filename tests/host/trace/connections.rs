//! Compares conntrack entries that are looked up, because packets were captured, with those of a
//! dump of the whole table.

use svclab_model::evidence::ConntrackEntry;
use svclab_model::plan::EvidenceRequest;
use svclab_test_support::cases::prepare_case;

use super::probe_plan;

/// A connection through service NAT, masquerading and a tunnel, to the only endpoint.
const CASE: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=drops";

/// Returns an entry without what differs between two runs: ports that the kernel chooses, and how
/// far the connection is.
fn comparable(mut entry: ConntrackEntry) -> ConntrackEntry {
    entry.original.source.set_port(0);
    entry.reply.destination.set_port(0);
    ConntrackEntry {
        status: 0,
        state: None,
        expires: None,
        ..entry
    }
}

#[test]
fn conntrack_looked_up_entries_are_those_of_a_dump() {
    let [dumped, looked_up] = [false, true].map(|captures| {
        let mut plan = prepare_case(CASE).plan;
        plan.evidence = EvidenceRequest::everything(&plan);
        if !captures {
            plan.evidence.packets.clear();
        }
        let evidence = probe_plan(plan);
        assert_eq!(evidence.packets.is_empty(), !captures);
        let mut entries: Vec<_> = evidence.conntrack.into_iter().map(comparable).collect();
        entries.sort_by_key(|entry| format!("{entry:?}"));
        entries
    });
    assert_eq!(dumped, looked_up);
    let is_translated = |entry: &ConntrackEntry| entry.original.destination != entry.reply.source;
    assert!(dumped.iter().any(is_translated), "{dumped:?}");
}
