//! Writes the iptables rules of ipvs mode in v1.9 and v1.10. `KUBE-SERVICES` contains a rule for
//! each set, without a comment. The filter table has no rules.
//!
//! Follows `syncProxyRules` of kubernetes/kubernetes `pkg/proxy/ipvs/proxier.go` v1.9.4 and
//! v1.10.6, and the dump of a v1.9.11.
//!
//! In these versions, the kubelet writes the jump from POSTROUTING, with the same comment
//! (`syncNetworkUtil` in `pkg/kubelet/kubelet_network.go` v1.9.0). A node runs both, and without
//! the jump no traffic would be masqueraded.

use super::masquerade::{mark_for_masquerade, masquerade};
use super::services::Made;
use super::sets::Name;
use super::{Context, chains};
use crate::kube_proxy::iptables::local::LocalTraffic;
use crate::kube_proxy::iptables::rule::Rule;
use crate::kube_proxy::services::Protocol;
use svclab_ruleset::iptables::script::{Script, Table};

/// Returns the rules for the services in `made`.
pub(super) fn rules(context: &Context<'_>, made: &Made) -> Script {
    let mut script = Script::new();
    let table = script.table(Table::Nat);
    for chain in [
        chains::POSTROUTING,
        chains::MARK_MASQ,
        chains::SERVICES,
        chains::FIRE_WALL,
    ] {
        table.chain(chain);
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
        table.command(Rule::insert(from).comment(comment).jump(to));
    }
    masquerade(context, &mut script);
    mark_for_masquerade(context, &mut script);
    sets(context, made, &mut script);
    script
}

fn sets(context: &Context<'_>, made: &Made, script: &mut Script) {
    let table = script.table(Table::Nat);
    let rule =
        |chain: &str, name: Name, by: &str| Rule::append(chain).with(made.sets.matching(name, by));
    let holds = |name| !made.sets.is_empty(name);
    let services = chains::SERVICES;

    if holds(Name::LoopBack) {
        let rule = rule(chains::POSTROUTING, Name::LoopBack, "dst,dst,src");
        table.command(rule.jump("MASQUERADE"));
    }
    // The set has entries only with `masqueradeAll` or a local traffic detector.
    if holds(Name::ClusterIp) {
        let rule = rule(services, Name::ClusterIp, "dst,dst");
        let stranger = context.local.as_ref().map(LocalTraffic::if_not_local);
        let stranger = stranger.filter(|_| !context.proxy.masquerade_all);
        table.command(rule.with_some(stranger).jump(chains::MARK_MASQ));
    }
    if holds(Name::ExternalIp) {
        let rule = rule(services, Name::ExternalIp, "dst,dst");
        table.command(rule.clone().jump(chains::MARK_MASQ));
        let outside = "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL";
        table.command(rule.clone().with(outside).jump("ACCEPT"));
        table.command(rule.with("-m addrtype --dst-type LOCAL").jump("ACCEPT"));
    }
    if holds(Name::LoadBalancerMasq) {
        let rule = rule(services, Name::LoadBalancerMasq, "dst,dst");
        table.command(rule.jump(chains::MARK_MASQ));
    }
    // kube-proxy appends the jump to this chain to KUBE-SERVICES just before it flushes and refills
    // KUBE-SERVICES. The jump is lost, so source ranges have no effect.
    let (networks, addresses) = (holds(Name::SourceCidr), holds(Name::SourceIp));
    for (holds, name) in [(networks, Name::SourceCidr), (addresses, Name::SourceIp)] {
        if holds {
            table.command(rule(chains::FIRE_WALL, name, "dst,dst,src").jump("ACCEPT"));
        }
    }
    if networks || addresses {
        table.command(Rule::append(chains::FIRE_WALL).jump(chains::MARK_DROP));
    }
    for (protocol, name) in [
        (Protocol::Tcp, Name::NodePortTcp),
        (Protocol::Udp, Name::NodePortUdp),
    ] {
        if holds(name) {
            let rule = Rule::append(services)
                .protocol(protocol)
                .with(made.sets.matching(name, "dst"));
            table.command(rule.jump(chains::MARK_MASQ));
        }
    }
}
