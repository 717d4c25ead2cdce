//! Regenerates the rules of a dumped node as after a restart of kube-proxy. kube-proxy rewrites its
//! own chains, sets and virtual servers and leaves all others unchanged.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use thiserror::Error;

use super::alone::{kube_proxy_alone, with_the_kubelets_chain};
use crate::cluster::Cluster;
use crate::delta::rules::{Table, is_built_in, read};
use svclab_model::plan::{Backend, Iptables, Namespace, Plan};
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_rules::kube_proxy::{KubeProxyError, Mode, Objects};
use svclab_ruleset::nft::Ruleset;

/// Prefixes of the chains that kube-proxy creates for a service or endpoint. kube-proxy deletes
/// such a chain without a service or endpoint (Kubernetes v1.30, `pkg/proxy/iptables/proxier.go`,
/// `isServiceChainName`).
const OF_SERVICES: [&str; 6] = [
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
        "the lab does not say which kube-proxy {0} has; say it beside `nodes`: \
         `kubeProxy: {{version: v1.30, mode: iptables}}`"
    )]
    NoProxy(String),
    /// kube-proxy does not generate rules for these objects.
    #[error(transparent)]
    Proxy(#[from] KubeProxyError),
    /// The existing rules cannot be parsed.
    #[error("what {0} holds cannot be read")]
    Unreadable(String),
}

/// Regenerates the kube-proxy rules of a node from the cluster.
///
/// # Errors
///
/// See [`RestartError`].
pub fn restart(plan: &mut Plan, cluster: &Cluster, name: &str) -> Result<(), RestartError> {
    let no_node = || RestartError::NoNode(name.to_owned());
    let node = cluster.nodes.iter().find(|node| node.name == name);
    let node = node.ok_or_else(no_node)?;
    let own = plan.namespaces.iter_mut().find(|own| own.name == name);
    let own = own.ok_or_else(no_node)?;
    let proxy = node
        .generated_proxy()
        .ok_or_else(|| RestartError::NoProxy(name.to_owned()))?;
    let nodes: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| node.object.clone())
        .collect();
    // kube-proxy does not hold node ports on the addresses that it binds itself.
    let links = own.links.iter().filter(|link| link.name != DUMMY);
    let addresses = links.flat_map(|link| &link.addresses);
    let loopback = [
        IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    ];
    let loopback = loopback
        .into_iter()
        .take(1 + usize::from(cluster.speaks_v6()));
    let addresses: Vec<IpAddr> = addresses.map(IpNetwork::ip).chain(loopback).collect();
    let objects = Objects {
        node: name,
        nodes: &nodes,
        services: &cluster.services,
        endpoint_slices: &cluster.slices,
        service_cidrs: &cluster.service_cidrs,
        interface_addresses: &addresses,
    };
    let backend = holding(own).map_or(cluster.backend, |rules| rules.backend);
    let mut written = kube_proxy_alone(proxy, &objects, backend)?;
    with_the_kubelets_chain(&mut written);
    let Some(fresh) = written.namespaces.into_iter().next() else {
        return Err(no_node());
    };
    put(own, fresh, proxy.mode, backend)
}

/// Returns the iptables backend that contains the rules of kube-proxy.
fn holding(own: &Namespace) -> Option<&Iptables> {
    let mut both = own.iptables.iter().chain(&own.beside);
    let first = both.clone().next();
    both.find(|rules| rules.v4.contains("KUBE-") || rules.v6.contains("KUBE-"))
        .or(first)
}

fn put(
    own: &mut Namespace,
    fresh: Namespace,
    mode: Mode,
    backend: Backend,
) -> Result<(), RestartError> {
    let unreadable = || RestartError::Unreadable(own.name.clone());
    let nft: Ruleset = svclab_ruleset::nft::parse(&own.nft).map_err(|_| unreadable())?;
    if let Some(written) = fresh.iptables {
        let opaque = unreadable();
        let mut both = own.iptables.iter_mut().chain(&mut own.beside);
        let rules = match both.find(|rules| rules.backend == backend) {
            Some(rules) => rules,
            None => own.iptables.insert(Iptables {
                backend,
                ..Iptables::default()
            }),
        };
        for (there, written) in [(&mut rules.v4, &written.v4), (&mut rules.v6, &written.v6)] {
            if !written.is_empty() {
                *there = with(there, written).ok_or_else(|| opaque.clone())?;
            }
        }
    }
    if mode == Mode::Nftables {
        let mut kept = nft;
        kept.tables.retain(|table| table.name != "kube-proxy");
        own.nft = format!("{kept}{}", fresh.nft);
    }
    if mode == Mode::Ipvs {
        own.ipvs = fresh.ipvs;
        for link in fresh.links {
            match own.links.iter_mut().find(|known| known.name == link.name) {
                Some(known) => known.addresses = link.addresses,
                None => own.links.push(link),
            }
        }
    }
    own.ipset = sets(&own.ipset, &fresh.ipset);
    own.accounting.extend(fresh.accounting);
    own.accounting.sort();
    own.accounting.dedup();
    Ok(())
}

/// Replaces existing sets by generated sets of the same name; other sets stay.
fn sets(there: &str, fresh: &str) -> String {
    let name = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    let names: BTreeSet<String> = fresh.lines().filter_map(name).collect();
    let kept = there
        .lines()
        .filter(|line| name(line).is_none_or(|name| !names.contains(&name)));
    let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
    kept + fresh
}

/// Replaces kube-proxy's chains in the existing rules. `None` if either set of rules cannot be
/// interpreted.
fn with(there: &str, fresh: &str) -> Option<String> {
    let (there, fresh) = (read(there), read(fresh));
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
        table(&mut text, name, old, new);
    }
    Some(text)
}

fn table(text: &mut String, name: &str, old: &Table<'_>, new: &Table<'_>) {
    let mut chains: IndexMap<&str, Vec<String>> = IndexMap::new();
    for (chain, rules) in &old.chains {
        let stale = OF_SERVICES.iter().any(|begins| chain.starts_with(begins));
        if !stale {
            chains.insert(chain, rules.clone());
        }
    }
    for (chain, rules) in &new.chains {
        if is_built_in(chain) {
            let own = chains.entry(chain).or_default();
            let leads =
                |rule: &String, to: &str| rule.split(' ').rev().take(1).any(|last| last == to);
            let missing: Vec<&String> = rules
                .iter()
                .filter(|rule| {
                    let to = rule.rsplit(' ').next().unwrap_or_default();
                    !own.iter().any(|known| leads(known, to))
                })
                .collect();
            // kube-proxy inserts its jumps first.
            let missing: Vec<String> = missing.into_iter().cloned().collect();
            own.splice(0..0, missing);
        } else {
            chains.insert(chain, rules.clone());
        }
    }
    // Jumps to removed chains are removed too.
    let known: BTreeSet<String> = chains.keys().map(|chain| (*chain).to_owned()).collect();
    for rules in chains.values_mut() {
        rules.retain(|rule| {
            let to = rule.rsplit(' ').next().unwrap_or_default();
            known.contains(to) || !OF_SERVICES.iter().any(|begins| to.starts_with(begins))
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

    const THERE: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING DROP [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-OLD - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n:MINE - [0:0]\n-A PREROUTING -j MINE\n-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n-A KUBE-SERVICES -d 10.96.0.9/32 -j KUBE-SVC-OLD\n-A MINE -j RETURN\n-A MINE -j KUBE-SVC-OLD\nCOMMIT\n*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j NOTRACK\nCOMMIT\n";
    const FRESH: &str = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-SVC-NEW - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-NEW\nCOMMIT\n";

    #[test]
    fn kube_proxy_s_chains_are_written_again_and_others_stay() {
        insta::assert_snapshot!(with(THERE, FRESH).expect("rules that can be followed"));
    }

    #[test]
    fn what_was_written_again_is_as_it_was() {
        let once = with(THERE, FRESH).expect("rules that can be followed");
        assert_eq!(with(&once, FRESH).as_ref(), Some(&once));
    }

    #[test]
    fn sets_of_its_names_are_its_own() {
        let there =
            "create KUBE-A hash:ip\nadd KUBE-A 10.0.0.1\ncreate MINE hash:ip\nadd MINE 10.0.0.2\n";
        let fresh = "create KUBE-A hash:ip\nadd KUBE-A 10.0.0.3\n";
        assert_eq!(
            sets(there, fresh),
            "create MINE hash:ip\nadd MINE 10.0.0.2\ncreate KUBE-A hash:ip\nadd KUBE-A 10.0.0.3\n"
        );
    }
}
