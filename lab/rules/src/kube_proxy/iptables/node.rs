//! Writes the rules of iptables mode that exist once per node: the fixed chains, the jumps to them,
//! masquerading, forwarding, and the end of `KUBE-SERVICES`.

use super::rule::Rule;
use super::{Context, chains, filter, nat};
use crate::kube_proxy::history::{
    CANARY, DROPS_IN_FILTER, ENSURES_MARK_DROP, FORWARD_RULES_COMMENT,
    FORWARD_TIED_TO_CLUSTER_CIDR, HEALTH_CHECK_NODE_PORTS, INPUT_SPARED, INVALID_DROPPED,
    LIBERAL_KEEPS_INVALID, LOAD_BALANCER_REFUSED, LOCALHOST_FOLLOWS_ADDRESSES,
    LOCALHOST_NODE_PORTS, LOCALNET_FIREWALL, MARK_CLEARED, ONE_CHAIN_REFUSES, RANDOM_FULLY,
    TWO_ESTABLISHED_RULES,
};
use crate::kube_proxy::node_ports::Serving;
use crate::kube_proxy::version::Version;
use crate::kube_proxy::{Family, NodePortAddress};
use svclab_ruleset::iptables::script::{Script, Table};

/// Counter of packets dropped because of their conntrack state.
const INVALID_DROPPED_COUNTER: &str = "ct_state_invalid_dropped_pkts";
/// Counter of packets to node ports on 127.0.0.0/8.
pub(super) const LOCALHOST_COUNTER: &str = "localhost_nps_accepted_pkts";

/// Returns the nfacct objects that the rules use.
pub(super) fn accounting(context: &Context<'_>) -> Vec<&'static str> {
    if context.accounting() {
        vec![INVALID_DROPPED_COUNTER, LOCALHOST_COUNTER]
    } else {
        Vec::new()
    }
}

/// Whether node ports answer on 127.0.0.0/8.
pub(super) fn localhost_node_ports(context: &Context<'_>) -> bool {
    let addresses = &context.proxy.node_port_addresses;
    let includes_loopback = || {
        let mut of_family = addresses
            .iter()
            .filter(|address| match address {
                NodePortAddress::Primary => true,
                NodePortAddress::Within(network) => Family::of(network.ip()) == Family::V4,
            })
            .peekable();
        of_family.peek().is_none()
            || of_family.any(|address| {
                let loopback = std::net::Ipv4Addr::LOCALHOST.into();
                address.covers(loopback, context.node.ip)
            })
    };
    context.proxy.localhost_node_ports
        && (!context.version.has(&LOCALHOST_FOLLOWS_ADDRESSES) || includes_loopback())
}

/// Writes all rules that precede the first service.
pub(super) fn begin(context: &Context<'_>, script: &mut Script) {
    declare(context, script);
    link(context, script);
    masquerade(context, script);
    if context.version.has(&LOCALNET_FIREWALL)
        && context.family == Family::V4
        && localhost_node_ports(context)
    {
        // Node ports on localhost need route_localnet, with which neighbours could reach programs
        // that listen on 127.0.0.1 (issue #90259).
        filter(
            script,
            Rule::append(chains::FIREWALL)
                .comment("block incoming localnet connections")
                .with("-d 127.0.0.0/8 ! -s 127.0.0.0/8")
                .with("-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT")
                .jump("DROP"),
        );
    }
}

/// Writes all rules that follow the last service.
pub(super) fn end(context: &Context<'_>, script: &mut Script) {
    node_ports(context, script);
    forward(context, script);
}

fn declare(context: &Context<'_>, script: &mut Script) {
    let version = context.version;
    if version.has(&CANARY) {
        for table in [Table::Mangle, Table::Nat, Table::Filter] {
            script.table(table).chain(chains::CANARY);
        }
    }
    let table = script.table(Table::Filter);
    table.chain(chains::SERVICES);
    if !version.has(&ONE_CHAIN_REFUSES) {
        table.chain(chains::EXTERNAL_SERVICES);
    }
    table.chain(chains::FORWARD);
    if version.has(&HEALTH_CHECK_NODE_PORTS) {
        table.chain(chains::NODE_PORTS);
    }
    if version.has(&DROPS_IN_FILTER) {
        table.chain(chains::PROXY_FIREWALL);
    }
    if version.has(&LOCALNET_FIREWALL) {
        table.chain(chains::FIREWALL);
    }
    let table = script.table(Table::Nat);
    for chain in [
        chains::SERVICES,
        chains::NODE_PORTS,
        chains::POSTROUTING,
        chains::MARK_MASQ,
    ] {
        table.chain(chain);
    }
    if version.has(&ENSURES_MARK_DROP) {
        table.chain(chains::MARK_DROP);
    }
}

/// Jump from a built-in chain.
struct Jump {
    /// Whether the version has the jump.
    made: bool,
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
    let jump = |made, table, from, to, new_only, comment| Jump {
        made,
        table,
        from,
        to,
        new_only,
        comment: Some(comment),
    };
    let split = !version.has(&ONE_CHAIN_REFUSES);
    let input = !split || (version.has(&LOAD_BALANCER_REFUSED) && !version.has(&INPUT_SPARED));
    let forward = version.has(&LOAD_BALANCER_REFUSED);
    let health = version.has(&HEALTH_CHECK_NODE_PORTS);
    let fence = version.has(&DROPS_IN_FILTER);

    let (filter, nat) = (Table::Filter, Table::Nat);
    let outside = "kubernetes externally-visible service portals";
    let portals = "kubernetes service portals";
    let fenced = "kubernetes load balancer firewall";
    let outside_forward = version.has(&INPUT_SPARED);
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
        jump(split, filter, "INPUT", external, true, outside),
        jump(outside_forward, filter, "FORWARD", external, true, outside),
        jump(health, filter, "INPUT", chains::NODE_PORTS, false, checks),
        jump(forward, filter, "FORWARD", services, true, portals),
        jump(true, filter, "OUTPUT", services, split, portals),
        jump(input, filter, "INPUT", services, split, portals),
        jump(true, filter, "FORWARD", chains::FORWARD, false, forwarding),
        jump(fence, filter, "INPUT", firewall, true, fenced),
        jump(fence, filter, "OUTPUT", firewall, true, fenced),
        jump(fence, filter, "FORWARD", firewall, true, fenced),
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
        made: version.has(&LOCALNET_FIREWALL),
        table: filter,
        from,
        to: chains::FIREWALL,
        new_only: false,
        comment: None,
    }));
    jumps
}

fn link(context: &Context<'_>, script: &mut Script) {
    for jump in jumps(context.version) {
        if jump.made {
            let rule = Rule::insert(jump.from)
                .with_some(jump.new_only.then_some("-m conntrack --ctstate NEW"));
            let rule = match jump.comment {
                Some(comment) => rule.comment(comment),
                None => rule,
            };
            script.table(jump.table).command(rule.jump(jump.to));
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
fn masquerade(context: &Context<'_>, script: &mut Script) {
    let mark = mark(context);
    let masquerade =
        Rule::append(chains::POSTROUTING).comment("kubernetes service traffic requiring SNAT");
    let masquerade = if context.version.has(&MARK_CLEARED) {
        nat(
            script,
            Rule::append(chains::POSTROUTING)
                .with(format_args!("-m mark ! --mark {mark}/{mark}"))
                .jump("RETURN"),
        );
        nat(
            script,
            Rule::append(chains::POSTROUTING).jump(&format!("MARK --xor-mark {mark}")),
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
        Rule::append(chains::MARK_MASQ).jump(&format!("MARK --or-mark {mark}")),
    );
}

/// Whether node ports are served on any of the node's addresses.
pub(super) fn serves_node_ports(context: &Context<'_>) -> bool {
    let serving = Serving::of(context.proxy, context.family);
    let own = &context.node.interfaces;
    serving == Serving::All || own.iter().any(|ip| serving.covers(*ip, context.node.ip))
}

/// Writes the end of `KUBE-SERVICES`: packets to the node itself continue in the chain of node
/// ports.
fn node_ports(context: &Context<'_>, script: &mut Script) {
    let rule = || {
        Rule::append(chains::SERVICES)
            .comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")
    };
    let guarded = context.version.has(&LOCALHOST_NODE_PORTS);
    let localhost = localhost_node_ports(context);
    let serving = Serving::of(context.proxy, context.family);
    if serving == Serving::All {
        let but = match context.family {
            Family::V6 if guarded => Some("! -d ::1/128"),
            Family::V4 if guarded && !localhost => Some("! -d 127.0.0.0/8"),
            _ => None,
        };
        nat(
            script,
            rule()
                .with("-m addrtype --dst-type LOCAL")
                .with_some(but)
                .jump(chains::NODE_PORTS),
        );
        return;
    }
    for ip in &context.node.interfaces {
        let meant = serving.covers(*ip, context.node.ip);
        let refused = guarded && ip.is_loopback() && (context.family == Family::V6 || !localhost);
        if meant && !refused {
            nat(script, rule().destination(*ip).jump(chains::NODE_PORTS));
        }
    }
}

fn forward(context: &Context<'_>, script: &mut Script) {
    let version = context.version;
    let liberal = version.has(&LIBERAL_KEEPS_INVALID) && context.proxy.tcp_be_liberal;
    if version.has(&INVALID_DROPPED) && !liberal {
        let count = context
            .accounting()
            .then(|| format!("-m nfacct --nfacct-name {INVALID_DROPPED_COUNTER}"));
        filter(
            script,
            Rule::append(chains::FORWARD)
                .with("-m conntrack --ctstate INVALID")
                .with_some(count)
                .jump("DROP"),
        );
    }
    let mark = mark(context);
    filter(
        script,
        Rule::append(chains::FORWARD)
            .comment("kubernetes forwarding rules")
            .with(format_args!("-m mark --mark {mark}/{mark}"))
            .jump("ACCEPT"),
    );

    let established = |comment: &str, tied: Option<String>| {
        Rule::append(chains::FORWARD)
            .with_some(tied)
            .comment(comment)
            .with("-m conntrack --ctstate RELATED,ESTABLISHED")
            .jump("ACCEPT")
    };
    let source = "kubernetes forwarding conntrack pod source rule";
    let destination = "kubernetes forwarding conntrack pod destination rule";
    if version.has(&FORWARD_TIED_TO_CLUSTER_CIDR) {
        let cidr = context.proxy.cluster_cidr.as_ref();
        if let Some(cidr) = cidr.and_then(|cidr| cidr.of(context.family)) {
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
