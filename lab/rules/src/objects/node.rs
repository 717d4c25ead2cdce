//! Converts the cluster-scoped objects: nodes and the networks of cluster IPs.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::networking::v1 as networking;
use serde::Deserialize;

use super::{FieldReader, InvalidField, name_of};

/// Node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "core::Node")]
pub struct Node {
    /// Name of the object.
    pub name: String,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// Addresses, internal ones first: the preference of `GetNodeHostIPs` in
    /// kubernetes/kubernetes `pkg/util/node`.
    pub ips: Vec<IpAddr>,
    /// Networks of the node's pods.
    pub pod_cidrs: Vec<IpNetwork>,
    /// First invalid pod CIDR; `None` if all are valid.
    pub invalid: Option<InvalidField>,
}

impl From<core::Node> for Node {
    fn from(object: core::Node) -> Self {
        Self::from(&object)
    }
}

impl From<&core::Node> for Node {
    fn from(object: &core::Node) -> Self {
        let status = object.status.as_ref();
        let listed = status.and_then(|status| status.addresses.as_deref());
        let listed = listed.unwrap_or_default();
        let ips_of_type = |type_: &'static str| {
            let listed = listed.iter().filter(move |address| address.type_ == type_);
            listed.filter_map(|address| address.address.parse().ok())
        };
        let mut reader = FieldReader::default();
        let spec = object.spec.as_ref();
        let pod_cidrs = spec.into_iter().flat_map(|spec| {
            let listed = spec.pod_cidrs.iter().flatten();
            spec.pod_cidr.iter().chain(listed)
        });
        let pod_cidrs = pod_cidrs.filter_map(|text| reader.parse("podCIDR", text));
        let pod_cidrs = pod_cidrs.collect();
        let labels = object.metadata.labels.as_ref();
        Self {
            name: name_of(&object.metadata),
            zone: labels.and_then(|labels| labels.get("topology.kubernetes.io/zone").cloned()),
            ips: ips_of_type("InternalIP")
                .chain(ips_of_type("ExternalIP"))
                .collect(),
            pod_cidrs,
            invalid: reader.invalid,
        }
    }
}

/// Networks from which cluster IPs are allocated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "networking::ServiceCIDR")]
pub struct ServiceCidr {
    /// Name of the object.
    pub name: String,
    /// Networks of the object.
    pub networks: Vec<IpNetwork>,
    /// First entry that is not a network; `None` if all are.
    pub invalid: Option<InvalidField>,
}

impl From<networking::ServiceCIDR> for ServiceCidr {
    fn from(object: networking::ServiceCIDR) -> Self {
        Self::from(&object)
    }
}

impl From<&networking::ServiceCIDR> for ServiceCidr {
    fn from(object: &networking::ServiceCIDR) -> Self {
        let mut reader = FieldReader::default();
        let spec = object.spec.as_ref();
        let cidrs = spec
            .into_iter()
            .flat_map(|spec| spec.cidrs.iter().flatten());
        let networks = cidrs.filter_map(|text| reader.parse("cidrs", text));
        Self {
            networks: networks.collect(),
            name: name_of(&object.metadata),
            invalid: reader.invalid,
        }
    }
}
