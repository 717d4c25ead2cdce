//! Tests which objects of a packet's way differ from the lab.

use std::time::Duration;

use super::*;
use crate::fixture::{NODE, crossing, mac, node, packet, plan, route, rule};
use crate::state::LabState;
use crate::state::route_lookup::{RouteDecision, Transport};
use svclab_journey::journey::{PathEnd, RuleMatch};
use svclab_model::evidence::{
    ForwardingEntry, LinkState, NeighbourEntry, NetworkState, Queue, SavedRules, StageEvidence,
    Verdict,
};
use svclab_model::plan::{
    Backend, Iptables, Mode, Plan, RealProxy, Route, RouteKind, RoutingAction, SyncTarget, Sysctl,
};
use svclab_ruleset::input::Input;

/// Returns the evidence of a kernel that has exactly the planned state.
pub(super) fn evidence(plan: &Plan) -> StageEvidence {
    let lab = LabState::new(plan, None);
    let mut evidence = StageEvidence::default();
    for namespace in &plan.namespaces {
        let planned = lab.planned(&namespace.name).unwrap();
        let read = evidence
            .kernel_state
            .entry(namespace.name.clone())
            .or_default();
        read.links = planned.links.clone();
        read.network = Some(planned.network.clone());
        let sysctls = planned.sysctls.clone();
        evidence.sysctls.insert(namespace.name.clone(), sysctls);
    }
    evidence
}

/// A SYN to another node's pod, which the node sends into its tunnel.
pub(super) fn journey(to: &str, end: PathEnd) -> Journey {
    let crossings = vec![
        crossing("veth-a", false),
        crossing("cni0", false),
        crossing("flannel.1", true),
    ];
    let to = format!("{to}:80");
    let flight = packet("10.244.0.2:4000", &to, crossings, end);
    Journey {
        probe: "call".to_owned(),
        number: 0,
        verdict: Verdict::Timeout,
        error: None,
        progress: None,
        addresses: Some(flight.hops[0].before),
        from: "pod-a".to_owned(),
        packets: vec![flight],
    }
}

fn found(plan: &Plan, evidence: &StageEvidence, journey: &Journey) -> Vec<Deviation> {
    let lab = LabState::new(plan, Some(evidence));
    let rules = ObservedRules::new(plan, evidence);
    let found = deviations(&lab, &rules, journey, None);
    assert!(found.iter().all(|(name, _)| name == NODE), "{found:?}");
    found.into_iter().map(|(_, deviation)| deviation).collect()
}

/// Returns the deviations after a change of the node's state.
fn found_after(change: impl FnOnce(&mut StageEvidence)) -> Vec<Deviation> {
    let plan = plan();
    let mut evidence = evidence(&plan);
    change(&mut evidence);
    found(
        &plan,
        &evidence,
        &journey("10.244.1.9", PathEnd::NotReceived),
    )
}

pub(super) fn network(evidence: &mut StageEvidence) -> &mut NetworkState {
    let read = evidence.kernel_state.get_mut(NODE).unwrap();
    read.network.as_mut().unwrap()
}

pub(super) fn link<'e>(evidence: &'e mut StageEvidence, name: &str) -> &'e mut LinkState {
    let read = evidence.kernel_state.get_mut(NODE).unwrap();
    read.links
        .iter_mut()
        .find(|link| link.name == name)
        .unwrap()
}

#[test]
fn deviations_planned_state_has_none() {
    assert_eq!(found_after(|_| {}), []);
}

#[test]
fn deviations_sysctls_of_real_proxy_are_omitted() {
    let found_with = |proxies: Vec<RealProxy>, value: &str| {
        let mut plan = plan();
        plan.kube_proxies = proxies;
        let mut evidence = evidence(&plan);
        let sysctls = evidence.sysctls.get_mut(NODE).unwrap();
        let name = "net.netfilter.nf_conntrack_tcp_timeout_established";
        sysctls.insert(name.to_owned(), value.to_owned());
        let journey = journey("10.244.1.9", PathEnd::NotReceived);
        found(&plan, &evidence, &journey).len()
    };
    let proxy = RealProxy {
        namespace: NODE.to_owned(),
        program: "/kube-proxy".to_owned(),
        arguments: Vec::new(),
        config: None,
        mode: Mode::Iptables,
        backend: Backend::Nft,
        sync_target: SyncTarget::default(),
        sync_timeout: Duration::from_secs(1),
    };
    assert_eq!(found_with(Vec::new(), "86400"), 1);
    assert_eq!(found_with(vec![proxy.clone()], "86400"), 0);
    assert_eq!(found_with(vec![proxy], "60"), 1);
}

#[test]
fn deviations_changed_route_names_both_routes() {
    let decisions = |change: fn(&mut StageEvidence)| {
        let found = found_after(change);
        let [Deviation::Route { planned, observed }] = &found[..] else {
            panic!("{found:?}");
        };
        (planned.decision.clone(), (**observed).clone())
    };
    let (planned, observed) = decisions(|evidence| {
        let is_tunnel = |route: &Route| route.dev == "flannel.1" && route.via.is_some();
        network(evidence).routes.retain(|route| !is_tunnel(route));
    });
    assert!(
        matches!(planned, RouteDecision::Unicast { .. }),
        "{planned:?}"
    );
    let RouteDecision::Unicast { interfaces, .. } = observed.decision else {
        panic!("{observed:?}");
    };
    assert_eq!(interfaces, ["eth0"]);
    let (_, observed) = decisions(|evidence| {
        let route = route("10.244.1.9/32", RouteKind::Blackhole, None);
        network(evidence).routes.push(route);
    });
    assert!(
        matches!(observed.decision, RouteDecision::Refusal { .. }),
        "{observed:?}"
    );
    let (_, observed) = decisions(|evidence| {
        let mut added = rule(500, RoutingAction::Blackhole);
        added.to = Some("10.244.1.0/24".parse().unwrap());
        network(evidence).routing_rules.push(added);
    });
    assert_eq!(
        observed.rule.as_deref(),
        Some("priority 500 from all to 10.244.1.0/24 blackhole")
    );
}

#[test]
fn deviations_route_of_other_destination_is_not_met() {
    let found = found_after(|evidence| {
        let route = route("10.244.1.77/32", RouteKind::Blackhole, None);
        network(evidence).routes.push(route);
    });
    assert_eq!(found, []);
}

#[test]
fn deviations_changed_neighbour_and_entry_are_named() {
    let found = found_after(|evidence| {
        network(evidence).neighbours.push(NeighbourEntry {
            address: "10.244.1.0".parse().unwrap(),
            interface: "flannel.1".to_owned(),
            mac: Some(mac(99)),
            permanent: true,
        });
        network(evidence).forwarding.push(ForwardingEntry {
            interface: "flannel.1".to_owned(),
            mac: mac(99),
            remote: Some("10.0.0.2".parse().unwrap()),
            permanent: true,
        });
    });
    let expected = [
        Deviation::Neighbour {
            address: "10.244.1.0".parse().unwrap(),
            interface: "flannel.1".to_owned(),
            planned: None,
            observed: Some(mac(99)),
        },
        Deviation::Forwarding {
            interface: "flannel.1".to_owned(),
            mac: mac(99),
            planned: None,
            observed: Some("10.0.0.2".parse().unwrap()),
        },
    ];
    assert_eq!(found, expected);
    // The kernel resolves other neighbours itself.
    let resolved = found_after(|evidence| {
        network(evidence).neighbours.push(NeighbourEntry {
            address: "10.244.1.0".parse().unwrap(),
            interface: "flannel.1".to_owned(),
            mac: Some(mac(99)),
            permanent: false,
        });
    });
    assert_eq!(resolved, []);
}

#[test]
fn deviations_changed_interfaces_are_named() {
    let found = found_after(|evidence| {
        let tunnel = link(evidence, "flannel.1");
        tunnel.mtu = 68;
        tunnel.mac = Some(mac(77));
        tunnel.addresses.clear();
        tunnel.vxlan.as_mut().unwrap().vni = 9;
        let port = link(evidence, "veth-a");
        port.port.as_mut().unwrap().isolated = true;
        // `IFF_NOARP` of Linux v6.12, `include/uapi/linux/if.h`.
        link(evidence, "veth-a").flags |= 1 << 7;
        link(evidence, "cni0").flags = 0;
        // The packet does not meet the other port.
        link(evidence, "veth-b").flags = 0;
    });
    let named: Vec<(&str, InterfaceProperty)> = found
        .iter()
        .map(|deviation| match deviation {
            Deviation::Interface {
                interface,
                property,
                ..
            } => (&**interface, *property),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        ("cni0", InterfaceProperty::State),
        ("flannel.1", InterfaceProperty::HardwareAddress),
        ("flannel.1", InterfaceProperty::Mtu),
        ("flannel.1", InterfaceProperty::Vni),
        ("flannel.1", InterfaceProperty::Address),
        ("veth-a", InterfaceProperty::Arp),
        ("veth-a", InterfaceProperty::Isolated),
    ];
    assert_eq!(named, expected);
}

#[test]
fn deviations_missing_interface_and_queue_are_named() {
    let found = found_after(|evidence| {
        let read = evidence.kernel_state.get_mut(NODE).unwrap();
        read.links.retain(|link| link.name != "flannel.1");
        for interface in ["cni0", "eth1"] {
            network(evidence).queues.push(Queue {
                interface: interface.to_owned(),
                kind: "netem".to_owned(),
                dropped: 3,
            });
        }
    });
    let is_missing = |deviation: &Deviation| {
        matches!(deviation, Deviation::Interface { interface, property, .. }
            if interface == "flannel.1" && *property == InterfaceProperty::Existence)
    };
    assert!(found.iter().any(is_missing), "{found:?}");
    let queues: Vec<&Deviation> = found
        .iter()
        .filter(|deviation| matches!(deviation, Deviation::Queue { .. }))
        .collect();
    assert_eq!(queues.len(), 1, "{found:?}");
}

#[test]
fn deviations_sysctls_of_met_interfaces_are_named() {
    let found = found_after(|evidence| {
        let sysctls = evidence.sysctls.get_mut(NODE).unwrap();
        for (name, value) in [
            ("net.ipv4.ip_default_ttl", "1"),
            ("net.ipv4.conf.eth1.rp_filter", "1"),
            ("net.netfilter.nf_conntrack_tcp_loose", "1"),
        ] {
            sysctls.insert(name.to_owned(), value.to_owned());
        }
    });
    let expected = Deviation::Sysctl {
        name: "net.ipv4.ip_default_ttl".to_owned(),
        planned: "64".to_owned(),
        observed: "1".to_owned(),
    };
    assert_eq!(found, [expected]);
}

#[test]
fn deviations_forwarding_switch_is_named_alone() {
    let mut plan = plan();
    let planned = [
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv4.conf.all.accept_redirects", "0"),
    ];
    node(&mut plan)
        .sysctls
        .extend(planned.map(|(key, value)| Sysctl {
            key: key.to_owned(),
            value: value.to_owned(),
            link: None,
            optional: false,
        }));
    let journey = journey("10.244.1.9", PathEnd::NotReceived);
    let found = |changes: &[(&str, &str)]| -> Vec<String> {
        let mut evidence = evidence(&plan);
        let sysctls = evidence.sysctls.get_mut(NODE).unwrap();
        let changes = changes.iter();
        sysctls.extend(changes.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let found = found(&plan, &evidence, &journey);
        let names = found.into_iter().map(|deviation| match deviation {
            Deviation::Sysctl { name, .. } => name,
            other => panic!("{other:?}"),
        });
        names.collect()
    };
    let switched = [
        ("net.ipv4.ip_forward", "0"),
        ("net.ipv4.conf.all.forwarding", "0"),
        ("net.ipv4.conf.cni0.forwarding", "0"),
        ("net.ipv4.conf.all.accept_redirects", "1"),
    ];
    assert_eq!(found(&switched), ["net.ipv4.ip_forward"]);
    // Somebody switched off one interface, or all of them one by one.
    assert_eq!(found(&switched[2..3]), ["net.ipv4.conf.cni0.forwarding"]);
}

#[test]
fn deviations_route_of_unsent_packet_names_route_and_interface() {
    let plan = plan();
    let mut evidence = evidence(&plan);
    link(&mut evidence, "eth0").flags &= !1;
    network(&mut evidence).routes.clear();
    let journey = Journey {
        from: NODE.to_owned(),
        packets: Vec::new(),
        ..journey("10.9.9.9", PathEnd::Delivered)
    };
    let query = RouteQuery {
        source: "0.0.0.0".parse().unwrap(),
        destination: "10.9.9.9".parse().unwrap(),
        mark: 0,
        ingress: "lo",
        transport: Transport::default(),
    };
    let lab = LabState::new(&plan, Some(&evidence));
    let rules = ObservedRules::new(&plan, &evidence);
    let found = deviations(&lab, &rules, &journey, Some(query));
    let [
        (_, Deviation::Route { planned, observed }),
        (
            _,
            Deviation::Interface {
                interface,
                property,
                ..
            },
        ),
    ] = &found[..]
    else {
        panic!("{found:?}");
    };
    assert!(matches!(planned.decision, RouteDecision::Unicast { .. }));
    assert!(matches!(observed.decision, RouteDecision::None { .. }));
    assert_eq!(
        (&**interface, *property),
        ("eth0", InterfaceProperty::State)
    );
    assert_eq!(deviations(&lab, &rules, &journey, None), []);
}

/// Returns the items of rules that differ: the saved rules are `saved`, and the packet matched
/// `matched`.
fn differing_rules(saved: &[&str], matched: &[(&str, u32, &str, &str)]) -> Vec<String> {
    const PLANNED: &str = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n\
        -A PREROUTING -j KUBE-SERVICES\n\
        -A KUBE-SERVICES -d 10.244.1.9/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A\n\
        -A KUBE-SERVICES -d 10.244.1.8/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A\n\
        -A KUBE-SVC-A -j DNAT --to-destination 10.244.1.9:8080\nCOMMIT\n";
    let mut plan = plan();
    node(&mut plan).iptables = Some(Iptables {
        backend: Backend::Nft,
        v4: Input::from_text(PLANNED),
        v6: Input::default(),
    });
    let mut evidence = evidence(&plan);
    let lines: Vec<String> = saved.iter().map(|line| format!("-A {line}\n")).collect();
    let lines = lines.concat();
    evidence.rules.push(SavedRules {
        namespace: NODE.to_owned(),
        backend: Backend::Nft,
        ip_version: 4,
        text: format!(
            "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n{lines}COMMIT\n"
        ),
    });
    let mut journey = journey("10.244.1.9", PathEnd::NotReceived);
    let hop = &mut journey.packets[0].hops[0];
    for (chain, number, rule, target) in matched {
        hop.matches.push(RuleMatch {
            backend: Backend::Nft,
            table: "nat".to_owned(),
            chain: (*chain).to_owned(),
            number: Some(*number),
            rule: Some((*rule).to_owned()),
            target: Some((*target).to_owned()),
            entries: Vec::new(),
            service: None,
            packets: None,
            flow: hop.before,
            mark: 0,
            dropped: false,
            earlier: Vec::new(),
        });
    }
    let found = found(&plan, &evidence, &journey);
    let differences = found.iter().map(|deviation| match deviation {
        Deviation::Rules { difference } => difference.to_string(),
        other => panic!("{other:?}"),
    });
    differences.collect()
}

const TO_SERVICES: &str = "-j KUBE-SERVICES";

#[test]
fn deviations_missing_rule_of_passed_chain_is_named() {
    let hook = format!("PREROUTING {TO_SERVICES}");
    let met = [("PREROUTING", 1, TO_SERVICES, "KUBE-SERVICES")];
    let found = differing_rules(
        &[&hook, "KUBE-SVC-A -j DNAT --to-destination 10.244.1.9:8080"],
        &met,
    );
    // The packet could not have matched the other missing rule.
    assert_eq!(
        found,
        ["iptables nat KUBE-SERVICES: - -d 10.244.1.9/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A"]
    );
}

#[test]
fn deviations_added_rule_is_named_if_it_matched() {
    let hook = format!("PREROUTING {TO_SERVICES}");
    let saved = [
        "PREROUTING -p tcp -j ACCEPT",
        &hook,
        "KUBE-SERVICES -d 10.244.1.9/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A",
        "KUBE-SERVICES -d 10.244.1.8/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A",
        "KUBE-SVC-A -j DNAT --to-destination 10.244.1.9:8080",
    ];
    let found = differing_rules(&saved, &[("PREROUTING", 1, "-p tcp -j ACCEPT", "ACCEPT")]);
    assert_eq!(found, ["iptables nat PREROUTING: + -p tcp -j ACCEPT"]);
    let found = differing_rules(&saved, &[("PREROUTING", 2, TO_SERVICES, "KUBE-SERVICES")]);
    assert_eq!(found, [""; 0]);
}
