//! Writes the rules of the filter table from v1.11 on: forwarded traffic, rejected traffic to
//! services, and load balancers that the node itself may not use.
//!
//! Follows the end of `writeIptablesRules` of kubernetes/kubernetes `pkg/proxy/ipvs/proxier.go`.

use super::masquerade::mark;
use super::services::Made;
use super::sets::Name;
use super::{Context, chains};
use crate::kube_proxy::history::{
    FORWARD_TIED_TO_CLUSTER_CIDR, HEALTH_CHECK_NODE_PORTS, IPVS_EMPTY_FORWARD, IPVS_FILTER,
    IPVS_FILTER_SPARES_HEALTH_CHECKS, IPVS_FILTER_SPARES_LOCAL_EXTERNAL_IPS, IPVS_OUT_FILTER,
    TWO_ESTABLISHED_RULES,
};
use crate::kube_proxy::iptables::rule::Rule;
use svclab_ruleset::iptables::script::{Script, Table};

/// Adds the filter rules to `script`.
pub(super) fn rules(context: &Context<'_>, made: &Made, script: &mut Script) {
    forward(context, script);
    let version = context.version;
    if version.has(&HEALTH_CHECK_NODE_PORTS) {
        let rule = Rule::append(chains::NODE_PORT)
            .comment(Name::HealthCheck.comment(version))
            .with(made.sets.matching(Name::HealthCheck, "dst"));
        add(script, rule.jump("ACCEPT"));
    }
    if version.has(&IPVS_FILTER) {
        refuse_other_ports(context, made, script);
    }
    if version.has(&IPVS_OUT_FILTER) {
        for (address, protocol, port) in &made.closed_to_node {
            let rule = Rule::append(chains::IPVS_OUT_FILTER)
                .with(format_args!("-s {address} -m ipvs --vaddr {address}"))
                .with(format_args!("--vproto {protocol} --vport {port}"));
            add(script, rule.jump("DROP"));
        }
    }
}

fn add(script: &mut Script, command: String) {
    script.table(Table::Filter).command(command);
}

fn forward(context: &Context<'_>, script: &mut Script) {
    let version = context.version;
    if version.has(&IPVS_EMPTY_FORWARD) {
        return;
    }
    let mark = mark(context);
    let marked = Rule::append(chains::FORWARD)
        .comment("kubernetes forwarding rules")
        .with(format_args!("-m mark --mark {mark}/{mark}"));
    add(script, marked.jump("ACCEPT"));

    let mut established = |comment: &str, tied: Option<String>| {
        let rule = Rule::append(chains::FORWARD)
            .with_some(tied)
            .comment(comment)
            .with("-m conntrack --ctstate RELATED,ESTABLISHED");
        add(script, rule.jump("ACCEPT"));
    };
    let source = "kubernetes forwarding conntrack pod source rule";
    let destination = "kubernetes forwarding conntrack pod destination rule";
    if version.has(&FORWARD_TIED_TO_CLUSTER_CIDR) {
        let cidr = context.proxy.cluster_cidr.as_ref();
        if let Some(cidr) = cidr.and_then(|cidr| cidr.of(context.family)) {
            established(source, Some(format!("-s {cidr}")));
            established(destination, Some(format!("-d {cidr}")));
        }
    } else if version.has(&TWO_ESTABLISHED_RULES) {
        established(source, None);
        established(destination, None);
    } else {
        established("kubernetes forwarding conntrack rule", None);
    }
}

/// Rejects traffic to a service's address but to none of its ports. Without the rule, the traffic
/// would reach any server of the node itself on that port.
fn refuse_other_ports(context: &Context<'_>, made: &Made, script: &mut Script) {
    let version = context.version;
    let local = version.has(&IPVS_FILTER_SPARES_LOCAL_EXTERNAL_IPS);
    let health = version.has(&IPVS_FILTER_SPARES_HEALTH_CHECKS);
    for (spared, name, by) in [
        (true, Name::LoadBalancer, "dst,dst"),
        (true, Name::ClusterIp, "dst,dst"),
        (true, Name::ExternalIp, "dst,dst"),
        (local, Name::ExternalIpLocal, "dst,dst"),
        (health, Name::HealthCheck, "dst"),
    ] {
        if spared {
            let rule = Rule::append(chains::IPVS_FILTER).with(made.sets.matching(name, by));
            add(script, rule.jump("RETURN"));
        }
    }
    let rule = Rule::append(chains::IPVS_FILTER)
        .with("-m conntrack --ctstate NEW")
        .with(made.sets.matching(Name::IpvsIps, "dst"));
    add(script, rule.jump("REJECT"));
}
