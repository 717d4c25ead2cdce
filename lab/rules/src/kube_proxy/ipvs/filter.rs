//! Writes the rules of the filter table from v1.11 on: forwarded traffic, rejected traffic to
//! services, and load balancers that the node itself may not use.
//!
//! Follows the end of `writeIptablesRules` of kubernetes/kubernetes `pkg/proxy/ipvs/proxier.go`.

use super::masquerade::mark;
use super::services::IpvsObjects;
use super::sets::SetName;
use super::{IpvsContext, chains};
use crate::kube_proxy::history::{
    FORWARD_MATCHES_CLUSTER_CIDR, HEALTH_CHECK_NODE_PORTS, IPVS_EMPTY_FORWARD, IPVS_FILTER,
    IPVS_FILTER_ACCEPTS_HEALTH_CHECKS, IPVS_FILTER_ACCEPTS_LOCAL_EXTERNAL_IPS, IPVS_OUT_FILTER,
    TWO_ESTABLISHED_RULES,
};
use crate::kube_proxy::iptables::rule::RuleBuilder;
use svclab_ruleset::iptables::command::Command;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Adds the filter rules to `script`.
pub(super) fn rules(context: &IpvsContext<'_>, objects: &IpvsObjects, script: &mut IptablesScript) {
    write_forward_rules(context, script);
    let version = context.version;
    if version.has(&HEALTH_CHECK_NODE_PORTS) {
        let rule = RuleBuilder::append(chains::NODE_PORT)
            .comment(SetName::HealthCheck.comment(version))
            .with(objects.sets.matching(SetName::HealthCheck, "dst"));
        add_filter_rule(script, rule.jump("ACCEPT"));
    }
    if version.has(&IPVS_FILTER) {
        write_reject_other_ports(context, objects, script);
    }
    if version.has(&IPVS_OUT_FILTER) {
        for (address, protocol, port) in &objects.closed_to_node {
            let rule = RuleBuilder::append(chains::IPVS_OUT_FILTER)
                .with(format_args!("-s {address} -m ipvs --vaddr {address}"))
                .with(format_args!("--vproto {protocol} --vport {port}"));
            add_filter_rule(script, rule.jump("DROP"));
        }
    }
}

fn add_filter_rule(script: &mut IptablesScript, command: Command) {
    script.table_mut(Table::Filter).push(command);
}

fn write_forward_rules(context: &IpvsContext<'_>, script: &mut IptablesScript) {
    let version = context.version;
    if version.has(&IPVS_EMPTY_FORWARD) {
        return;
    }
    let mark = mark(context);
    let marked = RuleBuilder::append(chains::FORWARD)
        .comment("kubernetes forwarding rules")
        .with(format_args!("-m mark --mark {mark}/{mark}"));
    add_filter_rule(script, marked.jump("ACCEPT"));

    let mut established = |comment: &str, cidr_match: Option<String>| {
        let rule = RuleBuilder::append(chains::FORWARD)
            .with_some(cidr_match)
            .comment(comment)
            .with("-m conntrack --ctstate RELATED,ESTABLISHED");
        add_filter_rule(script, rule.jump("ACCEPT"));
    };
    let source = "kubernetes forwarding conntrack pod source rule";
    let destination = "kubernetes forwarding conntrack pod destination rule";
    if version.has(&FORWARD_MATCHES_CLUSTER_CIDR) {
        let cidr = context.proxy.cluster_cidr.as_ref();
        if let Some(cidr) = cidr.and_then(|cidr| cidr.for_family(context.family)) {
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
fn write_reject_other_ports(
    context: &IpvsContext<'_>,
    objects: &IpvsObjects,
    script: &mut IptablesScript,
) {
    let version = context.version;
    let local = version.has(&IPVS_FILTER_ACCEPTS_LOCAL_EXTERNAL_IPS);
    let health = version.has(&IPVS_FILTER_ACCEPTS_HEALTH_CHECKS);
    for (is_accepted, name, directions) in [
        (true, SetName::LoadBalancer, "dst,dst"),
        (true, SetName::ClusterIp, "dst,dst"),
        (true, SetName::ExternalIp, "dst,dst"),
        (local, SetName::ExternalIpLocal, "dst,dst"),
        (health, SetName::HealthCheck, "dst"),
    ] {
        if is_accepted {
            let rule = RuleBuilder::append(chains::IPVS_FILTER)
                .with(objects.sets.matching(name, directions));
            add_filter_rule(script, rule.jump("RETURN"));
        }
    }
    let rule = RuleBuilder::append(chains::IPVS_FILTER)
        .with("-m conntrack --ctstate NEW")
        .with(objects.sets.matching(SetName::IpvsIps, "dst"));
    add_filter_rule(script, rule.jump("REJECT"));
}
