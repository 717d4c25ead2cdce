//! Regenerates the rules of a dumped node as after a restart of kube-proxy. kube-proxy rewrites its
//! own chains, sets and virtual servers and leaves all others unchanged.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use thiserror::Error;

use super::kube_proxy_only::{declare_kubelet_chain, kube_proxy_plan};
use crate::cluster::Cluster;
use crate::delta::rules::{Table, is_built_in, parse};
use svclab_model::plan::{Backend, Iptables, Namespace, Plan};
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_rules::kube_proxy::{KubeProxyError, Mode, Objects};
use svclab_ruleset::nft::Ruleset;

/// Prefixes of the chains that kube-proxy creates for a service or endpoint. kube-proxy deletes
/// such a chain without a service or endpoint (Kubernetes v1.30, `pkg/proxy/iptables/proxier.go`,
/// `isServiceChainName`).
const SERVICE_CHAIN_PREFIXES: [&str; 6] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-SEP-",
    "KUBE-FW-",
    "KUBE-XLB-",
    "KUBE-EXT-",
];

/// Reason why the rules of kube-proxy cannot be regenerated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RestartError {
    /// The node does not exist.
    #[error("the lab has no node {0}")]
    NoNode(String),
    /// The lab does not state the version and mode of kube-proxy.
    #[error(
        "the lab does not state the kube-proxy of {0}; add it beside `nodes`: \
         `kubeProxy: {{version: v1.30, mode: iptables}}`"
    )]
    NoProxy(String),
    /// kube-proxy does not generate rules for these objects.
    #[error(transparent)]
    Proxy(#[from] KubeProxyError),
    /// The existing rules cannot be parsed.
    #[error("cannot parse the rules or sets of {0}")]
    Unreadable(String),
}

/// Regenerates the kube-proxy rules of a node from the cluster.
///
/// # Errors
///
/// See [`RestartError`].
pub fn regenerate_kube_proxy_rules(
    plan: &mut Plan,
    cluster: &Cluster,
    name: &str,
) -> Result<(), RestartError> {
    let no_node = || RestartError::NoNode(name.to_owned());
    let node = cluster.nodes.iter().find(|node| node.name == name);
    let node = node.ok_or_else(no_node)?;
    let namespace = plan.namespaces.iter_mut().find(|own| own.name == name);
    let namespace = namespace.ok_or_else(no_node)?;
    let proxy = node
        .generated_proxy()
        .ok_or_else(|| RestartError::NoProxy(name.to_owned()))?;
    let nodes: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| node.object.clone())
        .collect();
    // kube-proxy does not hold node ports on the addresses that it binds itself.
    let links = namespace.links.iter().filter(|link| link.name != DUMMY);
    let addresses = links.flat_map(|link| &link.addresses);
    let loopback = [
        IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    ];
    let loopback = loopback
        .into_iter()
        .take(1 + usize::from(cluster.has_ipv6()));
    let addresses: Vec<IpAddr> = addresses.map(IpNetwork::ip).chain(loopback).collect();
    let objects = Objects {
        node: name,
        nodes: &nodes,
        services: &cluster.services,
        endpoint_slices: &cluster.slices,
        service_cidrs: &cluster.service_cidrs,
        interface_addresses: &addresses,
    };
    let backend = kube_proxy_backend(namespace).map_or(cluster.backend, |rules| rules.backend);
    let mut generated = kube_proxy_plan(proxy, &objects, backend)?;
    declare_kubelet_chain(&mut generated);
    let Some(generated) = generated.namespaces.into_iter().next() else {
        return Err(no_node());
    };
    apply_generated(namespace, generated, proxy.mode, backend)
}

/// Returns the iptables backend that contains the rules of kube-proxy.
fn kube_proxy_backend(namespace: &Namespace) -> Option<&Iptables> {
    let mut backends = namespace.iptables.iter().chain(&namespace.other_iptables);
    let first = backends.clone().next();
    backends
        .find(|rules| rules.v4.contains("KUBE-") || rules.v6.contains("KUBE-"))
        .or(first)
}

fn apply_generated(
    namespace: &mut Namespace,
    generated: Namespace,
    mode: Mode,
    backend: Backend,
) -> Result<(), RestartError> {
    let unreadable = || RestartError::Unreadable(namespace.name.clone());
    let nft: Ruleset = svclab_ruleset::nft::parse(&namespace.nft).map_err(|_| unreadable())?;
    if let Some(written) = generated.iptables {
        let opaque = unreadable();
        let mut backends = namespace
            .iptables
            .iter_mut()
            .chain(&mut namespace.other_iptables);
        let rules = match backends.find(|rules| rules.backend == backend) {
            Some(rules) => rules,
            None => namespace.iptables.insert(Iptables {
                backend,
                ..Iptables::default()
            }),
        };
        for (existing, written) in [(&mut rules.v4, &written.v4), (&mut rules.v6, &written.v6)] {
            if !written.is_empty() {
                *existing = merge_rules(existing, written).ok_or_else(|| opaque.clone())?;
            }
        }
    }
    if mode == Mode::Nftables {
        let mut kept = nft;
        kept.tables.retain(|table| table.name != "kube-proxy");
        namespace.nft = format!("{kept}{}", generated.nft);
    }
    if mode == Mode::Ipvs {
        namespace.ipvs = generated.ipvs;
        for link in generated.links {
            match namespace
                .links
                .iter_mut()
                .find(|known| known.name == link.name)
            {
                Some(known) => known.addresses = link.addresses,
                None => namespace.links.push(link),
            }
        }
    }
    namespace.ipset = merge_sets(&namespace.ipset, &generated.ipset);
    namespace.accounting.extend(generated.accounting);
    namespace.accounting.sort();
    namespace.accounting.dedup();
    Ok(())
}

/// Replaces existing sets by generated sets of the same name; other sets stay.
fn merge_sets(existing: &str, generated: &str) -> String {
    let name = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    let names: BTreeSet<String> = generated.lines().filter_map(name).collect();
    let kept = existing
        .lines()
        .filter(|line| name(line).is_none_or(|name| !names.contains(&name)));
    let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
    kept + generated
}

/// Replaces kube-proxy's chains in the existing rules. `None` if either set of rules cannot be
/// interpreted.
fn merge_rules(existing: &str, generated: &str) -> Option<String> {
    let (there, fresh) = (parse(existing), parse(generated));
    let mut names: Vec<&str> = there.keys().copied().collect();
    names.extend(fresh.keys().filter(|name| !there.contains_key(*name)));
    let empty = Table::default();
    let mut text = String::new();
    for name in names {
        let old = there.get(name).unwrap_or(&empty);
        let new = fresh.get(name).unwrap_or(&empty);
        if old.opaque || new.opaque {
            return None;
        }
        write_merged_table(&mut text, name, old, new);
    }
    Some(text)
}

fn write_merged_table(text: &mut String, name: &str, old: &Table<'_>, new: &Table<'_>) {
    let mut chains: IndexMap<&str, Vec<String>> = IndexMap::new();
    for (chain, rules) in &old.chains {
        let is_service_chain = SERVICE_CHAIN_PREFIXES
            .iter()
            .any(|begins| chain.starts_with(begins));
        if !is_service_chain {
            chains.insert(chain, rules.clone());
        }
    }
    for (chain, rules) in &new.chains {
        if is_built_in(chain) {
            let merged_rules = chains.entry(chain).or_default();
            let jumps_to =
                |rule: &String, to: &str| rule.split(' ').rev().take(1).any(|last| last == to);
            let missing: Vec<&String> = rules
                .iter()
                .filter(|rule| {
                    let to = rule.rsplit(' ').next().unwrap_or_default();
                    !merged_rules.iter().any(|known| jumps_to(known, to))
                })
                .collect();
            // kube-proxy inserts its jumps first.
            let missing: Vec<String> = missing.into_iter().cloned().collect();
            merged_rules.splice(0..0, missing);
        } else {
            chains.insert(chain, rules.clone());
        }
    }
    // Jumps to removed chains are removed too.
    let chain_names: BTreeSet<String> = chains.keys().map(|chain| (*chain).to_owned()).collect();
    for rules in chains.values_mut() {
        rules.retain(|rule| {
            let to = rule.rsplit(' ').next().unwrap_or_default();
            chain_names.contains(to)
                || !SERVICE_CHAIN_PREFIXES
                    .iter()
                    .any(|begins| to.starts_with(begins))
        });
    }
    let _ = writeln!(text, "*{name}");
    for chain in chains.keys() {
        let policy = old.policies.get(chain).or_else(|| new.policies.get(chain));
        match policy {
            Some(policy) => {
                let _ = writeln!(text, ":{chain} {policy} [0:0]");
            }
            None if !is_built_in(chain) => {
                let _ = writeln!(text, ":{chain} - [0:0]");
            }
            None => {}
        }
    }
    for (chain, rules) in &chains {
        for rule in rules {
            let _ = writeln!(text, "-A {chain} {rule}");
        }
    }
    let _ = writeln!(text, "COMMIT");
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXISTING: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING DROP [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-OLD - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n:MINE - [0:0]\n-A PREROUTING -j MINE\n-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n-A KUBE-SERVICES -d 10.96.0.9/32 -j KUBE-SVC-OLD\n-A MINE -j RETURN\n-A MINE -j KUBE-SVC-OLD\nCOMMIT\n*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j NOTRACK\nCOMMIT\n";
    const GENERATED: &str = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-SVC-NEW - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-NEW\nCOMMIT\n";

    #[test]
    fn merge_rules_replaces_only_kube_proxy_chains() {
        insta::assert_snapshot!(merge_rules(EXISTING, GENERATED).expect("the rules can be parsed"));
    }

    #[test]
    fn merge_rules_twice_gives_same_rules() {
        let once = merge_rules(EXISTING, GENERATED).expect("the rules can be parsed");
        assert_eq!(merge_rules(&once, GENERATED).as_ref(), Some(&once));
    }

    #[test]
    fn merge_sets_replaces_sets_of_same_name() {
        let existing =
            "create KUBE-A hash:ip\nadd KUBE-A 10.0.0.1\ncreate MINE hash:ip\nadd MINE 10.0.0.2\n";
        let generated = "create KUBE-A hash:ip\nadd KUBE-A 10.0.0.3\n";
        assert_eq!(
            merge_sets(existing, generated),
            "create MINE hash:ip\nadd MINE 10.0.0.2\ncreate KUBE-A hash:ip\nadd KUBE-A 10.0.0.3\n"
        );
    }
}
