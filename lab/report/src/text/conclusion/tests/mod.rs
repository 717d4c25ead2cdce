//! Tests the sentences about packets, and that every known drop has one.

mod deviations;
mod faults;
mod rules;
mod service;
mod tunnels;

use std::collections::BTreeMap;

use super::causes::describe_kind;
use super::*;
use svclab_judge::{DROP_TABLE, InterfaceName, RouteDecision, RouteLookup, TunnelEnds};
use svclab_model::plan::RouteSettings;

fn named(address: &str, name: Option<&str>) -> NamedAddress {
    NamedAddress {
        address: address.parse().unwrap(),
        name: name.map(str::to_owned),
    }
}

fn lost(ingress: Option<&str>, cause: Cause) -> Fact {
    Fact::Lost {
        packet: Kind::Syn,
        namespace: "node-1".to_owned(),
        ingress: ingress.map(str::to_owned),
        source: named("192.0.2.9:4000", Some("laptop")),
        destination: named("10.96.0.1:80", None),
        tunnel: None,
        cause,
        bypassed: Vec::new(),
    }
}

fn kernel(kind: DropKind, fault: Option<Fault>, reason: &str, function: &str) -> Fact {
    lost(
        Some("eth0"),
        Cause::Kernel {
            kind,
            fault,
            reason: reason.to_owned(),
            function: Some(function.to_owned()),
            sysctls: Vec::new(),
        },
    )
}

fn rule() -> RuleReference {
    RuleReference {
        backend: Backend::Nft,
        both_backends: false,
        table: "mangle".to_owned(),
        chain: "PREROUTING".to_owned(),
        number: Some(1),
        rule: Some("-i eth0 -j TTL --ttl-set 1".to_owned()),
        target: Some("TTL".to_owned()),
        entries: Vec::new(),
        service: None,
    }
}

fn lookup(decision: RouteDecision, rule: Option<&str>) -> RouteLookup {
    RouteLookup {
        address: "192.0.2.9".parse().unwrap(),
        decision,
        rule: rule.map(str::to_owned),
        thrown: Vec::new(),
    }
}

fn route(text: &str, interface: &str) -> RouteDecision {
    RouteDecision::Unicast {
        route: text.to_owned(),
        interfaces: vec![interface.to_owned()],
        via: None,
        source: None,
        settings: RouteSettings::default(),
    }
}

fn refusal() -> RouteDecision {
    RouteDecision::Refusal {
        route: "blackhole 192.0.2.0/24 table 7".to_owned(),
        table: 7,
    }
}

const MARKED: &str = "priority 100 from all fwmark 0x1/0x1 lookup 7";

fn render(facts: impl IntoIterator<Item = Fact>) -> String {
    render_facts(&facts.into_iter().collect::<Vec<Fact>>()).join("\n")
}

#[test]
fn wrong_addresses_differing_one_is_named() {
    let from = named("10.96.0.1:80", None);
    assert_eq!(
        render_unexpected(&named("10.244.0.2:80", None), None),
        "from 10.244.0.2:80, which is not the probe's target"
    );
    assert_eq!(
        render_unexpected(&from, Some(&named("10.0.0.1:4001", None))),
        "from 10.96.0.1:80 at 10.0.0.1:4001, which is not the source of the request"
    );
}

#[test]
fn drop_table_every_row_has_a_clause() {
    let rows = DROP_TABLE.iter().map(|row| {
        let name = match (row.reason, row.function) {
            (Some(reason), Some(function)) => format!("{reason} in {function}"),
            (Some(name), None) => name.to_owned(),
            (None, function) => format!("in {}", function.unwrap_or_default()),
        };
        format!("{name}: {}", describe_kind(row.kind))
    });
    insta::assert_snapshot!(rows.collect::<Vec<String>>().join("\n"));
}

#[test]
fn drop_kinds_have_different_clauses() {
    let mut kinds: BTreeMap<&str, DropKind> = BTreeMap::new();
    for kind in DropKind::ALL {
        let clause = describe_kind(*kind);
        assert!(!clause.is_empty() && !clause.ends_with('.'), "{kind:?}");
        assert_eq!(kinds.insert(clause, *kind), None, "{kind:?}");
    }
}

#[test]
fn facts_counters_and_sysctls_follow_the_cause() {
    let sysctls = |name: &str, value: &str| {
        let (name, value) = (name.to_owned(), value.to_owned());
        vec![SysctlValue { name, value }]
    };
    let counter = |kind, fault, counter: &str, sysctls| {
        let counter = counter.to_owned();
        let cause = Cause::Counter {
            kind,
            fault,
            counter,
            increase: 3,
            lost: 2,
            sysctls,
        };
        lost(Some("eth0"), cause)
    };
    let source_route = || {
        let tables = vec![255, 254, 253];
        let lookup = lookup(RouteDecision::None { tables }, None);
        Some(Fault::SourceRoute { lookup })
    };
    let filter = sysctls("net.ipv4.conf.eth0.rp_filter", "1");
    let forwarding = || sysctls("net.ipv4.conf.eth0.forwarding", "0");
    let kernel = lost(
        Some("eth0"),
        Cause::Kernel {
            kind: DropKind::NotForwarding,
            fault: None,
            reason: "IP_INADDRERRORS".to_owned(),
            function: None,
            sysctls: forwarding(),
        },
    );
    insta::assert_snapshot!(render([
        counter(
            DropKind::ReversePath,
            source_route(),
            "TcpExtIPReversePathFilter",
            filter
        ),
        counter(
            DropKind::NotForwarding,
            None,
            "IpInAddrErrors",
            forwarding()
        ),
        counter(DropKind::TtlOrHeader, None, "IpInHdrErrors", Vec::new()),
        counter(
            DropKind::NoRoute,
            source_route(),
            "IpOutNoRoutes",
            Vec::new()
        ),
        counter(DropKind::NoConnection, None, "IcmpInErrors", Vec::new()),
        kernel,
    ]));
}
