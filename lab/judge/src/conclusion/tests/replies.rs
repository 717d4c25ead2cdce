//! Tests why a node did not translate a reply back.

use super::*;
use svclab_journey::journey::{Crossing, Rewrite};
use svclab_planner::cluster::Cluster;

const SERVICE: &str = "10.96.0.1:80";
const SERVER: &str = "10.244.0.3:8080";
const CLIENT: &str = "10.244.0.2:4000";

fn reply(crossings: Vec<Crossing>) -> PacketPath {
    let mut reply = packet(SERVER, CLIENT, crossings, PathEnd::Delivered);
    reply.kind = Kind::SynAck;
    reply.direction = false;
    reply
}

/// Returns the reason for a reply to a request that the node translated.
fn gap(plan: &Plan, reply: PacketPath) -> Option<ReplyGap> {
    let mut request = packet(CLIENT, SERVICE, Vec::new(), PathEnd::Delivered);
    request.hops[0].after.destination = SERVER.parse().unwrap();
    request.hops[0].rewritten = Some(Rewrite::Unknown);
    let journey = Journey {
        probe: "call".to_owned(),
        number: 0,
        verdict: svclab_model::evidence::Verdict::Timeout,
        error: None,
        progress: None,
        addresses: Some(request.hops[0].before),
        from: "pod-a".to_owned(),
        packets: vec![request, reply],
    };
    let (cluster, evidence) = (Cluster::default(), StageEvidence::default());
    let book = AddressBook::new(&cluster, plan);
    let lab = LabState::new(plan, None);
    let conclusion = Conclusion {
        journey: &journey,
        book: &book,
        lab: &lab,
        evidence: &evidence,
    };
    match conclusion.untranslated_reply(&journey.packets[0], &journey.packets[1])? {
        Fact::ReplyNotTranslated { reason, .. } => Some(reason),
        other => panic!("{other:?}"),
    }
}

fn bridged() -> Vec<Crossing> {
    vec![crossing("veth-b", false), crossing("veth-a", true)]
}

#[test]
fn reply_through_bridge_names_sysctl() {
    let name = "net.bridge.bridge-nf-call-iptables";
    let mut plan = plan();
    assert_eq!(gap(&plan, reply(bridged())), Some(ReplyGap::NoEntry));
    node(&mut plan).sysctls.push(Sysctl {
        key: name.to_owned(),
        value: "0".to_owned(),
        link: None,
        optional: false,
    });
    let bridge = ReplyGap::Bridge {
        bridge: "cni0".to_owned(),
        sysctl: svclab_journey::journey::SysctlValue {
            name: name.to_owned(),
            value: "0".to_owned(),
        },
    };
    assert_eq!(gap(&plan, reply(bridged())), Some(bridge));
    // A routed packet passes netfilter.
    let routed = vec![
        crossing("veth-b", false),
        crossing("cni0", false),
        crossing("eth0", true),
    ];
    assert_eq!(gap(&plan, reply(routed)), Some(ReplyGap::NoEntry));
}

#[test]
fn reply_without_tracking_names_rule() {
    let mut untracked = reply(bridged());
    mark(&mut untracked, 0);
    untracked.hops[0].matches[0].target = Some("NOTRACK".to_owned());
    let hop = &untracked.hops[0];
    let rule = RuleReference::new(&hop.matches[0], hop);
    let found = gap(&plan(), untracked.clone());
    assert_eq!(found, Some(ReplyGap::NotTracked { rule }));
}

#[test]
fn reply_that_was_translated_or_dropped_has_no_gap() {
    let mut translated = reply(bridged());
    translated.hops[0].after.source = SERVICE.parse().unwrap();
    assert_eq!(gap(&plan(), translated), None);
    let mut dropped_there = reply(vec![crossing("veth-b", false)]);
    dropped_there.end = PathEnd::DroppedByRule;
    assert_eq!(gap(&plan(), dropped_there.clone()), None);
    dropped_there.end = dropped("NO_SOCKET", "tcp_v4_rcv");
    assert_eq!(gap(&plan(), dropped_there), Some(ReplyGap::NoEntry));
}
