//! The Kubernetes objects of a case: typed, their defaults filled in, and the
//! endpoint slices that were not written derived.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;
use k8s_openapi::api::core::v1::{Node, Pod, PodIP, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

use super::check_object;
use super::decode::{IgnoredField, lenient};
use super::defaults;
use super::documents::Documents;
use super::endpoints::{PodIndex, SERVICE_NAME, derived};
use super::lab::KIND;
use super::reference::{DocumentRef, ObjectKind};
use super::sink::Sink;
use super::tree::Tree;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;

/// An object with what was written of it.
#[derive(Debug, Clone)]
pub struct Object<T> {
    /// Its namespace; empty for kinds that live in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The object, with the defaults of an API server filled in.
    pub value: Arc<T>,
    /// The document, patched; `None` for a slice that was derived.
    pub tree: Option<Tree>,
}

/// The objects of a case, in the order they were written.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// Nodes.
    pub nodes: Vec<Object<Node>>,
    /// Pods. One on the host's network without an address has its node's
    /// internal ones, as a kubelet would report.
    pub pods: Vec<Object<Pod>>,
    /// Services.
    pub services: Vec<Object<Service>>,
    /// Endpoint slices: those that were written, then those derived for services
    /// that have a selector and no slice that was written.
    pub endpoint_slices: Vec<Object<EndpointSlice>>,
    /// The networks that cluster IPs are taken from.
    pub service_cidrs: Vec<Object<ServiceCIDR>>,
    /// How many objects of other kinds there were, by kind.
    pub ignored: BTreeMap<String, usize>,
}

impl Objects {
    /// The node with this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Object<Node>> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The pod with this name.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Object<Pod>> {
        find(&self.pods, namespace, name)
    }

    /// The service with this name.
    #[must_use]
    pub fn service(&self, namespace: &str, name: &str) -> Option<&Object<Service>> {
        find(&self.services, namespace, name)
    }

    /// The slices of a service.
    pub fn slices_of(
        &self,
        namespace: &str,
        service: &str,
    ) -> impl Iterator<Item = &Object<EndpointSlice>> {
        self.endpoint_slices.iter().filter(move |slice| {
            slice.namespace == namespace && service_of(&slice.value) == Some(service)
        })
    }

    /// The document of an object, patched.
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
            ObjectKind::EndpointSlice => {
                find(&self.endpoint_slices, namespace, name)?.tree.as_ref()
            }
            ObjectKind::ServiceCidr => find(&self.service_cidrs, "", name)?.tree.as_ref(),
        }
    }

    /// Reads the objects of files that need not hold a lab; if they do, it is counted
    /// among what is ignored. With the objects come warnings.
    ///
    /// # Errors
    ///
    /// Everything that is wrong: errors first, then warnings. Render them with the
    /// same `sources`.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut sink = Sink::default();
        let mut documents = Documents::read(sources, &mut sink);
        let decoded = decode_all(&documents.objects, &mut sink);
        if !documents.labs.is_empty() {
            documents
                .ignored
                .insert(KIND.to_owned(), documents.labs.len());
        }
        let objects = Self::new(&decoded, &documents.ignored);
        if sink.has_errors() {
            return Err(sources.redact(sink.into_inner()));
        }
        Ok((objects, sources.redact(sink.into_inner())))
    }

    /// Puts the objects of a case together.
    pub(super) fn new(
        objects: &IndexMap<DocumentRef, Decoded>,
        ignored: &BTreeMap<String, usize>,
    ) -> Self {
        let mut all = Self {
            ignored: ignored.clone(),
            ..Self::default()
        };
        for (reference, decoded) in objects {
            let tree = Some(decoded.tree.clone());
            match &decoded.typed {
                Typed::Node(value) => all.nodes.push(object(reference, value, tree)),
                Typed::Pod(value) => all.pods.push(object(reference, value, tree)),
                Typed::Service(value) => all.services.push(object(reference, value, tree)),
                Typed::EndpointSlice(value) => {
                    all.endpoint_slices.push(object(reference, value, tree));
                }
                Typed::ServiceCidr(value) => {
                    all.service_cidrs.push(object(reference, value, tree));
                }
            }
        }
        all.address_host_pods();
        all.derive_slices();
        all
    }

    /// Gives pods on the host's network their node's addresses, where their
    /// status has none.
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

    fn derive_slices(&mut self) {
        let nodes: BTreeMap<&str, &Node> = self
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.value.as_ref()))
            .collect();
        let pods = PodIndex::new(self.pods.iter().map(|pod| pod.value.as_ref()));
        let written: HashSet<(&str, &str)> = self
            .endpoint_slices
            .iter()
            .filter_map(|slice| Some((slice.namespace.as_str(), service_of(&slice.value)?)))
            .collect();
        let mut slices = Vec::new();
        for service in &self.services {
            if written.contains(&(service.namespace.as_str(), service.name.as_str())) {
                continue;
            }
            for slice in derived(&service.value, &pods, &nodes) {
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

fn object<T>(reference: &DocumentRef, value: &Arc<T>, tree: Option<Tree>) -> Object<T> {
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

fn find<'o, T>(objects: &'o [Object<T>], namespace: &str, name: &str) -> Option<&'o Object<T>> {
    objects
        .iter()
        .find(|object| object.name == name && object.namespace == namespace)
}

/// The service a slice belongs to.
fn service_of(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    labels.get(SERVICE_NAME).map(String::as_str)
}

/// A node's addresses inside the cluster, as its status lists them.
fn internal_addresses(node: &Node) -> Vec<String> {
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

/// One object, decoded.
#[derive(Debug, Clone)]
pub(super) struct Decoded {
    pub typed: Typed,
    pub tree: Tree,
}

/// An object by its kind.
#[derive(Debug, Clone)]
pub(super) enum Typed {
    Node(Arc<Node>),
    Pod(Arc<Pod>),
    Service(Arc<Service>),
    EndpointSlice(Arc<EndpointSlice>),
    ServiceCidr(Arc<ServiceCIDR>),
}

/// Reads all of them; what cannot be read is told and left out.
pub(super) fn decode_all(
    objects: &IndexMap<DocumentRef, Tree>,
    sink: &mut Sink,
) -> IndexMap<DocumentRef, Decoded> {
    let mut decoded = IndexMap::new();
    for (reference, tree) in objects {
        match decode(reference, tree) {
            Ok((object, ignored)) => {
                decoded.insert(reference.clone(), object);
                sink.extend(ignored.into_iter().map(Diagnostic::from));
            }
            Err(diagnostic) => sink.push(diagnostic),
        }
    }
    decoded
}

/// Reads an object as an API server would, with the fields it ignored.
///
/// # Errors
///
/// A value of the wrong type, or one that the API does not allow and that
/// decides about packets: a port, a protocol, a policy, an address type.
pub(super) fn decode(
    reference: &DocumentRef,
    tree: &Tree,
) -> Result<(Decoded, Vec<IgnoredField>), Diagnostic> {
    let DocumentRef::Object {
        kind, namespace, ..
    } = reference
    else {
        return Err(Diagnostic::error("the lab is no Kubernetes object"));
    };
    let (typed, ignored) = match kind {
        ObjectKind::Node => {
            let (node, ignored) = lenient::<Node>(tree)?;
            (Typed::Node(Arc::new(node)), ignored)
        }
        ObjectKind::Pod => {
            let (pod, ignored) = read(tree, namespace, |pod: &mut Pod| &mut pod.metadata)?;
            let mut pod = pod;
            defaults::pod(&mut pod);
            (Typed::Pod(Arc::new(pod)), ignored)
        }
        ObjectKind::Service => {
            let (mut service, ignored) = read(tree, namespace, |service: &mut Service| {
                &mut service.metadata
            })?;
            check_object::service(&service, tree)?;
            defaults::service(&mut service);
            (Typed::Service(Arc::new(service)), ignored)
        }
        ObjectKind::EndpointSlice => {
            let (mut slice, ignored) = read(tree, namespace, |slice: &mut EndpointSlice| {
                &mut slice.metadata
            })?;
            check_object::endpoint_slice(&slice, tree)?;
            defaults::endpoint_slice(&mut slice);
            (Typed::EndpointSlice(Arc::new(slice)), ignored)
        }
        ObjectKind::ServiceCidr => {
            let (cidr, ignored) = lenient::<ServiceCIDR>(tree)?;
            check_object::service_cidr(&cidr, tree)?;
            (Typed::ServiceCidr(Arc::new(cidr)), ignored)
        }
    };
    let decoded = Decoded {
        typed,
        tree: tree.clone(),
    };
    Ok((decoded, ignored))
}

/// Reads an object that lives in a namespace, and writes down which.
fn read<T: DeserializeOwned>(
    tree: &Tree,
    namespace: &str,
    metadata: impl Fn(&mut T) -> &mut ObjectMeta,
) -> Result<(T, Vec<IgnoredField>), Diagnostic> {
    let (mut value, ignored) = lenient::<T>(tree)?;
    metadata(&mut value).namespace = Some(namespace.to_owned());
    Ok((value, ignored))
}
