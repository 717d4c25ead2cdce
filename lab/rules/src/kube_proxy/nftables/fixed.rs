//! Writes the objects of nftables mode that exist once per node: the table, the base chains, the
//! chains that they jump to, and the sets and maps with the entries of services.

use super::node_ports::NodePorts;
use super::services::NftObjects;
use super::{NftablesContext, local, names};
use crate::kube_proxy::Family;
use crate::kube_proxy::history::{
    NFT_CLUSTER_IPS, NFT_ENDPOINT_MAPS, NFT_FILTER_AFTER_DNAT, NFT_FIREWALL_SETS,
    NFT_INVALID_DROPPED, NFT_ONE_ENDPOINTS_CHECK,
};
use svclab_ruleset::nft::{Chain, Element, Hook, Rule, Set, Table};

/// Priority of DNAT, relative to which the filter chains are placed.
const DNAT: i32 = -100;
/// Priority of SNAT.
const SNAT: i32 = 100;
/// Priority of filters.
const FILTER: i32 = 0;

/// Returns the table with the objects of the services.
pub(super) fn table(context: &NftablesContext<'_>, made: NftObjects) -> Table {
    let NftObjects {
        entries,
        affinity,
        chains,
    } = made;
    let mut sets = sets(context, entries);
    sets.extend(affinity);
    let mut all_chains = base_chains(context);
    all_chains.extend(regular_chains(context));
    all_chains.extend(chains);
    Table {
        family: context.family.nft().to_owned(),
        name: super::TABLE.to_owned(),
        comment: Some("rules for kube-proxy".to_owned()),
        sets,
        chains: all_chains,
        ..Table::default()
    }
}

/// Returns a base chain with its jumps. Each jump has a prefix that limits it to new connections or
/// is empty.
fn base_chain(
    name: &str,
    kind: &str,
    hook: &str,
    priority: i32,
    jumps: &[(&str, &str)],
    context: &NftablesContext<'_>,
) -> Chain {
    let mut chain = Chain {
        hook: Some(Hook {
            kind: kind.to_owned(),
            hook: hook.to_owned(),
            priority,
            policy: "accept".to_owned(),
            ..Hook::default()
        }),
        ..Chain::regular(name)
    };
    for (prefix, to) in jumps {
        // `cluster-ips-check` does not exist before v1.30.
        if *to != names::CLUSTER_IPS_CHECK || context.version.has(&NFT_CLUSTER_IPS) {
            chain.push_rule(format!("{prefix}jump {to}"));
        }
    }
    chain
}

fn base_chains(context: &NftablesContext<'_>) -> Vec<Chain> {
    const NEW: &str = "ct state new ";
    let firewall = (NEW, names::FIREWALL_CHECK);
    let service = (NEW, names::SERVICE_CHECK);
    let node_port = (NEW, names::NODE_PORT_CHECK);
    let cluster = (NEW, names::CLUSTER_IPS_CHECK);
    let version = context.version;
    let filter = |name: &str, hook: &str, priority: i32, jumps: &[(&str, &str)]| {
        base_chain(name, "filter", hook, priority, jumps, context)
    };
    let mut chains = if version.has(&NFT_ONE_ENDPOINTS_CHECK) {
        let check = (NEW, names::ENDPOINTS_CHECK);
        let before = DNAT - 1;
        let forward = [check, ("", names::FORWARD), firewall];
        vec![
            filter("filter-input", "input", before, &[check, firewall]),
            filter("filter-forward", "forward", before, &forward),
            filter("filter-output", "output", before, &[check, firewall]),
        ]
    } else if version.has(&NFT_FILTER_AFTER_DNAT) {
        let before = DNAT - 10;
        let pre = "filter-prerouting-pre-dnat";
        vec![
            filter(pre, "prerouting", before, &[firewall]),
            filter("filter-output-pre-dnat", "output", before, &[firewall]),
            filter("filter-input", "input", FILTER, &[node_port, service]),
            filter("filter-forward", "forward", FILTER, &[service, cluster]),
            filter("filter-output", "output", FILTER, &[service, cluster]),
        ]
    } else {
        let before = DNAT - 10;
        let post = "filter-output-post-dnat";
        vec![
            filter("filter-prerouting", "prerouting", before, &[firewall]),
            filter("filter-input", "input", before, &[node_port, service]),
            filter("filter-forward", "forward", before, &[service, cluster]),
            filter("filter-output", "output", before, &[service, firewall]),
            filter(post, "output", DNAT + 10, &[cluster]),
        ]
    };
    let nat_chain = |name: &str, hook: &str, priority: i32, chain: &str| {
        base_chain(name, "nat", hook, priority, &[("", chain)], context)
    };
    let masquerading = names::MASQUERADING;
    chains.extend([
        nat_chain("nat-prerouting", "prerouting", DNAT, names::SERVICES),
        nat_chain("nat-output", "output", DNAT, names::SERVICES),
        nat_chain("nat-postrouting", "postrouting", SNAT, masquerading),
    ]);
    chains
}

/// Returns the chains that the base chains jump to.
fn regular_chains(context: &NftablesContext<'_>) -> Vec<Chain> {
    let version = context.version;
    let ip = context.family.nft();
    let mut chains = check_chains(context);
    chains.push(services_chain(context));
    chains.push(masquerading_chain(context));
    if version.has(&NFT_INVALID_DROPPED) {
        let mut chain = Chain::regular(names::FORWARD);
        if !context.proxy.tcp_be_liberal {
            chain.push_rule("ct state invalid drop");
        }
        chains.push(chain);
    }
    if version.has(&NFT_CLUSTER_IPS) {
        let mut chain = Chain::regular(names::CLUSTER_IPS_CHECK);
        let set = names::CLUSTER_IPS;
        chain.rules.push(
            Rule::new(format!("{ip} daddr @{set} reject"))
                .with_comment("Reject traffic to invalid ports of ClusterIPs"),
        );
        if !context.service_cidrs.is_empty() {
            let cidrs: Vec<String> = context
                .service_cidrs
                .iter()
                .map(ToString::to_string)
                .collect();
            chain.rules.push(
                Rule::new(format!("{ip} daddr {{ {} }} drop", cidrs.join(", ")))
                    .with_comment("Drop traffic to unallocated ClusterIPs"),
            );
        }
        chains.push(chain);
    }
    if !version.has(&NFT_ENDPOINT_MAPS) {
        let mut chain = Chain::regular(names::MARK_FOR_MASQUERADE);
        chain.push_rule(format!("mark set mark or {}", context.mark()));
        chains.push(chain);
    }
    chains.push(Chain {
        comment: Some("helper for @no-endpoint-services / @no-endpoint-nodeports".to_owned()),
        rules: vec![Rule::new("reject")],
        ..Chain::regular(names::REJECT)
    });
    chains
}

/// Returns a match for packets to node ports. `local` is the match for packets to the node itself,
/// which some chains can omit.
fn node_port_match(context: &NftablesContext<'_>, local_match: &str) -> String {
    match (&context.node_ports, context.family) {
        (NodePorts::Listed(_), _) => {
            format!("{} daddr @{}", context.family.nft(), names::NODE_PORT_IPS)
        }
        (NodePorts::All, Family::V4) => format!("{local_match}ip daddr != 127.0.0.0/8"),
        (NodePorts::All, Family::V6) => format!("{local_match}ip6 daddr != ::1"),
    }
}

/// Match for packets to this node.
const MATCH_LOCAL_DESTINATION: &str = "fib daddr type local ";

/// Returns the chains that reject and drop traffic before address translation.
fn check_chains(context: &NftablesContext<'_>) -> Vec<Chain> {
    let version = context.version;
    let ip = context.family.nft();
    let socket = format!("{ip} daddr . meta l4proto . th dport");
    let to_service = format!("{socket} vmap @{}", names::NO_ENDPOINT_SERVICES);
    let to_node_port = |local: &str| {
        format!(
            "{} meta l4proto . th dport vmap @{}",
            node_port_match(context, local),
            names::NO_ENDPOINT_NODE_PORTS
        )
    };
    let mut chains = Vec::new();
    if version.has(&NFT_ONE_ENDPOINTS_CHECK) {
        let mut chain = Chain::regular(names::ENDPOINTS_CHECK);
        chain.push_rule(to_service);
        chain.push_rule(to_node_port(MATCH_LOCAL_DESTINATION));
        chains.push(chain);
    } else {
        let mut chain = Chain::regular(names::NODE_PORT_CHECK);
        chain.push_rule(to_node_port(""));
        chains.push(chain);
        let mut chain = Chain::regular(names::SERVICE_CHECK);
        chain.push_rule(to_service);
        chains.push(chain);
    }
    let mut check = Chain::regular(names::FIREWALL_CHECK);
    if version.has(&NFT_FIREWALL_SETS) {
        let allow = names::FIREWALL_ALLOW_CHECK;
        check.push_rule(format!("{socket} @{} jump {allow}", names::FIREWALL));
        chains.push(check);
        let mut chain = Chain::regular(allow);
        let set = names::FIREWALL_ALLOW;
        chain.push_rule(format!("{socket} . {ip} saddr @{set} return"));
        chain.push_rule("drop");
        chains.push(chain);
    } else {
        check.push_rule(format!("{socket} vmap @{}", names::FIREWALL_IPS));
        chains.push(check);
    }
    chains
}

fn services_chain(context: &NftablesContext<'_>) -> Chain {
    let ip = context.family.nft();
    let mut chain = Chain::regular(names::SERVICES);
    if context.version.has(&NFT_ENDPOINT_MAPS) {
        let to_cluster_ips = format!("{ip} daddr @{}", names::CLUSTER_IPS);
        let masquerade = context.masquerade();
        if context.proxy.masquerade_all {
            chain.rules.push(
                Rule::new(format!("{to_cluster_ips} {masquerade}"))
                    .with_comment("masquerade all clusterIP traffic"),
            );
        } else if let Some(not_local) = local::nonlocal_match(context) {
            chain.rules.push(
                Rule::new(format!("{to_cluster_ips} {not_local} {masquerade}"))
                    .with_comment("masquerade clusterIP traffic from outside cluster"),
            );
        }
    }
    chain.push_rule(format!(
        "{ip} daddr . meta l4proto . th dport vmap @{}",
        names::SERVICE_IPS
    ));
    chain.push_rule(format!(
        "{} meta l4proto . th dport vmap @{}",
        node_port_match(context, MATCH_LOCAL_DESTINATION),
        names::SERVICE_NODE_PORTS
    ));
    chain
}

fn masquerading_chain(context: &NftablesContext<'_>) -> Chain {
    let ip = context.family.nft();
    let mark = context.mark();
    let mut chain = Chain::regular(names::MASQUERADING);
    if context.version.has(&NFT_ENDPOINT_MAPS) {
        chain.push_rule(format!(
            "mark and {mark} != 0 mark set mark xor {mark} masquerade fully-random"
        ));
        chain.push_rule(format!(
            "ct status dnat {ip} saddr . {ip} daddr . meta l4proto . th dport @{} masquerade fully-random",
            names::HAIRPIN
        ));
    } else {
        chain.push_rule(format!("mark and {mark} == 0 return"));
        chain.push_rule(format!("mark set mark xor {mark}"));
        chain.push_rule("masquerade fully-random");
    }
    chain
}

/// Returns the sets and maps with their entries.
fn sets(context: &NftablesContext<'_>, entries: super::services::Entries) -> Vec<Set> {
    let version = context.version;
    let address = context.address_type();
    let socket = format!("{address} . inet_proto . inet_service");
    let node_port = "inet_proto . inet_service";
    let set = |name: &str, element_type: &str, comment: &str, elements: Vec<Element>| Set {
        name: name.to_owned(),
        type_line: format!("type {element_type}"),
        comment: Some(comment.to_owned()),
        elements,
        ..Set::default()
    };
    let map = |name: &str, key_type: &str, comment: &str, elements: Vec<Element>| Set {
        is_map: true,
        ..set(name, &format!("{key_type} : verdict"), comment, elements)
    };
    let mut sets = Vec::new();
    if version.has(&NFT_ENDPOINT_MAPS) {
        sets.push(set(
            names::HAIRPIN,
            &format!("{address} . {address} . inet_proto . inet_service"),
            "service hairpin connections",
            entries.hairpin.into_elements(),
        ));
    }
    if version.has(&NFT_CLUSTER_IPS) {
        sets.push(set(
            names::CLUSTER_IPS,
            address,
            "Active ClusterIPs",
            entries.cluster_ips.into_elements(),
        ));
    }
    if let NodePorts::Listed(ips) = &context.node_ports {
        sets.push(set(
            names::NODE_PORT_IPS,
            address,
            "IPs that accept NodePort traffic",
            ips.iter()
                .map(|ip| Element::set_element(ip.to_string()))
                .collect(),
        ));
    }
    sets.push(map(
        names::NO_ENDPOINT_SERVICES,
        &socket,
        "vmap to drop or reject packets to services with no endpoints",
        entries.no_endpoint_services.into_elements(),
    ));
    sets.push(map(
        names::NO_ENDPOINT_NODE_PORTS,
        node_port,
        "vmap to drop or reject packets to service nodeports with no endpoints",
        entries.no_endpoint_node_ports.into_elements(),
    ));
    let guarded = "destinations that are subject to LoadBalancerSourceRanges";
    let elements = entries.firewall.into_elements();
    if version.has(&NFT_FIREWALL_SETS) {
        sets.push(set(names::FIREWALL, &socket, guarded, elements));
        sets.push(Set {
            flags: vec!["interval".to_owned()],
            ..set(
                names::FIREWALL_ALLOW,
                &format!("{socket} . {address}"),
                "destinations+sources that are allowed by LoadBalancerSourceRanges",
                entries.firewall_allow.into_elements(),
            )
        });
    } else {
        sets.push(map(names::FIREWALL_IPS, &socket, guarded, elements));
    }
    sets.push(map(
        names::SERVICE_IPS,
        &socket,
        "ClusterIP, ExternalIP and LoadBalancer IP traffic",
        entries.service_ips.into_elements(),
    ));
    sets.push(map(
        names::SERVICE_NODE_PORTS,
        node_port,
        "NodePort traffic",
        entries.service_node_ports.into_elements(),
    ));
    sets
}
