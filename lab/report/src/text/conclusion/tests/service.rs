//! Tests the sentences about the way of a request to an endpoint of a service.

use super::*;
use svclab_judge::{MasqueradeOption, ServicePolicy, UntranslatedReason};
use svclab_model::evidence::AddressPair;

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
