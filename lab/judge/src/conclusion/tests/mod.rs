//! Tests the causes of losses: the rows of the drop table, and the objects at fault.

mod bridges;
mod objects;
mod replies;
mod routes;
mod tunnels;

use std::collections::BTreeSet;

use super::drop_table::drop_kind;
use super::*;
use crate::fixture::{NODE, crossing, mac, node, packet, plan, route, rule};
use crate::state::route_lookup::{RouteDecision, RouteLookup};
use svclab_journey::journey::{PacketHeader, RuleMatch};
use svclab_model::plan::{
    Backend, Forwarding, ForwardingTarget, Mac, Neighbour, Plan, RouteKind, RoutingAction,
    RoutingRule, Sysctl,
};
use svclab_ruleset::Protocol;
use svclab_ruleset::ipvs::{RealServer, SchedulerFlags, VirtualServer, VirtualServerKey};

fn dropped(reason: &str, function: &str) -> PathEnd {
    PathEnd::Dropped {
        reason: reason.to_owned(),
        function: Some(function.to_owned()),
        settings: Vec::new(),
    }
}

fn counted(counter: &str) -> PathEnd {
    PathEnd::CountedDrop {
        counter: counter.to_owned(),
        increase: 1,
        lost: 1,
        settings: Vec::new(),
    }
}

/// A packet from the router to an address, dropped after the node received it.
fn received(to: &str, end: PathEnd) -> PacketPath {
    let to = format!("{to}:80");
    packet("192.0.2.9:4000", &to, vec![crossing("eth0", false)], end)
}

fn cause(plan: &Plan, packet: &PacketPath) -> Cause {
    let lab = LabState::new(plan, None);
    let hop = packet.hops.last().unwrap();
    Cause::new(packet, hop, &lab, |step| RuleReference::new(step, hop))
}

fn kind_and_fault(plan: &Plan, packet: &PacketPath) -> (DropKind, Option<Fault>) {
    match cause(plan, packet) {
        Cause::Kernel { kind, fault, .. } | Cause::Counter { kind, fault, .. } => (kind, fault),
        other => panic!("{other:?}"),
    }
}

fn route_decision(plan: &Plan, packet: &PacketPath) -> (DropKind, RouteLookup) {
    match kind_and_fault(plan, packet) {
        (kind, Some(Fault::Route { lookup } | Fault::SourceRoute { lookup })) => (kind, lookup),
        other => panic!("{other:?}"),
    }
}

fn mark(packet: &mut PacketPath, mark: u32) {
    let hop = &mut packet.hops[0];
    hop.matches.push(RuleMatch {
        backend: Backend::Nft,
        table: "mangle".to_owned(),
        chain: "PREROUTING".to_owned(),
        number: None,
        rule: None,
        target: Some("policy".to_owned()),
        entries: Vec::new(),
        service: None,
        packets: None,
        flow: hop.before,
        mark,
        dropped: false,
        earlier: Vec::new(),
    });
}

#[test]
fn dropping_rule_without_conditions_has_unmatched_rules() {
    let unmatched = |rule: &str| {
        let mut packet = received("10.0.0.1", PathEnd::DroppedByRule);
        mark(&mut packet, 0);
        let step = packet.hops[0].matches.last_mut().unwrap();
        step.number = Some(4);
        step.rule = Some(rule.to_owned());
        step.earlier = [
            "-s 10.0.0.0/8 -j RETURN",
            "-j LOG",
            "-s 10.9.0.0/16 -j DROP",
        ]
        .map(str::to_owned)
        .to_vec();
        match cause(&Plan::default(), &packet) {
            Cause::Rule { unmatched, .. } => unmatched,
            other => panic!("{other:?}"),
        }
    };
    let rules = unmatched("-j DROP");
    let texts = rules.iter().map(|rule| (rule.number, rule.rule.as_deref()));
    assert_eq!(
        texts.collect::<Vec<_>>(),
        [(Some(1), Some("-s 10.0.0.0/8 -j RETURN"))]
    );
    assert_eq!(unmatched("-p udp -j DROP"), []);
}

#[test]
fn drop_table_rows_are_unique_and_cited() {
    let mut seen = BTreeSet::new();
    for row in DROP_TABLE {
        assert!(row.reason.is_some() || row.function.is_some(), "{row:?}");
        assert!(seen.insert((row.reason, row.function)), "{row:?}");
        assert!(
            row.source.contains(".c, ") || row.source.contains(".h, "),
            "{row:?}"
        );
        assert!(row.source.contains("(v"), "{row:?}");
    }
}

#[test]
fn drop_table_has_every_kind() {
    let in_table: BTreeSet<DropKind> = DROP_TABLE.iter().map(|row| row.kind).collect();
    let missing: Vec<DropKind> = DropKind::ALL
        .iter()
        .copied()
        .filter(|kind| !in_table.contains(kind))
        .collect();
    // Kinds of counters, of drops without a row, and one that replaces others by the addresses.
    let expected = [
        DropKind::Ipv6Loopback,
        DropKind::TtlOrHeader,
        DropKind::NoConnection,
        DropKind::Unspecified,
        DropKind::Undescribed,
    ];
    assert_eq!(missing, expected);
}

#[test]
fn drop_kind_reason_precedes_function() {
    let none = "NOT_SPECIFIED";
    for (reason, function, expected) in [
        ("IP_INHDR", Some("ip_forward"), DropKind::TtlExpired),
        ("IP_INHDR", Some("ip_rcv_core"), DropKind::InvalidHeader),
        ("IP_INHDR", None, DropKind::InvalidHeader),
        (none, Some("ip_forward"), DropKind::Forward),
        ("NO_TX_TARGET", Some("br_flood"), DropKind::BridgeNoPort),
        ("NO_TX_TARGET", Some("vxlan_xmit"), DropKind::VxlanNoRemote),
        ("NO_SOCKET", Some("ip_error"), DropKind::NoSocket),
        (none, Some("ip_error"), DropKind::RouteRefused),
        // Some kernels have no names of reasons.
        ("2", Some("ip_error"), DropKind::RouteRefused),
        (none, Some("some_function"), DropKind::Unspecified),
        (none, None, DropKind::Unspecified),
        ("NEW_REASON", Some("ip_error"), DropKind::Undescribed),
    ] {
        assert_eq!(
            drop_kind(reason, function),
            expected,
            "{reason} {function:?}"
        );
    }
}
