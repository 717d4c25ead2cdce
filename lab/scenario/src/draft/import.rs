//! Writes a lab from the objects of a cluster, as `kubectl get -o yaml` prints them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnetwork::{IpNetwork, Ipv4Network};
use k8s_openapi::api::core::v1 as core;

use super::flow_style::scalar;
use super::kube_proxy::{ImportedProxy, imported_proxy};
use super::objects::{imported_pods, render_objects};
use super::reachable::{Things, find_things, outside};
use crate::lab::BalancerTarget;
use crate::objects::{Objects, internal_addresses};
use svclab_model::plan::Mode;
use svclab_ruleset::Family;

/// Addresses in networks for documentation (RFC 5737 and RFC 3849), for the hosts outside the
/// cluster.
const OUTSIDE_IPV4: [[u8; 4]; 3] = [[203, 0, 113, 9], [198, 51, 100, 9], [192, 0, 2, 9]];
const OUTSIDE_IPV6: [[u16; 8]; 3] = [
    [0x2001, 0xdb8, 9, 0, 0, 0, 0, 9],
    [0x2001, 0xdb8, 10, 0, 0, 0, 0, 9],
    [0x2001, 0xdb8, 11, 0, 0, 0, 0, 9],
];

/// Options for importing objects.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Name of the lab.
    pub name: String,
    /// Mode of kube-proxy; that of its configuration among the objects if absent, or `iptables`.
    pub mode: Option<Mode>,
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
    #[error("there is no Node with Linux among the objects")]
    NoNodes,
    /// Without a reachable thing, the lab has no probe.
    #[error("the objects have nothing to connect to{}", list(notes))]
    NothingReachable {
        /// Statements about the objects that are not used or have no probe.
        notes: Vec<String>,
    },
}

fn list(notes: &[String]) -> String {
    if notes.is_empty() {
        return ": no service has an address".to_owned();
    }
    let lines: Vec<String> = notes.iter().map(|note| format!("\n  - {note}")).collect();
    format!(":{}", lines.concat())
}

/// Writes a lab with the nodes, pods and services of a cluster, and a probe for each port of a
/// service that is reachable: by its cluster IPs, its node port, its external IPs, and its load
/// balancer.
///
/// # Errors
///
/// When the objects have no node, or nothing is reachable.
pub fn import(objects: &Objects, options: &ImportOptions) -> Result<Draft, ImportError> {
    let mut notes = Vec::new();
    for (kind, count) in &objects.ignored {
        let effect = match kind.as_str() {
            "NetworkPolicy" => ": in the cluster, they may block connections that this lab makes",
            "Endpoints" => ": `kubectl get endpointslices -A -o yaml` prints what kube-proxy reads",
            _ => "",
        };
        notes.push(format!("not used: {count} of kind {kind}{effect}"));
    }
    let objects = &without_windows(objects, &mut notes);
    if objects.nodes.is_empty() {
        return Err(ImportError::NoNodes);
    }
    notes.extend(network_notes(objects));
    let pods = imported_pods(objects, &mut notes);
    let mut things = find_things(objects, &pods);
    notes.append(&mut things.notes);
    if things.reachable.is_empty() {
        return Err(ImportError::NothingReachable { notes });
    }
    let mut proxy = imported_proxy(objects, options.mode);
    notes.append(&mut proxy.notes);
    let mut text = head(options, &proxy, &things, objects);
    render_objects(&mut text, objects, &pods);
    Ok(Draft { text, notes })
}

/// Writes the lab document.
fn head(
    options: &ImportOptions,
    proxy: &ImportedProxy,
    things: &Things,
    objects: &Objects,
) -> String {
    let Things {
        reachable,
        balanced,
        routes,
        notes: _,
    } = things;
    let source = if proxy.is_configured {
        "kube-proxy is that of the ConfigMap kube-proxy and of the\n# versions of the nodes; its flags may differ. `svclab schema` describes every field."
    } else {
        "kubectl prints neither the mode of kube-proxy nor its\n# flags; see `kubectl -n kube-system get configmap kube-proxy -o yaml`, and `svclab schema`."
    };
    let nodes: Vec<&core::Node> = objects.nodes.iter().map(|node| &*node.value).collect();
    let mut text = format!(
        "# Written from the objects of a cluster. {source}
apiVersion: svclab/v1
kind: Lab
metadata: {{name: {}}}
spec:
  about: Every service of a cluster is reachable.
  kubeProxy: {}
",
        scalar(&options.name),
        proxy.lab
    );
    if !proxy.others.is_empty() {
        text += "  # Nodes with another version.\n  nodes:\n";
    }
    for (node, own) in &proxy.others {
        let _ = writeln!(text, "    {}: {{kubeProxy: {own}}}", scalar(node));
    }
    text += &fabric(&nodes, routes);
    let families = [Family::V4, Family::V6];
    let mut hosts = families.into_iter().filter(|family| {
        let name = outside(*family);
        reachable.iter().any(|thing| thing.from == name)
    });
    if let Some(first) = hosts.next() {
        text += "  hosts:\n";
        for family in [first].into_iter().chain(hosts) {
            let (name, address) = (outside(family), outside_address(objects, family));
            let _ = writeln!(
                text,
                "    {name}: {{address: {}}}",
                scalar(&address.to_string())
            );
        }
    }
    if !balanced.is_empty() {
        text +=
            "  # Balancers in front of the nodes, with the addresses in the services' status.\n";
        text += "  loadBalancers:\n";
    }
    for (balancer, spec) in balanced {
        let mut fields = format!("service: {}", spec.service);
        if spec.target == BalancerTarget::Pods {
            fields += ", target: pods";
        }
        if spec.health_check.is_some() {
            fields += ", healthCheck: {}";
        }
        if let Some(backends) = &spec.backends {
            let names: Vec<String> = backends.iter().map(|name| scalar(name)).collect();
            let _ = write!(fields, ", backends: [{}]", names.join(", "));
        }
        let _ = writeln!(text, "    {balancer}: {{{fields}}}");
    }
    text += "  probes:\n";
    for thing in reachable {
        let _ = writeln!(text, "    {}", thing.render_probe());
    }
    text += "  expect:\n  - when: {}\n";
    for thing in reachable {
        let _ = writeln!(text, "    {}: {{{}: 1}}", thing.name, thing.verdict());
    }
    text
}

/// Returns the objects without the nodes of Windows, on which kube-proxy writes no rules that svclab
/// has.
fn without_windows(objects: &Objects, notes: &mut Vec<String>) -> Objects {
    let is_windows = |node: &core::Node| {
        let mut labels = node.metadata.labels.iter().flatten();
        let info = node
            .status
            .as_ref()
            .and_then(|status| status.node_info.as_ref());
        labels.any(|(label, value)| label == "kubernetes.io/os" && value == "windows")
            || info.is_some_and(|info| info.operating_system == "windows")
    };
    let mut linux = objects.clone();
    linux.nodes.retain(|node| !is_windows(&node.value));
    let count = objects.nodes.len() - linux.nodes.len();
    if count > 0 {
        notes.push(format!("not modelled: {count} of kind Node with Windows"));
    }
    linux
}

/// Returns statements about programs of the cluster's network that the objects do not configure.
fn network_notes(objects: &Objects) -> Vec<String> {
    let has_pod = |start: &str| objects.pods.iter().any(|pod| pod.name.starts_with(start));
    let mut notes = Vec::new();
    for (start, name) in [("ovnkube-node", "OVN-Kubernetes"), ("cilium-", "Cilium")] {
        if has_pod(start) && !has_pod("kube-proxy") {
            notes.push(format!(
                "not modelled: {name}, which may serve services without kube-proxy; this lab has the \
                 rules of kube-proxy"
            ));
        }
    }
    let mut annotations = objects.nodes.iter().flat_map(|node| {
        let annotations = node.value.metadata.annotations.iter().flatten();
        annotations.map(|(name, _)| name)
    });
    if annotations.any(|name| name.starts_with("flannel.alpha.coreos.com/")) {
        let line = "flannel: {version: v0.26.0, network: 10.244.0.0/16}";
        notes.push(format!(
            "not used: flannel, which replaces the source of connections to other networks; add its \
             version and network to the lab's spec, such as `{line}`"
        ));
    }
    notes
}

/// Writes the network between the nodes: switched if two of them share a subnet of 24 bits, with
/// the subnet if they are not all in one such subnet. `routes` has the nodes of external IPs.
fn fabric(nodes: &[&core::Node], routes: &BTreeMap<IpAddr, String>) -> String {
    let routes: Vec<String> = routes
        .iter()
        .map(|(address, node)| {
            let to = scalar(&IpNetwork::from(*address).to_string());
            format!("{{to: {to}, via: {}}}", scalar(node))
        })
        .collect();
    let routes = if routes.is_empty() {
        String::new()
    } else {
        format!(", routes: [{}]", routes.join(", "))
    };
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
    let (kind, subnet) = match (subnets.len(), (8..=24).rev().find(contains_all)) {
        (0 | 1, _) => ("switched", None),
        (different, _) if different == count => ("routed", None),
        (_, Some(prefix)) => ("switched", network(prefix)),
        (_, None) => ("switched", None),
    };
    let subnet = subnet.map_or_else(String::new, |network| format!(", subnet: {network}"));
    format!("  {why}\n  fabric: {{type: {kind}{subnet}{routes}}}\n")
}

/// Returns the address of the host outside the cluster: one in whose network nothing else is.
fn outside_address(objects: &Objects, family: Family) -> IpNetwork {
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
    let candidates = match family {
        Family::V4 => OUTSIDE_IPV4.map(IpAddr::from),
        Family::V6 => OUTSIDE_IPV6.map(IpAddr::from),
    };
    let is_free = |network: &IpNetwork| !taken.iter().any(|address| network.contains(*address));
    let networks = candidates.map(default_subnet);
    networks.into_iter().find(is_free).unwrap_or(networks[0])
}

/// Returns an address with the prefix length of its subnet: 24 bits for IPv4, 64 bits for IPv6.
fn default_subnet(address: IpAddr) -> IpNetwork {
    let prefix = if address.is_ipv4() { 24 } else { 64 };
    IpNetwork::new(address, prefix).unwrap_or_else(|_| address.into())
}
