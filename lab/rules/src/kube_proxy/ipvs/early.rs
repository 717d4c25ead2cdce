//! Writes the iptables rules of ipvs mode in v1.9 and v1.10. `KUBE-SERVICES` contains a rule for
//! each set, without a comment. The filter table has no rules.
//!
//! Follows `syncProxyRules` of kubernetes/kubernetes `pkg/proxy/ipvs/proxier.go` v1.9.4 and
//! v1.10.6, and the dump of a v1.9.11.
//!
//! In these versions, the kubelet writes the jump from POSTROUTING, with the same comment
//! (`syncNetworkUtil` in `pkg/kubelet/kubelet_network.go` v1.9.0). A node runs both, and without
//! the jump no traffic would be masqueraded.

use super::masquerade::{write_mark_rule, write_masquerade_rules};
use super::services::IpvsObjects;
use super::sets::SetName;
use super::{IpvsContext, chains};
use crate::kube_proxy::iptables::local::LocalTraffic;
use crate::kube_proxy::iptables::rule::RuleBuilder;
use svclab_ruleset::Protocol;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Returns the rules for the services in `made`.
pub(super) fn rules(context: &IpvsContext<'_>, objects: &IpvsObjects) -> IptablesScript {
    let mut script = IptablesScript::new();
    let table = script.table_mut(Table::Nat);
    for chain in [
        chains::POSTROUTING,
        chains::MARK_MASQ,
        chains::SERVICES,
        chains::EARLY_FIREWALL,
    ] {
        table.declare_chain(chain);
    }
    let portals = "kubernetes service portals";
    for (from, to, comment) in [
        (
            "POSTROUTING",
            chains::POSTROUTING,
            "kubernetes postrouting rules",
        ),
        ("OUTPUT", chains::SERVICES, portals),
        ("PREROUTING", chains::SERVICES, portals),
    ] {
        table.push(RuleBuilder::insert(from).comment(comment).jump(to));
    }
    write_masquerade_rules(context, &mut script);
    write_mark_rule(context, &mut script);
    write_set_rules(context, objects, &mut script);
    script
}

fn write_set_rules(context: &IpvsContext<'_>, objects: &IpvsObjects, script: &mut IptablesScript) {
    let table = script.table_mut(Table::Nat);
    let rule = |chain: &str, name: SetName, by: &str| {
        RuleBuilder::append(chain).with(objects.sets.matching(name, by))
    };
    let is_nonempty = |name| !objects.sets.is_empty(name);
    let services = chains::SERVICES;

    if is_nonempty(SetName::LoopBack) {
        let rule = rule(chains::POSTROUTING, SetName::LoopBack, "dst,dst,src");
        table.push(rule.jump("MASQUERADE"));
    }
    // The set has entries only with `masqueradeAll` or a local traffic detector.
    if is_nonempty(SetName::ClusterIp) {
        let rule = rule(services, SetName::ClusterIp, "dst,dst");
        let nonlocal_match = context.local.as_ref().map(LocalTraffic::nonlocal_match);
        let stranger = nonlocal_match.filter(|_| !context.proxy.masquerade_all);
        table.push(rule.with_some(stranger).jump(chains::MARK_MASQ));
    }
    if is_nonempty(SetName::ExternalIp) {
        let rule = rule(services, SetName::ExternalIp, "dst,dst");
        table.push(rule.clone().jump(chains::MARK_MASQ));
        let outside = "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL";
        table.push(rule.clone().with(outside).jump("ACCEPT"));
        table.push(rule.with("-m addrtype --dst-type LOCAL").jump("ACCEPT"));
    }
    if is_nonempty(SetName::LoadBalancerMasq) {
        let rule = rule(services, SetName::LoadBalancerMasq, "dst,dst");
        table.push(rule.jump(chains::MARK_MASQ));
    }
    // kube-proxy appends the jump to this chain to KUBE-SERVICES just before it flushes and refills
    // KUBE-SERVICES. The jump is lost, so source ranges have no effect.
    let (has_networks, has_addresses) = (
        is_nonempty(SetName::SourceCidr),
        is_nonempty(SetName::SourceIp),
    );
    for (is_nonempty, name) in [
        (has_networks, SetName::SourceCidr),
        (has_addresses, SetName::SourceIp),
    ] {
        if is_nonempty {
            table.push(rule(chains::EARLY_FIREWALL, name, "dst,dst,src").jump("ACCEPT"));
        }
    }
    if has_networks || has_addresses {
        table.push(RuleBuilder::append(chains::EARLY_FIREWALL).jump(chains::MARK_DROP));
    }
    for (protocol, name) in [
        (Protocol::Tcp, SetName::NodePortTcp),
        (Protocol::Udp, SetName::NodePortUdp),
    ] {
        if is_nonempty(name) {
            let rule = RuleBuilder::append(services)
                .protocol(protocol)
                .with(objects.sets.matching(name, "dst"));
            table.push(rule.jump(chains::MARK_MASQ));
        }
    }
}
