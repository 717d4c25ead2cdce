//! Kubernetes objects as domain types: addresses, ports and conditions instead of optional strings.
//!
//! Each object of the API is converted once, at the border. Invalid values are omitted; the first
//! one is kept in the field `invalid`, for the components that cannot work without it.

mod endpoint_slice;
mod node;
mod service;

use std::net::IpAddr;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use svclab_ruleset::Protocol;

pub use endpoint_slice::{EndpointPort, EndpointSlice, SERVICE_NAME, SliceEndpoint};
pub use node::{Node, ServiceCidr};
pub(crate) use service::CLUSTER_IP;
pub use service::{IngressIp, NODE_PORTS, PortSpec, Service, ServiceType};

/// Field with a value that an API server rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidField {
    /// Name of the field.
    pub field: &'static str,
    /// Invalid value.
    pub value: String,
}

/// Labels of objects that some versions of kube-proxy do not watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProxyLabels {
    /// Label `service.kubernetes.io/service-proxy-name`: another proxy serves the object.
    pub other_proxy: bool,
    /// Label `service.kubernetes.io/headless`: no proxy serves the object.
    pub headless: bool,
}

impl ProxyLabels {
    fn new(metadata: &ObjectMeta) -> Self {
        let has_label = |label| {
            let labels = metadata.labels.as_ref();
            labels.is_some_and(|labels| labels.contains_key(label))
        };
        Self {
            other_proxy: has_label("service.kubernetes.io/service-proxy-name"),
            headless: has_label("service.kubernetes.io/headless"),
        }
    }
}

fn name_of(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

fn namespace_of(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref();
    namespace.unwrap_or("default").to_owned()
}

/// Converts the fields of an object and keeps the first invalid value.
#[derive(Default)]
struct FieldReader {
    invalid: Option<InvalidField>,
}

impl FieldReader {
    fn reject(&mut self, field: &'static str, value: &(impl ToString + ?Sized)) {
        self.invalid.get_or_insert_with(|| InvalidField {
            field,
            value: value.to_string(),
        });
    }

    fn parse<T: FromStr>(&mut self, field: &'static str, text: &str) -> Option<T> {
        let parsed = text.parse().ok();
        if parsed.is_none() {
            self.reject(field, text);
        }
        parsed
    }

    fn ips<'t>(
        &mut self,
        field: &'static str,
        texts: impl IntoIterator<Item = &'t String>,
    ) -> Vec<IpAddr> {
        let texts = texts.into_iter();
        texts.filter_map(|text| self.parse(field, text)).collect()
    }

    /// Converts a port number; `None` also for 0.
    fn port(&mut self, field: &'static str, number: Option<i32>) -> Option<u16> {
        let number = number?;
        let port = u16::try_from(number).ok();
        if port.is_none() {
            self.reject(field, &number);
        }
        port.filter(|port| *port != 0)
    }

    /// Parses the name of a protocol; no name means TCP.
    fn protocol(&mut self, name: Option<&str>) -> Option<Protocol> {
        match name.unwrap_or_default() {
            "TCP" | "" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "SCTP" => Some(Protocol::Sctp),
            other => {
                self.reject("protocol", other);
                None
            }
        }
    }
}

fn deduplicate(ips: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut unique = Vec::new();
    for ip in ips {
        if !unique.contains(&ip) {
            unique.push(ip);
        }
    }
    unique
}
