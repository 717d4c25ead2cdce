//! Writes the rules of iptables mode that exist once per node: the fixed chains, the jumps to them,
//! masquerading, forwarding, and the end of `KUBE-SERVICES`.

use super::rule::RuleBuilder;
use super::{Context, chains, filter, nat};
use crate::kube_proxy::history::{
    CANARY, CREATES_MARK_DROP, DROPS_IN_FILTER, FORWARD_MATCHES_CLUSTER_CIDR,
    FORWARD_RULES_COMMENT, HEALTH_CHECK_NODE_PORTS, INVALID_DROPPED, LIBERAL_ACCEPTS_INVALID,
    LOAD_BALANCER_REJECTED, LOCALHOST_FOLLOWS_ADDRESSES, LOCALHOST_NODE_PORTS, LOCALNET_FIREWALL,
    MARK_CLEARED, NO_SERVICES_JUMP_FROM_INPUT, RANDOM_FULLY, SINGLE_REJECT_CHAIN,
    TWO_ESTABLISHED_RULES,
};
use crate::kube_proxy::node_ports::NodePortSelection;
use crate::kube_proxy::version::Version;
use crate::kube_proxy::{Family, NodePortAddress};
use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Counter of packets dropped because of their conntrack state.
const INVALID_DROPPED_COUNTER: &str = "ct_state_invalid_dropped_pkts";
/// Counter of packets to node ports on 127.0.0.0/8.
pub(super) const LOCALHOST_COUNTER: &str = "localhost_nps_accepted_pkts";

/// Returns the nfacct objects that the rules use.
pub(super) fn accounting(context: &Context<'_>) -> Vec<&'static str> {
    if context.has_accounting() {
        vec![INVALID_DROPPED_COUNTER, LOCALHOST_COUNTER]
    } else {
        Vec::new()
    }
}

/// Whether node ports answer on 127.0.0.0/8.
pub(super) fn has_localhost_node_ports(context: &Context<'_>) -> bool {
    let addresses = &context.proxy.node_port_addresses;
    let includes_loopback = || {
        let mut entries = addresses
            .iter()
            .filter(|address| match address {
                NodePortAddress::Primary => true,
                NodePortAddress::Network(network) => Family::from_ip(network.ip()) == Family::V4,
            })
            .peekable();
        entries.peek().is_none()
            || entries.any(|address| {
                let loopback = std::net::Ipv4Addr::LOCALHOST.into();
                address.covers(loopback, context.node.ip)
            })
    };
    context.proxy.localhost_node_ports
        && (!context.version.has(&LOCALHOST_FOLLOWS_ADDRESSES) || includes_loopback())
}

/// Writes all rules that precede the first service.
pub(super) fn write_before_services(context: &Context<'_>, script: &mut IptablesScript) {
    declare_chains(context, script);
    write_jumps(context, script);
    write_masquerade_rules(context, script);
    if context.version.has(&LOCALNET_FIREWALL)
        && context.family == Family::V4
        && has_localhost_node_ports(context)
    {
        // Node ports on localhost need route_localnet, with which neighbours could reach programs
        // that listen on 127.0.0.1 (issue #90259).
        filter(
            script,
            RuleBuilder::append(chains::FIREWALL)
                .comment("block incoming localnet connections")
                .with("-d 127.0.0.0/8 ! -s 127.0.0.0/8")
                .with("-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT")
                .jump("DROP"),
        );
    }
}

/// Writes all rules that follow the last service.
pub(super) fn write_after_services(context: &Context<'_>, script: &mut IptablesScript) {
    write_node_port_jumps(context, script);
    write_forward_rules(context, script);
}

fn declare_chains(context: &Context<'_>, script: &mut IptablesScript) {
    let version = context.version;
    if version.has(&CANARY) {
        for table in [Table::Mangle, Table::Nat, Table::Filter] {
            script.table_mut(table).declare_chain(chains::CANARY);
        }
    }
    let table = script.table_mut(Table::Filter);
    table.declare_chain(chains::SERVICES);
    if !version.has(&SINGLE_REJECT_CHAIN) {
        table.declare_chain(chains::EXTERNAL_SERVICES);
    }
    table.declare_chain(chains::FORWARD);
    if version.has(&HEALTH_CHECK_NODE_PORTS) {
        table.declare_chain(chains::NODE_PORTS);
    }
    if version.has(&DROPS_IN_FILTER) {
        table.declare_chain(chains::PROXY_FIREWALL);
    }
    if version.has(&LOCALNET_FIREWALL) {
        table.declare_chain(chains::FIREWALL);
    }
    let table = script.table_mut(Table::Nat);
    for chain in [
        chains::SERVICES,
        chains::NODE_PORTS,
        chains::POSTROUTING,
        chains::MARK_MASQ,
    ] {
        table.declare_chain(chain);
    }
    if version.has(&CREATES_MARK_DROP) {
        table.declare_chain(chains::MARK_DROP);
    }
}

/// Jump from a built-in chain.
struct Jump {
    /// Whether the version has the jump.
    is_enabled: bool,
    table: Table,
    from: &'static str,
    to: &'static str,
    /// Whether only the first packet of a connection matches.
    new_only: bool,
    comment: Option<&'static str>,
}

/// Returns the jumps from built-in chains, in the order of their creation. Each jump is inserted at
/// the top of its chain, so the kernel evaluates the last one first. (`iptablesJumpChains`, from
/// v1.27 also `iptablesKubeletJumpChains`.)
fn jumps(version: Version) -> Vec<Jump> {
    let jump = |is_enabled, table, from, to, new_only, comment| Jump {
        is_enabled,
        table,
        from,
        to,
        new_only,
        comment: Some(comment),
    };
    let has_external = !version.has(&SINGLE_REJECT_CHAIN);
    let input = !has_external
        || (version.has(&LOAD_BALANCER_REJECTED) && !version.has(&NO_SERVICES_JUMP_FROM_INPUT));
    let forward = version.has(&LOAD_BALANCER_REJECTED);
    let health = version.has(&HEALTH_CHECK_NODE_PORTS);
    let has_firewall = version.has(&DROPS_IN_FILTER);

    let (filter, nat) = (Table::Filter, Table::Nat);
    let external_note = "kubernetes externally-visible service portals";
    let portals = "kubernetes service portals";
    let firewall_note = "kubernetes load balancer firewall";
    let forwards = version.has(&NO_SERVICES_JUMP_FROM_INPUT);
    let external = chains::EXTERNAL_SERVICES;
    let services = chains::SERVICES;
    let firewall = chains::PROXY_FIREWALL;
    let checks = "kubernetes health check service ports";
    let forwarding = if version.has(&FORWARD_RULES_COMMENT) {
        "kubernetes forward rules"
    } else {
        "kubernetes forwarding rules"
    };
    let postrouting = "kubernetes postrouting rules";
    let mut jumps = vec![
        jump(has_external, filter, "INPUT", external, true, external_note),
        jump(forwards, filter, "FORWARD", external, true, external_note),
        jump(health, filter, "INPUT", chains::NODE_PORTS, false, checks),
        jump(forward, filter, "FORWARD", services, true, portals),
        jump(true, filter, "OUTPUT", services, has_external, portals),
        jump(input, filter, "INPUT", services, has_external, portals),
        jump(true, filter, "FORWARD", chains::FORWARD, false, forwarding),
        jump(has_firewall, filter, "INPUT", firewall, true, firewall_note),
        jump(
            has_firewall,
            filter,
            "OUTPUT",
            firewall,
            true,
            firewall_note,
        ),
        jump(
            has_firewall,
            filter,
            "FORWARD",
            firewall,
            true,
            firewall_note,
        ),
        jump(true, nat, "OUTPUT", services, false, portals),
        jump(true, nat, "PREROUTING", services, false, portals),
        jump(
            true,
            nat,
            "POSTROUTING",
            chains::POSTROUTING,
            false,
            postrouting,
        ),
    ];
    jumps.extend(["INPUT", "OUTPUT"].map(|from| Jump {
        is_enabled: version.has(&LOCALNET_FIREWALL),
        table: filter,
        from,
        to: chains::FIREWALL,
        new_only: false,
        comment: None,
    }));
    jumps
}

fn write_jumps(context: &Context<'_>, script: &mut IptablesScript) {
    for jump in jumps(context.version) {
        if jump.is_enabled {
            let rule = RuleBuilder::insert(jump.from)
                .with_some(jump.new_only.then_some("-m conntrack --ctstate NEW"));
            let rule = match jump.comment {
                Some(comment) => rule.comment(comment),
                None => rule,
            };
            script.table_mut(jump.table).push(rule.jump(jump.to));
        }
    }
}

/// Returns the packet mark that requests masquerading, in the notation of iptables.
fn mark(context: &Context<'_>) -> String {
    // The configuration accepts bits 0 to 31; a larger bit sets no mark.
    let mark = 1_u32
        .checked_shl(u32::from(context.proxy.masquerade_bit))
        .unwrap_or(0);
    format!("{mark:#010x}")
}

/// Writes the rules that masquerade marked packets and the rule that sets the mark.
///
/// Versions before [`MARK_CLEARED`] spell the mark `--set-xmark`. The kernel stores, and
/// `iptables-save` prints, the same for both spellings.
fn write_masquerade_rules(context: &Context<'_>, script: &mut IptablesScript) {
    let mark = mark(context);
    let masquerade = RuleBuilder::append(chains::POSTROUTING)
        .comment("kubernetes service traffic requiring SNAT");
    let masquerade = if context.version.has(&MARK_CLEARED) {
        nat(
            script,
            RuleBuilder::append(chains::POSTROUTING)
                .with(format_args!("-m mark ! --mark {mark}/{mark}"))
                .jump("RETURN"),
        );
        nat(
            script,
            RuleBuilder::append(chains::POSTROUTING).jump(&format!("MARK --xor-mark {mark}")),
        );
        masquerade
    } else {
        masquerade.with(format_args!("-m mark --mark {mark}/{mark}"))
    };
    let fully = context.version.has(&RANDOM_FULLY) && context.proxy.random_fully;
    nat(
        script,
        masquerade.jump(if fully {
            "MASQUERADE --random-fully"
        } else {
            "MASQUERADE"
        }),
    );
    nat(
        script,
        RuleBuilder::append(chains::MARK_MASQ).jump(&format!("MARK --or-mark {mark}")),
    );
}

/// Whether node ports are served on any of the node's addresses.
pub(super) fn has_node_port_addresses(context: &Context<'_>) -> bool {
    let serving = NodePortSelection::new(context.proxy, context.family);
    let interfaces = &context.node.interfaces;
    serving == NodePortSelection::All
        || interfaces
            .iter()
            .any(|ip| serving.covers(*ip, context.node.ip))
}

/// Writes the end of `KUBE-SERVICES`: packets to the node itself continue in the chain of node
/// ports.
fn write_node_port_jumps(context: &Context<'_>, script: &mut IptablesScript) {
    let rule = || {
        RuleBuilder::append(chains::SERVICES)
            .comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")
    };
    let is_loopback_guarded = context.version.has(&LOCALHOST_NODE_PORTS);
    let localhost = has_localhost_node_ports(context);
    let serving = NodePortSelection::new(context.proxy, context.family);
    if serving == NodePortSelection::All {
        let exception = match context.family {
            Family::V6 if is_loopback_guarded => Some("! -d ::1/128"),
            Family::V4 if is_loopback_guarded && !localhost => Some("! -d 127.0.0.0/8"),
            _ => None,
        };
        nat(
            script,
            rule()
                .with("-m addrtype --dst-type LOCAL")
                .with_some(exception)
                .jump(chains::NODE_PORTS),
        );
        return;
    }
    for ip in &context.node.interfaces {
        let is_serving = serving.covers(*ip, context.node.ip);
        let is_excluded =
            is_loopback_guarded && ip.is_loopback() && (context.family == Family::V6 || !localhost);
        if is_serving && !is_excluded {
            nat(script, rule().destination(*ip).jump(chains::NODE_PORTS));
        }
    }
}

fn write_forward_rules(context: &Context<'_>, script: &mut IptablesScript) {
    let version = context.version;
    let liberal = version.has(&LIBERAL_ACCEPTS_INVALID) && context.proxy.tcp_be_liberal;
    if version.has(&INVALID_DROPPED) && !liberal {
        let count = context
            .has_accounting()
            .then(|| format!("-m nfacct --nfacct-name {INVALID_DROPPED_COUNTER}"));
        filter(
            script,
            RuleBuilder::append(chains::FORWARD)
                .with("-m conntrack --ctstate INVALID")
                .with_some(count)
                .jump("DROP"),
        );
    }
    let mark = mark(context);
    filter(
        script,
        RuleBuilder::append(chains::FORWARD)
            .comment("kubernetes forwarding rules")
            .with(format_args!("-m mark --mark {mark}/{mark}"))
            .jump("ACCEPT"),
    );

    let established = |comment: &str, cidr_match: Option<String>| {
        RuleBuilder::append(chains::FORWARD)
            .with_some(cidr_match)
            .comment(comment)
            .with("-m conntrack --ctstate RELATED,ESTABLISHED")
            .jump("ACCEPT")
    };
    let source = "kubernetes forwarding conntrack pod source rule";
    let destination = "kubernetes forwarding conntrack pod destination rule";
    if version.has(&FORWARD_MATCHES_CLUSTER_CIDR) {
        let cidr = context.proxy.cluster_cidr.as_ref();
        if let Some(cidr) = cidr.and_then(|cidr| cidr.for_family(context.family)) {
            filter(script, established(source, Some(format!("-s {cidr}"))));
            filter(script, established(destination, Some(format!("-d {cidr}"))));
        }
    } else if version.has(&TWO_ESTABLISHED_RULES) {
        filter(script, established(source, None));
        filter(script, established(destination, None));
    } else {
        filter(
            script,
            established("kubernetes forwarding conntrack rule", None),
        );
    }
}
