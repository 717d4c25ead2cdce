//! Writes a lab from the objects of a cluster, as `kubectl get -o yaml` prints them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnetwork::{IpNetwork, Ipv4Network};
use k8s_openapi::api::core::v1 as core;

use super::flow_style::scalar;
use super::objects::{imported_pods, render_objects};
use super::reachable::{OUTSIDE, ReachableThing, Things, find_things};
use crate::objects::{Objects, internal_addresses};
use svclab_model::plan::Mode;
use svclab_rules::kube_proxy::Version;

/// Networks for documentation (RFC 5737), one of which has the host outside the cluster.
const OUTSIDE_ADDRESSES: [[u8; 4]; 3] = [[203, 0, 113, 9], [198, 51, 100, 9], [192, 0, 2, 9]];

/// Options for importing objects.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Name of the lab.
    pub name: String,
    /// Mode of kube-proxy, which the objects do not define.
    pub mode: Mode,
}

/// Lab that was written for a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Text of the lab.
    pub text: String,
    /// Statements about the objects that are not used or have no probe.
    pub notes: Vec<String>,
}

/// Reason why no lab can be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Without nodes, no pod has a place.
    #[error("there is no Node among the objects")]
    NoNodes,
    /// Without a reachable thing, the lab has no probe.
    #[error("the objects have nothing to connect to: no service has a ready endpoint")]
    NothingReachable,
}

/// Writes a lab with the nodes, pods and services of a cluster, and a probe for each port of a
/// service that is reachable: by its cluster IP, its node port, and its load balancer.
///
/// # Errors
///
/// When the objects have no node, or nothing is reachable.
pub fn import(objects: &Objects, options: &ImportOptions) -> Result<Draft, ImportError> {
    if objects.nodes.is_empty() {
        return Err(ImportError::NoNodes);
    }
    let mut notes = Vec::new();
    for (kind, count) in &objects.ignored {
        notes.push(format!("not used: {count} of kind {kind}"));
    }
    let pods = imported_pods(objects, &mut notes);
    let Things {
        reachable: things,
        balanced,
        notes: more,
    } = find_things(objects, &pods);
    notes.extend(more);
    if things.is_empty() {
        return Err(ImportError::NothingReachable);
    }
    let mut text = head(options, &things, &balanced, objects);
    render_objects(&mut text, objects, &pods);
    Ok(Draft { text, notes })
}

/// Writes the lab document.
fn head(
    options: &ImportOptions,
    things: &[ReachableThing],
    balanced: &BTreeMap<String, (String, bool)>,
    objects: &Objects,
) -> String {
    let ImportOptions { name, mode } = options;
    let nodes: Vec<&core::Node> = objects.nodes.iter().map(|node| &*node.value).collect();
    let mut text = format!(
        "# Written from the objects of a cluster. kubectl prints neither the mode of kube-proxy nor its
# flags; see `kubectl -n kube-system get configmap kube-proxy -o yaml`, and `svclab schema`.
apiVersion: svclab/v1
kind: Lab
metadata: {{name: {}}}
spec:
  about: Every service of a cluster is reachable.
  kubeProxy: {{version: {}, mode: {mode}}}
",
        scalar(name),
        version(&nodes)
    );
    text += &fabric(&nodes);
    if things.iter().any(|thing| thing.from == OUTSIDE) {
        let _ = write!(
            text,
            "  hosts:\n    {OUTSIDE}: {{address: {}/24}}\n",
            outside_address(objects)
        );
    }
    if !balanced.is_empty() {
        text +=
            "  # Balancers in front of the nodes, with the addresses in the services' status.\n";
        text += "  loadBalancers:\n";
    }
    for (balancer, (service, has_node_ports)) in balanced {
        let target = if *has_node_ports {
            ""
        } else {
            ", target: pods"
        };
        let _ = writeln!(text, "    {balancer}: {{service: {service}{target}}}");
    }
    text += "  probes:\n";
    for thing in things {
        let _ = writeln!(text, "    {}", thing.render_probe());
    }
    text += "  expect:\n  - when: {}\n";
    for thing in things {
        let _ = writeln!(text, "    {}: {{{}: 1}}", thing.name, thing.verdict());
    }
    text
}

/// Returns the version of the first node that states a supported one, otherwise the newest.
fn version(nodes: &[&core::Node]) -> Version {
    let stated = nodes.iter().filter_map(|node| {
        let info = node.status.as_ref()?.node_info.as_ref()?;
        // Distributions append a suffix, such as `v1.30.4+k3s1`.
        let version = info.kubelet_version.split(['+', '-']).next()?;
        version.parse().ok()
    });
    stated.into_iter().next().unwrap_or(Version::NEWEST)
}

/// Writes the network between the nodes: switched if two of them share a subnet of 24 bits, with
/// the subnet if they are not all in one such subnet.
fn fabric(nodes: &[&core::Node]) -> String {
    let addresses: Vec<_> = nodes
        .iter()
        .flat_map(|node| internal_addresses(node))
        .filter_map(|address| match address.parse().ok()? {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .collect();
    let network = |prefix: u8| {
        let first = Ipv4Network::new(*addresses.first()?, prefix).ok()?;
        Ipv4Network::new(first.network(), prefix).ok()
    };
    let contains_all = |prefix: &u8| {
        network(*prefix)
            .is_some_and(|network| addresses.iter().all(|address| network.contains(*address)))
    };
    let mut subnets: Vec<[u8; 3]> = addresses
        .iter()
        .map(|address| {
            let [a, b, c, _] = address.octets();
            [a, b, c]
        })
        .collect();
    subnets.sort_unstable();
    let count = subnets.len();
    subnets.dedup();
    let why = "# Guessed from the nodes' addresses.";
    match (subnets.len(), (8..=24).rev().find(contains_all)) {
        (0 | 1, _) => format!("  {why}\n  fabric: {{type: switched}}\n"),
        (different, _) if different == count => format!("  {why}\n  fabric: {{type: routed}}\n"),
        (_, Some(prefix)) => {
            let subnet = network(prefix).map(|network| format!(", subnet: {network}"));
            let subnet = subnet.unwrap_or_default();
            format!("  {why}\n  fabric: {{type: switched{subnet}}}\n")
        }
        (_, None) => format!("  {why}\n  fabric: {{type: switched}}\n"),
    }
}

/// Returns the address of the host outside the cluster: one in whose network nothing else is.
fn outside_address(objects: &Objects) -> IpAddr {
    let nodes = objects.nodes.iter();
    let nodes = nodes.flat_map(|node| internal_addresses(&node.value));
    let pods = objects.pods.iter().filter_map(|pod| {
        let status = pod.value.status.as_ref()?;
        status.pod_ip.clone()
    });
    let services = objects.services.iter().flat_map(|service| {
        let service = svclab_rules::objects::Service::from(&*service.value);
        let addresses = [&service.cluster_ips[..], &service.external_ips[..]].concat();
        let addresses = addresses.into_iter().chain(service.ingress_ips());
        addresses.map(|address| address.to_string())
    });
    let taken: Vec<IpAddr> = nodes
        .chain(pods)
        .chain(services)
        .filter_map(|address| address.parse().ok())
        .collect();
    let candidates = OUTSIDE_ADDRESSES.map(IpAddr::from);
    let is_free = |candidate: &IpAddr| {
        let network = IpNetwork::new(*candidate, 24);
        network.is_ok_and(|network| !taken.iter().any(|address| network.contains(*address)))
    };
    let free = candidates.into_iter().find(is_free);
    free.unwrap_or(candidates[0])
}
