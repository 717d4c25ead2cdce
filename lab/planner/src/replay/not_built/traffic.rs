//! Lists the queueing disciplines, filters and `IPsec` policies of a dumped node, which are not built.

use std::collections::BTreeSet;

use super::super::report::{FileLine, OmittedItem, ReplayReport, count_noun};
use svclab_dump::NodeDump;
use svclab_model::plan::Namespace;
use svclab_ruleset::ipsec::IpsecPolicy;
use svclab_ruleset::tool::Format;
use svclab_ruleset::traffic_control::qdisc::Qdisc;

/// Queues that delay or drop packets only when an interface is busy (Linux v6.12, `net/sched`). A
/// FIFO queue of an interface is not among them: only an administrator adds one, with any limit.
const PLAIN_QUEUES: [&str; 9] = [
    "noqueue",
    "noop",
    "mq",
    "mqprio",
    "pfifo_fast",
    "fq",
    "fq_codel",
    "codel",
    "sfq",
];

/// Lists queues, filters and policies of the dump in the report.
pub fn replay_traffic(namespace: &Namespace, dump: &NodeDump, report: &mut ReplayReport) {
    list_qdiscs(namespace, dump, report);
    list_filters(namespace, dump, report);
    list_ipsec_policies(dump, report);
}

/// Whether the plan has the interface.
fn is_built(namespace: &Namespace, interface: &str) -> bool {
    interface == "lo" || namespace.links.iter().any(|link| link.name == interface)
}

fn list_qdiscs(namespace: &Namespace, dump: &NodeDump, report: &mut ReplayReport) {
    let qdiscs = dump.qdiscs.iter().flatten();
    let built = qdiscs.filter(|qdisc| is_built(namespace, &qdisc.dev) && !qdisc.is_filter_hook());
    let (plain, shaping): (Vec<&Qdisc>, Vec<&Qdisc>) =
        built.partition(|qdisc| PLAIN_QUEUES.contains(&&*qdisc.kind));
    let queueing = plain
        .into_iter()
        .filter(|qdisc| !matches!(&*qdisc.kind, "noqueue" | "noop"));
    let (kinds, interfaces): (BTreeSet<&str>, BTreeSet<&str>) =
        queueing.map(|qdisc| (&*qdisc.kind, &*qdisc.dev)).unzip();
    if !kinds.is_empty() {
        let kinds: Vec<&str> = kinds.into_iter().collect();
        report.add_simulated(format!(
            "no queues on {} ({} on the node): packets leave at once",
            count_noun(interfaces.len(), "interface", "interfaces"),
            kinds.join(", ")
        ));
    }
    for qdisc in shaping {
        let location = FileLine::in_dump(dump, Format::Qdiscs, qdisc.line);
        let description = format!("`qdisc {}` of {}", qdisc.canonical(), qdisc.dev);
        let item = OmittedItem::new(location, description, "svclab does not build such queues");
        report.omitted.push(item.with_effect(format!(
            "packets that leave through {} are not delayed, limited or dropped",
            qdisc.dev
        )));
    }
}

fn list_filters(namespace: &Namespace, dump: &NodeDump, report: &mut ReplayReport) {
    for (place, items) in dump.filters.iter().flatten() {
        let interface = place.split(' ').next().unwrap_or_default();
        let Some(first) = items.first() else {
            continue;
        };
        if !interface.is_empty() && !is_built(namespace, interface) {
            continue;
        }
        let filters = count_noun(items.len(), "filter", "filters");
        let of_place = if place.is_empty() {
            String::new()
        } else {
            format!(" of {place}")
        };
        let location = FileLine::in_dump(dump, Format::TrafficFilters, first.line);
        let item = OmittedItem::new(
            location,
            format!("{filters} of tc{of_place}"),
            "svclab does not build filters of tc",
        );
        let affects = "packets that they drop, redirect or change pass unchanged";
        report.omitted.push(item.with_effect(affects));
    }
}

/// Lists each policy that drops packets, and the number of the others.
fn list_ipsec_policies(dump: &NodeDump, report: &mut ReplayReport) {
    const REASON: &str = "svclab does not build IPsec policies";
    let policies = dump.ipsec_policies.iter().flatten();
    let (dropping, others): (Vec<&IpsecPolicy>, Vec<&IpsecPolicy>) = policies
        .filter(|policy| !policy.is_of_socket())
        .partition(|policy| policy.drops_packets());
    let item = |policy: &IpsecPolicy, description| {
        let location = FileLine::in_dump(dump, Format::IpsecPolicies, policy.line);
        OmittedItem::new(location, description, REASON)
    };
    for policy in dropping {
        let description = format!("`{} {}`", policy.selector, policy.settings);
        let affects = "packets that the policy drops pass";
        report
            .omitted
            .push(item(policy, description).with_effect(affects));
    }
    if let Some(first) = others.first() {
        let description = count_noun(others.len(), "IPsec policy", "IPsec policies");
        let affects = "packets are neither encrypted nor decrypted, and none are dropped";
        report
            .omitted
            .push(item(first, description).with_effect(affects));
    }
}
