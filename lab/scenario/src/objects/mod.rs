//! Decodes the Kubernetes objects of a case, fills in their defaults, and derives the endpoint
//! slices that the lab does not have.

pub(crate) mod admission;
pub(crate) mod balancers;
pub(crate) mod defaults;
pub(crate) mod documents;
pub mod endpoints;
#[cfg(test)]
pub(crate) mod endpoints_tests;
pub(crate) mod selector;
pub(crate) mod v1beta1;
pub(crate) mod workloads;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use indexmap::IndexMap;
use k8s_openapi::api::core::v1::{Node, Pod, PodIP, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

use crate::decode::{IgnoredField, lenient};
use crate::lab::KIND;
use crate::lab::reference::{DocumentRef, ObjectKind};
use crate::objects::documents::Documents;
use crate::objects::endpoints::{PodIndex, SERVICE_NAME, derive_slices};
use crate::objects::workloads::add_pods;
use crate::sink::Sink;
use crate::yaml::tree::Tree;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;

/// Maximum number of pods in a cluster. Replicas of a workload become pods, so their number is not
/// limited by the size of the file.
pub(crate) const MAX_PODS: usize = 65_536;

/// Maximum number of endpoints in all slices of a cluster. Selectors make slices, so their number
/// is not limited by the size of the file either. The value is that of some gigabytes of memory.
pub(crate) const MAX_ENDPOINTS: usize = 1_000_000;

/// Kubernetes object with its document.
#[derive(Debug, Clone)]
pub struct Object<T> {
    /// Kubernetes namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Decoded object with the defaults of an API server.
    pub value: Arc<T>,
    /// Patched document; `None` for a derived slice.
    pub tree: Option<Tree>,
}

/// Objects of a case, in document order.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// Nodes of the cluster.
    pub nodes: Vec<Object<Node>>,
    /// Pods. A pod on the host network without an address has the internal addresses of its node,
    /// as a kubelet would report.
    pub pods: Vec<Object<Pod>>,
    /// Services of all types.
    pub services: Vec<Object<Service>>,
    /// Endpoint slices of the lab, then slices derived for services that have a selector and no
    /// slice in the lab.
    pub endpoint_slices: Vec<Object<EndpointSlice>>,
    /// Networks of cluster IPs.
    pub service_cidrs: Vec<Object<ServiceCIDR>>,
    /// Configuration of kube-proxy in a `ConfigMap`, in YAML. Only [`Objects::load`] reads it.
    pub kube_proxy: Option<String>,
    /// Number of objects of other kinds, by kind.
    pub ignored: BTreeMap<String, usize>,
}

impl Objects {
    /// Returns the node with this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Object<Node>> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Returns the pod with this name.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Object<Pod>> {
        find_object(&self.pods, namespace, name)
    }

    /// Returns the service with this name.
    #[must_use]
    pub fn service(&self, namespace: &str, name: &str) -> Option<&Object<Service>> {
        find_object(&self.services, namespace, name)
    }

    /// Returns the slices of a service.
    pub fn slices_of(
        &self,
        namespace: &str,
        service: &str,
    ) -> impl Iterator<Item = &Object<EndpointSlice>> {
        self.endpoint_slices.iter().filter(move |slice| {
            slice.namespace == namespace && service_name(&slice.value) == Some(service)
        })
    }

    /// Returns the patched document of an object. `None` if the object does not exist or is
    /// derived.
    #[must_use]
    pub fn tree(&self, reference: &DocumentRef) -> Option<&Tree> {
        let DocumentRef::Object {
            kind,
            namespace,
            name,
        } = reference
        else {
            return None;
        };
        match kind {
            ObjectKind::Node => self.node(name)?.tree.as_ref(),
            ObjectKind::Pod => self.pod(namespace, name)?.tree.as_ref(),
            ObjectKind::Service => self.service(namespace, name)?.tree.as_ref(),
            ObjectKind::EndpointSlice => find_object(&self.endpoint_slices, namespace, name)?
                .tree
                .as_ref(),
            ObjectKind::ServiceCidr => find_object(&self.service_cidrs, "", name)?.tree.as_ref(),
        }
    }

    /// Loads the objects of files, and returns them with warnings. The files do not have to contain
    /// a lab; a lab is counted in [`Objects::ignored`].
    ///
    /// # Errors
    ///
    /// Returns all errors and then all warnings. Render them with the same `sources`.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut sink = Sink::default();
        let mut documents = Documents::read(sources, &mut sink);
        add_pods(&mut documents, &mut sink);
        let decoded = decode_all(&documents.objects, &mut sink);
        if !documents.labs.is_empty() {
            documents
                .ignored
                .insert(KIND.to_owned(), documents.labs.len());
        }
        let kube_proxy = documents.take_kube_proxy();
        let objects = Self {
            kube_proxy,
            ..Self::new(&decoded, &documents.ignored)
        };
        if let Some(error) = objects.size_error() {
            sink.push(error);
        }
        if sink.has_errors() {
            return Err(sources.redact(sink.into_inner()));
        }
        Ok((objects, sources.redact(sink.into_inner())))
    }

    /// Collects the objects of a case.
    pub(super) fn new(
        objects: &IndexMap<DocumentRef, DecodedObject>,
        ignored: &BTreeMap<String, usize>,
    ) -> Self {
        let mut result = Self {
            ignored: ignored.clone(),
            ..Self::default()
        };
        for (reference, decoded) in objects {
            let tree = Some(decoded.tree.clone());
            match &decoded.value {
                ObjectValue::Node(value) => result.nodes.push(build_object(reference, value, tree)),
                ObjectValue::Pod(value) => result.pods.push(build_object(reference, value, tree)),
                ObjectValue::Service(value) => {
                    result.services.push(build_object(reference, value, tree));
                }
                ObjectValue::EndpointSlice(value) => {
                    result
                        .endpoint_slices
                        .push(build_object(reference, value, tree));
                }
                ObjectValue::ServiceCidr(value) => {
                    result
                        .service_cidrs
                        .push(build_object(reference, value, tree));
                }
            }
        }
        result.address_host_pods();
        result.derive_slices();
        result
    }

    /// Returns the error for more pods or endpoints than a cluster can have. Other objects are
    /// limited by the size of their file and by the memory that planning needs.
    pub(super) fn size_error(&self) -> Option<Diagnostic> {
        let endpoints = count_endpoints(&self.endpoint_slices);
        [
            ("pods", self.pods.len(), MAX_PODS),
            ("endpoints", endpoints, MAX_ENDPOINTS),
        ]
        .into_iter()
        .find(|(_, count, max)| count > max)
        .map(|(kind, _, max)| {
            Diagnostic::error(format!("more than {max} {kind}"))
                .with_help("remove objects that the lab does not need")
        })
    }

    /// Assigns pods on the host network the addresses of their node, unless their status has
    /// addresses.
    fn address_host_pods(&mut self) {
        for pod in &mut self.pods {
            let spec = pod.value.spec.as_ref();
            let status = pod.value.status.as_ref();
            let is_on_host = spec.is_some_and(|spec| spec.host_network == Some(true));
            let has_address =
                status.is_some_and(|s| s.pod_ips.as_ref().is_some_and(|ips| !ips.is_empty()));
            let Some(node) = spec.and_then(|spec| spec.node_name.as_deref()) else {
                continue;
            };
            if !is_on_host || has_address {
                continue;
            }
            let Some(node) = self.nodes.iter().find(|candidate| candidate.name == node) else {
                continue;
            };
            let addresses = internal_addresses(&node.value);
            let value = Arc::make_mut(&mut pod.value);
            let status = value.status.get_or_insert_default();
            status.pod_ip = addresses.first().cloned();
            status.pod_ips = Some(addresses.into_iter().map(|ip| PodIP { ip }).collect());
        }
    }

    /// Derives the slices of services again, after a change of services or pods.
    pub fn update_derived_slices(&mut self) {
        self.endpoint_slices.retain(|slice| slice.tree.is_some());
        self.derive_slices();
    }

    /// Replaces the given slices of a service by those that its selector gives. Returns whether
    /// their addresses differ.
    pub fn replace_slices(&mut self, namespace: &str, service: &str) -> bool {
        let is_own = |slice: &Object<EndpointSlice>| is_slice_of(slice, namespace, service);
        let mut slices = self.endpoint_slices.iter();
        if !slices.any(|slice| slice.tree.is_some() && is_own(slice)) {
            return false;
        }
        let addresses = |slices: &[Object<EndpointSlice>]| -> BTreeSet<String> {
            let own = slices.iter().filter(|slice| is_own(slice));
            let endpoints = own.flat_map(|slice| slice.value.endpoints.iter().flatten());
            endpoints
                .flat_map(|endpoint| endpoint.addresses.clone())
                .collect()
        };
        let before = addresses(&self.endpoint_slices);
        self.endpoint_slices.retain(|slice| !is_own(slice));
        self.update_derived_slices();
        addresses(&self.endpoint_slices) != before
    }

    /// Returns the slices of a service.
    pub fn slices_mut(
        &mut self,
        namespace: &str,
        service: &str,
    ) -> impl Iterator<Item = &mut EndpointSlice> {
        let slices = self.endpoint_slices.iter_mut();
        let own = slices.filter(move |slice| is_slice_of(slice, namespace, service));
        own.map(|slice| Arc::make_mut(&mut slice.value))
    }

    fn derive_slices(&mut self) {
        let nodes: BTreeMap<&str, &Node> = self
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.value.as_ref()))
            .collect();
        let pods = PodIndex::new(self.pods.iter().map(|pod| pod.value.as_ref()));
        let services_with_slices: HashSet<(&str, &str)> = self
            .endpoint_slices
            .iter()
            .filter_map(|slice| Some((slice.namespace.as_str(), service_name(&slice.value)?)))
            .collect();
        let mut slices = Vec::new();
        let mut endpoints = count_endpoints(&self.endpoint_slices);
        for service in &self.services {
            // The rest would be refused, and could exhaust the memory.
            if endpoints > MAX_ENDPOINTS {
                break;
            }
            if services_with_slices.contains(&(service.namespace.as_str(), service.name.as_str())) {
                continue;
            }
            for slice in derive_slices(&service.value, &pods, &nodes) {
                endpoints += slice.endpoints.as_ref().map_or(0, Vec::len);
                slices.push(Object {
                    namespace: service.namespace.clone(),
                    name: slice.metadata.name.clone().unwrap_or_default(),
                    value: Arc::new(slice),
                    tree: None,
                });
            }
        }
        self.endpoint_slices.extend(slices);
    }
}

fn count_endpoints(slices: &[Object<EndpointSlice>]) -> usize {
    let counts = slices
        .iter()
        .map(|slice| slice.value.endpoints.as_ref().map_or(0, Vec::len));
    counts.sum()
}

fn build_object<T>(reference: &DocumentRef, value: &Arc<T>, tree: Option<Tree>) -> Object<T> {
    let (namespace, name) = match reference {
        DocumentRef::Object {
            namespace, name, ..
        } => (namespace.clone(), name.clone()),
        DocumentRef::Lab => (String::new(), String::new()),
    };
    Object {
        namespace,
        name,
        value: Arc::clone(value),
        tree,
    }
}

fn find_object<'o, T>(
    objects: &'o [Object<T>],
    namespace: &str,
    name: &str,
) -> Option<&'o Object<T>> {
    objects
        .iter()
        .find(|object| object.name == name && object.namespace == namespace)
}

/// Returns the name of the service that a slice belongs to.
fn service_name(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    labels.get(SERVICE_NAME).map(String::as_str)
}

fn is_slice_of(slice: &Object<EndpointSlice>, namespace: &str, service: &str) -> bool {
    slice.namespace == namespace && service_name(&slice.value) == Some(service)
}

/// Returns the addresses of type `InternalIP` in a node's status.
pub(crate) fn internal_addresses(node: &Node) -> Vec<String> {
    let addresses = node
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_ref());
    addresses
        .into_iter()
        .flatten()
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| address.address.clone())
        .collect()
}

/// Whether a node has an internal address.
pub(crate) fn has_address(node: &Node, address: IpAddr) -> bool {
    let addresses = internal_addresses(node);
    addresses.iter().any(|own| own.parse() == Ok(address))
}

/// Decoded object with its document.
#[derive(Debug, Clone)]
pub(super) struct DecodedObject {
    pub value: ObjectValue,
    pub tree: Tree,
}

/// Decoded object of a modelled kind.
#[derive(Debug, Clone)]
pub(super) enum ObjectValue {
    Node(Arc<Node>),
    Pod(Arc<Pod>),
    Service(Arc<Service>),
    EndpointSlice(Arc<EndpointSlice>),
    ServiceCidr(Arc<ServiceCIDR>),
}

/// Decodes all objects. Objects that cannot be decoded are reported and omitted.
pub(super) fn decode_all(
    objects: &IndexMap<DocumentRef, Tree>,
    sink: &mut Sink,
) -> IndexMap<DocumentRef, DecodedObject> {
    let mut decoded = IndexMap::new();
    for (reference, tree) in objects {
        match decode_object(reference, tree) {
            Ok((object, ignored)) => {
                decoded.insert(reference.clone(), object);
                sink.extend(ignored.into_iter().map(Diagnostic::from));
            }
            Err(diagnostic) => sink.push(diagnostic),
        }
    }
    decoded
}

/// Decodes an object as an API server does, and returns the object with the ignored fields.
///
/// # Errors
///
/// Returns a diagnostic for a value of the wrong type. Also for an invalid value that affects
/// packets: a port, a protocol, a policy, an address type.
pub(super) fn decode_object(
    reference: &DocumentRef,
    tree: &Tree,
) -> Result<(DecodedObject, Vec<IgnoredField>), Diagnostic> {
    let DocumentRef::Object {
        kind, namespace, ..
    } = reference
    else {
        return Err(Diagnostic::error("the lab is not a Kubernetes object"));
    };
    let (typed, ignored) = match kind {
        ObjectKind::Node => {
            let (node, ignored) = lenient::<Node>(tree)?;
            admission::check_node(&node, tree)?;
            (ObjectValue::Node(Arc::new(node)), ignored)
        }
        ObjectKind::Pod => {
            let (pod, ignored) =
                decode_namespaced(tree, namespace, |pod: &mut Pod| &mut pod.metadata)?;
            admission::check_pod(&pod, tree)?;
            let mut pod = pod;
            defaults::fill_pod(&mut pod);
            (ObjectValue::Pod(Arc::new(pod)), ignored)
        }
        ObjectKind::Service => {
            let (mut service, ignored) =
                decode_namespaced(tree, namespace, |service: &mut Service| {
                    &mut service.metadata
                })?;
            admission::check_service(&service, tree)?;
            defaults::fill_service(&mut service);
            (ObjectValue::Service(Arc::new(service)), ignored)
        }
        ObjectKind::EndpointSlice => {
            let (mut slice, ignored) =
                decode_namespaced(tree, namespace, |slice: &mut EndpointSlice| {
                    &mut slice.metadata
                })?;
            admission::check_endpoint_slice(&slice, tree)?;
            defaults::fill_endpoint_slice(&mut slice);
            (ObjectValue::EndpointSlice(Arc::new(slice)), ignored)
        }
        ObjectKind::ServiceCidr => {
            let (cidr, ignored) = lenient::<ServiceCIDR>(tree)?;
            admission::check_service_cidr(&cidr, tree)?;
            (ObjectValue::ServiceCidr(Arc::new(cidr)), ignored)
        }
    };
    let decoded = DecodedObject {
        value: typed,
        tree: tree.clone(),
    };
    Ok((decoded, ignored))
}

/// Decodes a namespaced object and sets its namespace.
fn decode_namespaced<T: DeserializeOwned>(
    tree: &Tree,
    namespace: &str,
    metadata: impl Fn(&mut T) -> &mut ObjectMeta,
) -> Result<(T, Vec<IgnoredField>), Diagnostic> {
    let (mut value, ignored) = lenient::<T>(tree)?;
    metadata(&mut value).namespace = Some(namespace.to_owned());
    Ok((value, ignored))
}
