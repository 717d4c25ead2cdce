//! Tests the sentences about the way of a request to an endpoint of a service.

use super::*;
use svclab_judge::{
    MasqueradeOption, MissingEndpointReason, NoEndpointReason, NodePortGap, ReplyGap,
    ServicePolicy, UntranslatedReason,
};
use svclab_model::evidence::AddressPair;
use svclab_ruleset::Family;

fn pair(source: &str, destination: &str) -> AddressPair {
    AddressPair {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    }
}

#[test]
fn facts_untranslated_service_gives_the_reason() {
    let reasons = [
        UntranslatedReason::NoProxy,
        UntranslatedReason::Entry {
            original: pair("10.0.0.1:40000", "10.96.0.53:53"),
            reply: pair("10.244.2.217:53", "10.0.0.1:40000"),
        },
        UntranslatedReason::ProxiedAddress,
        UntranslatedReason::UnboundAddress,
        UntranslatedReason::NoAddress,
        UntranslatedReason::NoVirtualServer,
        UntranslatedReason::Ignored {
            reason: "is headless".to_owned(),
        },
        UntranslatedReason::NoRule {
            chain: Some("nat KUBE-SVC-A".to_owned()),
        },
        UntranslatedReason::NoRule { chain: None },
    ];
    insta::assert_snapshot!(render(reasons.map(|reason| Fact::NotTranslated {
        namespace: "node-1".to_owned(),
        destination: named("10.96.0.53:53", Some("service/default/dns")),
        service: "default/dns".to_owned(),
        reason,
    })));
}

#[test]
fn facts_translation_by_older_entry_names_entry() {
    insta::assert_snapshot!(render([Fact::TranslatedByEntry {
        namespace: "node-1".to_owned(),
        destination: named("10.96.0.53:53", Some("service/default/dns")),
        server: named("10.244.2.217:53", None),
        original: pair("10.0.0.1:40000", "10.96.0.53:53"),
        reply: pair("10.244.2.217:53", "10.244.1.0:40000"),
    }]), @"node-1 translated 10.96.0.53:53 (service/default/dns) to 10.244.2.217:53 by the conntrack entry 10.0.0.1:40000 > 10.96.0.53:53, which existed before the packet, and expects replies 10.244.2.217:53 > 10.244.1.0:40000; rules of NAT do not apply");
}

#[test]
fn facts_untranslated_replies_give_the_reason() {
    let reasons = [
        ReplyGap::Bridge {
            bridge: "cni0".to_owned(),
            sysctl: SysctlValue {
                name: "net.bridge.bridge-nf-call-iptables".to_owned(),
                value: "0".to_owned(),
            },
        },
        ReplyGap::NotTracked { rule: rule() },
        ReplyGap::NoEntry,
        ReplyGap::Unknown,
    ];
    let refused = Fact::Rejected {
        packet: Kind::Syn,
        namespace: "node-1".to_owned(),
        destination: named("10.96.0.1:80", None),
        rejection: Rejection::Packet {
            packet: Some(Kind::Unreachable),
            fault: Some(Fault::VirtualServer {
                address: "10.96.0.1:80".parse().unwrap(),
                servers: 0,
            }),
        },
        bypassed: Vec::new(),
    };
    let untranslated = reasons.map(|reason| Fact::ReplyNotTranslated {
        namespace: "node-1".to_owned(),
        source: named("10.244.1.10:8080", Some("pod/default/web")),
        reason,
    });
    insta::assert_snapshot!(render(untranslated.into_iter().chain([refused])));
}

#[test]
fn facts_kept_sources_give_the_reason() {
    let reasons = [
        KeptSourceReason::Returned {
            rules: vec![rule()],
        },
        KeptSourceReason::NotMarked,
        KeptSourceReason::NoClusterCidr,
        KeptSourceReason::MarkedOnly,
    ];
    insta::assert_snapshot!(render(reasons.map(|reason| Fact::KeptSource {
        namespace: "node-1".to_owned(),
        source: "10.96.0.53".parse().unwrap(),
        is_destination: reason == KeptSourceReason::NoClusterCidr,
        reason,
    })));
}

#[test]
fn facts_masqueraded_requests_name_rule_and_option() {
    let masqueraded = |marked_by, option| Fact::Masqueraded {
        namespace: "node-1".to_owned(),
        source: named("10.244.1.0:4000", Some("node-1/flannel.1")),
        rule: rule(),
        marked_by,
        option,
    };
    let not_masqueraded = |flannel| Fact::NotMasqueraded {
        namespace: "node-1".to_owned(),
        source: named("10.244.1.9:4000", Some("pod/default/client")),
        destination: named("198.51.101.7:5432", Some("database")),
        flannel,
    };
    insta::assert_snapshot!(render([
        masqueraded(None, None),
        masqueraded(Some(rule()), Some(MasqueradeOption::MasqueradeAll)),
        masqueraded(Some(rule()), Some(MasqueradeOption::ClusterCidr)),
        not_masqueraded(false),
        not_masqueraded(true),
    ]));
}

#[test]
fn facts_backends_and_endpoints_are_named() {
    let balanced = |backend: Option<&str>, source| Fact::Balanced {
        balancer: "edge".to_owned(),
        backend: backend.map(str::to_owned),
        source,
    };
    let policies = [
        ServicePolicy::InternalLocal,
        ServicePolicy::ExternalLocal,
        ServicePolicy::ClientIp,
    ];
    let limited = policies.map(|policy| Fact::LimitedEndpoints {
        service: "default/web".to_owned(),
        policy,
    });
    let balanced = [
        balanced(Some("node-2"), None),
        balanced(Some("node-2"), Some(named("192.168.1.1:4000", None))),
        balanced(None, None),
    ];
    insta::assert_snapshot!(render(balanced.into_iter().chain(limited)));
}

#[test]
fn facts_ends_at_endpoints_are_named() {
    let service = || "default/web".to_owned();
    let no_node_port = |others: &[(&str, u16)]| Fact::NoNodePort {
        port: 30080,
        others: others
            .iter()
            .map(|(name, port)| ((*name).to_owned(), *port))
            .collect(),
    };
    let not_served = |because| Fact::NodePortNotServed {
        node: "node-1".to_owned(),
        address: "192.168.1.11".parse().unwrap(),
        port: 30080,
        service: service(),
        because,
    };
    let not_listening = |listening: &[&str]| Fact::NotListening {
        endpoint: "pod/default/web-1".to_owned(),
        port: "8080/tcp".to_owned(),
        listening: listening.iter().map(|&port| port.to_owned()).collect(),
    };
    let no_endpoint = |reason| Fact::NoEndpoint {
        service: service(),
        node: "node-1".to_owned(),
        reason,
    };
    let missing = |reason| Fact::MissingEndpoint {
        service: service(),
        endpoint: "pod/default/web-1".to_owned(),
        reason,
    };
    insta::assert_snapshot!(render([
        Fact::OutsideSourceRanges {
            service: service(),
            source: named("198.51.100.9:4000", Some("laptop")),
        },
        Fact::NoServicePort {
            service: service(),
            port: "tcp 80".to_owned(),
            ports: vec!["udp 80".to_owned(), "tcp 443".to_owned()],
        },
        no_node_port(&[]),
        no_node_port(&[("default/db", 31059)]),
        not_served(NodePortGap::Protocol("udp".to_owned())),
        not_served(NodePortGap::Family(Family::V6)),
        not_served(NodePortGap::Loopback),
        not_served(NodePortGap::Address),
        not_listening(&[]),
        not_listening(&["9750/tcp", "8080/udp"]),
        Fact::UnknownEndpoint {
            service: service(),
            address: "10.244.2.121:8080".parse().unwrap(),
        },
        no_endpoint(NoEndpointReason::Empty),
        no_endpoint(NoEndpointReason::NotReady(vec![
            "pod/default/web-1".to_owned(),
            "pod/default/web-2".to_owned(),
        ])),
        no_endpoint(NoEndpointReason::NoPort(80)),
        no_endpoint(NoEndpointReason::OnlyOnOtherNodes(
            ServicePolicy::ExternalLocal
        )),
        missing(MissingEndpointReason::NotReady),
        missing(MissingEndpointReason::NotSelected),
        Fact::NotInFabric {
            destination: named("203.0.113.71:80", Some("lb/default/front")),
        },
    ]));
}
