//! Builds the rules of every namespace from the components that run there, in the order in which
//! the components start.

pub(crate) mod kube_proxy_only;
mod node;
pub(crate) mod regenerate;
pub(crate) mod restart_flannel;

use std::collections::BTreeSet;
use std::iter;
use std::net::IpAddr;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use ipnetwork::IpNetwork;

use crate::cluster::{Cluster, FABRIC, INTERNET, Problem};
use svclab_model::plan::{Iptables, Link, LinkKind, Mac, Namespace, PortSettings};
use svclab_rules::kube_proxy::{self, Family, KubeProxy, Mode, Objects};
use svclab_rules::objects;
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::IpsetScript;
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::nft::Ruleset;
use svclab_scenario::lab::{FabricKind, ForeignSources};

use crate::build::balancer::BalancerObjects;
use crate::build::topology::interface_name;
use node::NodeRulesBuilder;

/// Prefix of the chains in the underlay that check the source addresses of a node's packets.
pub const SOURCE_CHECK: &str = "SOURCE-";

/// Number of nodes, multiplied by services, for which a thread is worth its start.
const MIN_WORK: usize = 2000;

/// Builds the rules of all nodes and of the fabric, those of several namespaces in parallel.
pub fn build(
    namespaces: &mut [Namespace],
    cluster: &Cluster,
    balancer_objects: &BalancerObjects,
    problems: &mut Vec<Problem>,
) {
    let nodes = cluster.nodes.iter();
    let builder = RulesBuilder {
        cluster,
        balancer_objects,
        core_nodes: nodes.map(|node| node.object.clone()).collect(),
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let workers = workers.min(cluster.nodes.len() * cluster.services.len() / MIN_WORK);
    let queue = Mutex::new(namespaces.iter_mut().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let built = iter::from_fn(next);
        let built = built.map(|(index, namespace)| (index, builder.build_namespace(namespace)));
        built.collect::<Vec<_>>()
    };
    let mut found = thread::scope(|scope| {
        // This thread builds, too. It builds all if no thread can be started.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, work);
        let threads: Vec<_> = (1..workers).flat_map(spawn).collect();
        let mut built = work();
        for thread in threads {
            built.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        built
    });
    found.sort_by_key(|(index, _)| *index);
    problems.extend(found.into_iter().flat_map(|(_, problems)| problems));
}

/// Builder of the rules of the namespaces of a cluster.
struct RulesBuilder<'a> {
    cluster: &'a Cluster,
    balancer_objects: &'a BalancerObjects,
    core_nodes: Vec<objects::Node>,
}

impl RulesBuilder<'_> {
    /// Builds the rules of a namespace. Returns the problems.
    fn build_namespace(&self, namespace: &mut Namespace) -> Vec<Problem> {
        let Self {
            cluster,
            balancer_objects,
            core_nodes,
        } = self;
        let mut problems = Vec::new();
        if [FABRIC, INTERNET].contains(&namespace.name.as_str()) {
            let (mut v4, mut v6) = if namespace.name == FABRIC {
                source_check_rules(cluster)
            } else {
                Default::default()
            };
            if let Some(namespace_balancers) =
                balancer_objects.namespaces.get(namespace.name.as_str())
            {
                v4.append(namespace_balancers.v4.clone());
                v6.append(namespace_balancers.v6.clone());
            }
            namespace.iptables = to_iptables(cluster, v4, v6);
        } else if let Some(node) = cluster
            .nodes
            .iter()
            .find(|node| node.name == namespace.name)
        {
            let interfaces: Vec<IpAddr> = namespace
                .links
                .iter()
                .flat_map(|link| link.addresses.iter().map(IpNetwork::ip))
                .chain([IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)])
                .chain(
                    cluster
                        .has_ipv6()
                        .then_some(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)),
                )
                .collect();
            let objects = Objects {
                node: &node.name,
                nodes: core_nodes,
                services: &cluster.services,
                endpoint_slices: &cluster.slices,
                service_cidrs: &cluster.service_cidrs,
                interface_addresses: &interfaces,
            };
            let mut builder = NodeRulesBuilder {
                cluster,
                node,
                objects,
                problems: &mut problems,
                links: namespace
                    .links
                    .iter()
                    .map(|link| link.name.clone())
                    .collect(),
                sets: IpsetScript::new(),
                servers: Vec::new(),
                bound: Vec::new(),
                accounting: BTreeSet::new(),
                nft: Ruleset::default(),
            };
            let mut v4 = builder.build_v4();
            let mut v6 = if cluster.has_ipv6() {
                builder.build_kube_proxy(Family::V6)
            } else {
                IptablesScript::new()
            };
            namespace.ipset = builder.build_sets().into();
            namespace.accounting = builder.accounting.into_iter().map(str::to_owned).collect();
            namespace.ipvs.append(&mut builder.servers);
            namespace.nft = builder.nft.into();
            if let Some(proxy) = node
                .generated_proxy()
                .filter(|proxy| proxy.mode == Mode::Ipvs)
            {
                namespace
                    .links
                    .push(kube_proxy_interface(&node.name, &builder.bound));
                namespace.ipvs_timeouts = kube_proxy::ipvs::timeouts(proxy);
            }
            namespace.iptables = if node.kube_proxy.as_ref().is_some_and(has_iptables_writer) {
                // The plan has the tables that the kube-proxy will write.
                for table in [Table::Nat, Table::Filter] {
                    v4.table_mut(table);
                    if cluster.has_ipv6() {
                        v6.table_mut(table);
                    }
                }
                Some(Iptables {
                    backend: cluster.backend,
                    v4: v4.into(),
                    v6: v6.into(),
                })
            } else {
                to_iptables(cluster, v4, v6)
            };
        }
        problems
    }
}

/// Returns the dummy interface of kube-proxy. The interface stays down; its addresses still count
/// as the node's own.
pub(crate) fn kube_proxy_interface(node: &str, bound: &[IpAddr]) -> Link {
    Link {
        name: kube_proxy::ipvs::DUMMY.to_owned(),
        kind: LinkKind::Dummy,
        mac: Mac::from_names(node, kube_proxy::ipvs::DUMMY),
        addresses: bound
            .iter()
            .map(|address| IpNetwork::from(*address))
            .collect(),
        bridge: None,
        port: PortSettings::default(),
        down: true,
        mtu: None,
    }
}

/// Whether a real kube-proxy will write iptables rules.
fn has_iptables_writer(proxy: &KubeProxy) -> bool {
    proxy.binary.is_some() && proxy.mode != Mode::Nftables
}

fn to_iptables(cluster: &Cluster, v4: IptablesScript, v6: IptablesScript) -> Option<Iptables> {
    let input = |script: IptablesScript| {
        if script.is_empty() {
            Input::default()
        } else {
            script.into()
        }
    };
    (!v4.is_empty() || !v6.is_empty()).then(|| Iptables {
        backend: cluster.backend,
        v4: input(v4),
        v6: input(v6),
    })
}

/// Builds the rules by which the underlay drops packets with a foreign source address, at the port
/// of each node. Allowed sources are the node's own addresses, and its pods' networks if packets of
/// pods are not encapsulated.
fn source_check_rules(cluster: &Cluster) -> (IptablesScript, IptablesScript) {
    let (mut v4, mut v6) = (IptablesScript::new(), IptablesScript::new());
    if cluster.fabric.foreign_sources == ForeignSources::Pass {
        return (v4, v6);
    }
    for (index, node) in cluster.nodes.iter().enumerate() {
        let port = interface_name(&node.name);
        let chain = format!("{SOURCE_CHECK}{port}");
        let pod_networks = if cluster.flannel.is_some() {
            &[][..]
        } else {
            &node.pod_cidrs[..]
        };
        let allowed: Vec<IpNetwork> = node
            .addresses
            .iter()
            .map(|address| IpNetwork::from(address.ip()))
            .chain(pod_networks.iter().copied())
            .chain(cluster.pod_addresses_outside(index).map(IpNetwork::from))
            .collect();
        let entry = match cluster.fabric.kind {
            FabricKind::Routed => format!("-i {port} -j {chain}"),
            FabricKind::Switched => format!("-m physdev --physdev-in {port} -j {chain}"),
        };
        for (script, is_v4) in [(&mut v4, true), (&mut v6, false)] {
            let family_sources: Vec<&IpNetwork> = allowed
                .iter()
                .filter(|source| source.is_ipv4() == is_v4)
                .collect();
            if family_sources.is_empty() {
                continue;
            }
            let filter = script.table_mut(Table::Filter);
            filter.declare_chain(&chain);
            for source in family_sources {
                filter.append(&chain, format!("-s {source} -j RETURN"));
            }
            filter.append(
                &chain,
                format!("-m comment --comment \"not a source of {port} (foreignSources)\" -j DROP"),
            );
            filter.append("FORWARD", &entry);
        }
    }
    (v4, v6)
}
