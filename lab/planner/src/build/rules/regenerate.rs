//! Regenerates the rules of a dumped node as after a restart of kube-proxy. kube-proxy rewrites its
//! own chains, sets and virtual servers and leaves all others unchanged.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use thiserror::Error;

use crate::build::rules::kube_proxy_only::{declare_kubelet_chain, kube_proxy_plan};
use crate::cluster::{Cluster, Node};
use svclab_model::plan::{Backend, Iptables, Namespace, Plan};
use svclab_rules::flannel::FlannelError;
use svclab_rules::kube_proxy::ipvs::DUMMY;
use svclab_rules::kube_proxy::{KubeProxyError, Mode, Objects};
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::iptables::chains::{Chains, TableChains};
use svclab_ruleset::iptables::script::{IptablesScript, Table};
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

/// Reason why the rules of a component cannot be generated again.
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
    /// flanneld does not start with these flags.
    #[error(transparent)]
    Flannel(#[from] FlannelError),
    /// The existing rules cannot be parsed.
    #[error("cannot parse the rules or sets of {0}")]
    Unreadable(String),
}

/// Returns a node, and its namespace in a plan.
pub(super) fn find_node<'c, 'p>(
    plan: &'p mut Plan,
    cluster: &'c Cluster,
    name: &str,
) -> Result<(&'c Node, &'p mut Namespace), RestartError> {
    let node = cluster.nodes.iter().find(|node| node.name == name);
    let namespace = plan.namespaces.iter_mut().find(|own| own.name == name);
    let found = node.zip(namespace);
    found.ok_or_else(|| RestartError::NoNode(name.to_owned()))
}

/// Regenerates the kube-proxy rules of a node from the cluster. For a real kube-proxy, these are the
/// rules that svclab generates for its version.
///
/// # Errors
///
/// See [`RestartError`].
pub fn regenerate_kube_proxy_rules(
    plan: &mut Plan,
    cluster: &Cluster,
    name: &str,
) -> Result<(), RestartError> {
    let (node, namespace) = find_node(plan, cluster, name)?;
    let stated = node.kube_proxy.clone();
    let mut proxy = stated.ok_or_else(|| RestartError::NoProxy(name.to_owned()))?;
    proxy.binary = None;
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
    let mut generated = kube_proxy_plan(&proxy, &objects, backend)?;
    declare_kubelet_chain(&mut generated);
    let Some(generated) = generated.namespaces.into_iter().next() else {
        return Err(RestartError::NoNode(name.to_owned()));
    };
    apply_generated(namespace, generated, proxy.mode, backend)
}

/// Returns the iptables backend that contains the rules of kube-proxy.
fn kube_proxy_backend(namespace: &Namespace) -> Option<&Iptables> {
    let mut backends = namespace.iptables_rules();
    let first = backends.clone().next();
    backends
        .find(|rules| rules.v4.text().contains("KUBE-") || rules.v6.text().contains("KUBE-"))
        .or(first)
}

fn apply_generated(
    namespace: &mut Namespace,
    generated: Namespace,
    mode: Mode,
    backend: Backend,
) -> Result<(), RestartError> {
    let unreadable = RestartError::Unreadable(namespace.name.clone());
    if let Some(written) = generated.iptables {
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
                let merged = merge_rules(existing, written);
                *existing = merged.ok_or_else(|| unreadable.clone())?.into();
            }
        }
    }
    if mode == Mode::Nftables {
        let generated = generated.nft.state().cloned().unwrap_or_default();
        let merge = |ruleset: &mut Ruleset| {
            ruleset.tables.retain(|table| table.name != "kube-proxy");
            ruleset.tables.extend(generated.tables);
        };
        let merged = namespace.nft.edit(merge);
        merged.map_err(|_| unreadable.clone())?;
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
    let generated_sets = generated.ipset.state().cloned().unwrap_or_default();
    let merge = |sets: &mut Sets| merge_sets(sets, generated_sets);
    namespace.ipset.edit(merge).map_err(|_| unreadable)?;
    namespace.accounting.extend(generated.accounting);
    namespace.accounting.sort();
    namespace.accounting.dedup();
    Ok(())
}

/// Replaces existing sets by generated sets of the same name; other sets stay.
fn merge_sets(existing: &mut Sets, generated: Sets) {
    existing.retain(|name, _| !generated.contains_key(name));
    existing.extend(generated);
}

/// Replaces kube-proxy's chains in the existing rules. `None` if either set of rules cannot be
/// interpreted.
fn merge_rules(
    existing: &Input<IptablesScript>,
    generated: &Input<IptablesScript>,
) -> Option<IptablesScript> {
    let mut merged = Chains::from_script(existing.state().ok()?).ok()?;
    for (table, written) in Chains::from_script(generated.state().ok()?).ok()?.tables {
        merge_table(table, merged.tables.entry(table).or_default(), written);
    }
    Some(IptablesScript::from(&merged))
}

fn merge_table(table: Table, merged: &mut TableChains, written: TableChains) {
    let is_service_chain = |chain: &str| {
        let mut prefixes = SERVICE_CHAIN_PREFIXES.iter();
        prefixes.any(|prefix| chain.starts_with(prefix))
    };
    let chains = &mut merged.chains;
    chains.retain(|chain, _| !is_service_chain(chain));
    for (chain, rules) in written.chains {
        if !table.is_built_in(&chain) {
            chains.insert(chain, rules);
            continue;
        }
        let existing = chains.entry(chain).or_default();
        let jumps_to = |to: &str| existing.iter().any(|known| jump_target(known) == to);
        let missing = rules
            .into_iter()
            .filter(|rule| !jumps_to(jump_target(rule)));
        // kube-proxy inserts its jumps first.
        let missing: Vec<String> = missing.collect();
        existing.splice(0..0, missing);
    }
    // Jumps to removed chains are removed too.
    let names: BTreeSet<String> = chains.keys().cloned().collect();
    for rules in chains.values_mut() {
        rules.retain(|rule| {
            let to = jump_target(rule);
            names.contains(to) || !is_service_chain(to)
        });
    }
    for (chain, policy) in written.policies {
        merged.policies.entry(chain).or_insert(policy);
    }
}

/// Returns the last word of a rule, which is its target for the jumps of kube-proxy.
fn jump_target(rule: &str) -> &str {
    rule.rsplit(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::input::ProgramInput as _;

    fn merge_texts(existing: &str, generated: &str) -> String {
        let merged = merge_rules(&Input::from_text(existing), &Input::from_text(generated));
        merged.expect("the rules can be parsed").to_string()
    }

    const EXISTING: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING DROP [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-OLD - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n:MINE - [0:0]\n-A PREROUTING -j MINE\n-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n-A KUBE-SERVICES -d 10.96.0.9/32 -j KUBE-SVC-OLD\n-A MINE -j RETURN\n-A MINE -j KUBE-SVC-OLD\nCOMMIT\n*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j NOTRACK\nCOMMIT\n";
    const GENERATED: &str = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-SVC-NEW - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-NEW\nCOMMIT\n";

    #[test]
    fn merge_rules_replaces_only_kube_proxy_chains() {
        insta::assert_snapshot!(merge_texts(EXISTING, GENERATED));
    }

    #[test]
    fn merge_rules_twice_gives_same_rules() {
        let once = merge_texts(EXISTING, GENERATED);
        assert_eq!(merge_texts(&once, GENERATED), once);
    }

    #[test]
    fn merge_sets_replaces_sets_of_same_name() {
        let existing =
            "create KUBE-A hash:ip\nadd KUBE-A 10.0.0.1\ncreate MINE hash:ip\nadd MINE 10.0.0.2\n";
        let generated = "create KUBE-A hash:ip\nadd KUBE-A 10.0.0.3\n";
        let mut sets = Sets::parse(existing).expect("valid sets");
        merge_sets(&mut sets, Sets::parse(generated).expect("valid sets"));
        assert_eq!(
            sets.render(),
            "create MINE hash:ip\ncreate KUBE-A hash:ip\nadd MINE 10.0.0.2\nadd KUBE-A 10.0.0.3\n"
        );
    }
}
