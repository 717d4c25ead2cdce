//! Compares conntrack entries that are looked up, because packets were captured, with those of a
//! dump of the whole table.

use std::net::IpAddr;

use svclab_model::evidence::{AddressPair, ConntrackEntry};
use svclab_model::plan::EvidenceRequest;
use svclab_test_support::cases::prepare_case;

use super::probe_plan;

/// A connection through service NAT, masquerading and a tunnel, to the only endpoint.
const CASE: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=drops";

/// Namespace, protocol, both tuples and mark, without the ports that the kernel chooses.
type Entry = (String, u8, [(IpAddr, IpAddr); 2], [u16; 2], u32);

fn without_chosen_ports(entry: &ConntrackEntry) -> Entry {
    let addresses = |tuple: &AddressPair| (tuple.source.ip(), tuple.destination.ip());
    let served = [entry.original.destination, entry.reply.source];
    (
        entry.namespace.clone(),
        entry.protocol,
        [addresses(&entry.original), addresses(&entry.reply)],
        served.map(|address| address.port()),
        entry.mark,
    )
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
        let mut entries: Vec<Entry> = evidence
            .conntrack
            .iter()
            .map(without_chosen_ports)
            .collect();
        entries.sort();
        entries
    });
    assert_eq!(dumped, looked_up);
    let is_translated = |entry: &Entry| entry.2[0].1 != entry.2[1].0;
    assert!(dumped.iter().any(is_translated), "{dumped:?}");
}
