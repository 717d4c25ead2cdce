//! Chooses the nodes and the addresses of pods.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use indexmap::IndexMap;
use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

use crate::decode::lenient;
use crate::lab::reference::{DocumentRef, ObjectKind};
use crate::objects::documents::name_span;
use crate::objects::workloads::workload::Workload;
use crate::yaml::tree::{Tree, Value};
use svclab_diagnostic::Diagnostic;

/// Nodes of a cluster, with the addresses that are in use.
pub(super) struct Nodes {
    nodes: Vec<NodeFields>,
    taken: HashSet<IpAddr>,
}

struct NodeFields {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    /// First podCIDR of each family.
    cidrs: Vec<IpNetwork>,
}

impl Nodes {
    /// Collects the nodes among the objects. All addresses in pods and endpoint slices are in use.
    pub(super) fn new(objects: &IndexMap<DocumentRef, Tree>) -> Self {
        let mut nodes = Vec::new();
        let mut taken = HashSet::new();
        for (reference, tree) in objects {
            match reference {
                DocumentRef::Object {
                    kind: ObjectKind::Node,
                    name,
                    ..
                } => {
                    // The decoder of all objects reports an invalid node.
                    let node = lenient::<Node>(tree).map(|(node, _)| node);
                    nodes.push(NodeFields::new(name, node.unwrap_or_default()));
                }
                DocumentRef::Object {
                    kind: ObjectKind::Pod | ObjectKind::EndpointSlice,
                    ..
                } => collect_addresses(tree, &mut taken),
                _ => {}
            }
        }
        Self { nodes, taken }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn name(&self, node: usize) -> &str {
        &self.nodes[node].name
    }

    /// Returns the indices of the nodes on which the pods of a workload may run, at least one.
    pub(super) fn eligible(&self, workload: &Workload) -> Result<Vec<usize>, Diagnostic> {
        let spec = workload.pod_spec();
        let selector = spec.and_then(|spec| spec.node_selector.as_ref());
        let tolerations = workload.tolerations();
        let indices = 0..self.nodes.len();
        // A pod with a node bypasses the scheduler.
        let eligible: Vec<usize> = match spec.and_then(|spec| spec.node_name.as_ref()) {
            Some(name) => indices
                .filter(|index| self.nodes[*index].name == *name)
                .collect(),
            None => indices
                .filter(|index| {
                    let node = &self.nodes[*index];
                    let mut labels = selector.into_iter().flatten();
                    labels.all(|(key, value)| node.has_label(key, value))
                        && node.is_tolerated(&tolerations)
                })
                .collect(),
        };
        if !eligible.is_empty() {
            return Ok(eligible);
        }
        let help = match spec.and_then(|spec| spec.node_name.as_ref()) {
            Some(name) => format!("there is no node `{name}`"),
            None => "the nodes need the labels of `nodeSelector`, and the pods need `tolerations` \
                     for the taints of the nodes"
                .to_owned(),
        };
        let path = |field: &str| crate::path!["spec", "template", "spec", field].to_vec();
        let fields = ["nodeName", "nodeSelector"].map(path);
        let mut nodes = fields.iter().filter_map(|path| workload.tree.node_at(path));
        let span = nodes
            .next()
            .map_or(name_span(&workload.tree), Tree::head_span);
        Err(
            Diagnostic::warning(format!("{workload} has no pods: no node can run them"))
                .with_position(span, "")
                .with_help(help),
        )
    }

    /// Returns the addresses of a new pod on a node, one of each family.
    pub(super) fn take_addresses(
        &mut self,
        node: usize,
        workload: &Workload,
    ) -> Result<Vec<IpAddr>, Diagnostic> {
        let NodeFields { name, cidrs, .. } = &self.nodes[node];
        let span = name_span(&workload.tree);
        if cidrs.is_empty() {
            return Err(Diagnostic::warning(format!(
                "{workload} has no pods: node `{name}` has no `podCIDR` for their addresses"
            ))
            .with_position(span, "")
            .with_help("add `spec: {podCIDR: …}` to the nodes, or write the pods"));
        }
        let mut addresses = Vec::with_capacity(cidrs.len());
        for cidr in cidrs {
            // The first address is that of the node's bridge.
            let is_free = |address: &IpAddr| !self.taken.contains(address);
            let Some(address) = pod_addresses(*cidr).find(is_free) else {
                return Err(Diagnostic::error(format!(
                    "no address of {cidr}, the podCIDR of node `{name}`, is free for a pod of {workload}"
                ))
                .with_position(span, ""));
            };
            self.taken.insert(address);
            addresses.push(address);
        }
        Ok(addresses)
    }
}

/// Returns the addresses of a podCIDR without the network's own, that of the bridge, and the
/// broadcast address.
fn pod_addresses(cidr: IpNetwork) -> Box<dyn Iterator<Item = IpAddr>> {
    match cidr {
        IpNetwork::V4(cidr) => {
            let broadcast = cidr.broadcast();
            let addresses = cidr.iter().skip(2);
            Box::new(
                addresses
                    .filter(move |address| *address != broadcast)
                    .map(IpAddr::V4),
            )
        }
        IpNetwork::V6(cidr) => Box::new(cidr.iter().skip(2).map(IpAddr::V6)),
    }
}

impl NodeFields {
    fn new(name: &str, node: Node) -> Self {
        let spec = node.spec.unwrap_or_default();
        let mut taints = spec.taints.unwrap_or_default();
        if spec.unschedulable == Some(true) {
            taints.push(Taint {
                key: "node.kubernetes.io/unschedulable".to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            });
        }
        let written = spec.pod_cidrs.into_iter().flatten().chain(spec.pod_cidr);
        let mut cidrs: Vec<IpNetwork> = Vec::new();
        for cidr in written.filter_map(|cidr| cidr.parse::<IpNetwork>().ok()) {
            if !cidrs.iter().any(|own| own.is_ipv4() == cidr.is_ipv4()) {
                cidrs.push(cidr);
            }
        }
        Self {
            name: name.to_owned(),
            labels: node.metadata.labels.unwrap_or_default(),
            taints,
            cidrs,
        }
    }

    /// Whether the node has a label. A kubelet adds its host name, system and architecture; a lab
    /// may omit these labels.
    fn has_label(&self, key: &str, wanted: &str) -> bool {
        match (self.labels.get(key), key) {
            (Some(value), _) => value == wanted,
            (None, "kubernetes.io/hostname") => self.name == wanted,
            (None, "kubernetes.io/os" | "beta.kubernetes.io/os") => wanted == "linux",
            (None, "kubernetes.io/arch" | "beta.kubernetes.io/arch") => true,
            (None, _) => false,
        }
    }

    fn is_tolerated(&self, tolerations: &[Toleration]) -> bool {
        let mut blocking = self
            .taints
            .iter()
            .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
        blocking.all(|taint| tolerations.iter().any(|each| tolerates(each, taint)))
    }
}

/// Whether a toleration is for a taint (`k8s.io/api` v0.36.0 `core/v1/toleration.go`,
/// `ToleratesTaint`).
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_same = |own: &Option<String>, other: &str| {
        let own = own.as_deref().unwrap_or_default();
        own.is_empty() || own == other
    };
    is_same(&toleration.effect, &taint.effect)
        && is_same(&toleration.key, &taint.key)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            None | Some("" | "Equal") => {
                toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
            }
            Some(_) => false,
        }
}

/// Collects all addresses in an object.
fn collect_addresses(tree: &Tree, addresses: &mut HashSet<IpAddr>) {
    match &tree.value {
        Value::Scalar(scalar) => addresses.extend(scalar.text.parse::<IpAddr>().ok()),
        Value::Sequence(items) => {
            items
                .iter()
                .for_each(|item| collect_addresses(item, addresses));
        }
        Value::Map(map) => map
            .values()
            .for_each(|entry| collect_addresses(&entry.value, addresses)),
    }
}
