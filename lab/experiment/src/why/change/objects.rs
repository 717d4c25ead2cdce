//! Applies changes of Kubernetes objects to a case.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ChangeError;
use svclab_ruleset::Protocol;
use svclab_scenario::Case;

/// Label of a service that another proxy serves.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// Service field that restricts the endpoints of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PolicyField {
    /// Field `externalTrafficPolicy`.
    ExternalTrafficPolicy,
    /// Field `internalTrafficPolicy`.
    InternalTrafficPolicy,
}

/// Change of a field of a service. `port` is the number of the service port to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "set", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ServiceField {
    /// Removes `loadBalancerSourceRanges`.
    NoSourceRanges,
    /// Sets `sessionAffinity` to `None`.
    NoAffinity,
    /// Removes the label by which kube-proxy leaves the service to another proxy.
    NoProxyName,
    /// Removes `ipMode: Proxy` from the addresses of the load balancer.
    NoProxiedAddress,
    /// Sets `ipMode: Proxy` for the addresses of the load balancer.
    ProxiedAddress,
    /// Removes an address from `externalIPs` and from the addresses of the load balancer.
    NoExternalAddress {
        /// Address to remove.
        address: IpAddr,
    },
    /// Sets `port`.
    Port {
        /// Current number.
        port: u16,
        /// New number.
        wanted: u16,
    },
    /// Sets `nodePort`.
    NodePort {
        /// Number of the service port.
        port: u16,
        /// New node port.
        wanted: u16,
    },
    /// Sets `targetPort`.
    TargetPort {
        /// Number of the service port.
        port: u16,
        /// New target port.
        wanted: u16,
    },
    /// Sets `protocol`.
    Protocol {
        /// Number of the service port.
        port: u16,
        /// New protocol.
        #[schemars(with = "String")]
        wanted: Protocol,
    },
    /// Replaces the `EndpointSlices` by those of the selected pods.
    SelectedEndpoints,
    /// Replaces an address of an endpoint in the `EndpointSlices`.
    EndpointAddress {
        /// Current address.
        address: IpAddr,
        /// New address.
        wanted: IpAddr,
    },
    /// Sets `selector`.
    Selector {
        /// Labels of the selected pods.
        labels: BTreeMap<String, String>,
    },
}

impl ServiceField {
    /// Whether both changes concern the same field.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Port { port, .. }, Self::Port { port: of, .. })
            | (Self::NodePort { port, .. }, Self::NodePort { port: of, .. })
            | (Self::TargetPort { port, .. }, Self::TargetPort { port: of, .. })
            | (Self::Protocol { port, .. }, Self::Protocol { port: of, .. }) => port == of,
            (Self::EndpointAddress { address, .. }, Self::EndpointAddress { address: of, .. }) => {
                address == of
            }
            (Self::Selector { .. }, Self::Selector { .. }) => true,
            _ => self == other,
        }
    }
}

/// Sets a traffic policy of a service. Only a service with the external policy `Local` keeps its
/// health check port: the API server clears that of any other (Kubernetes v1.36,
/// `pkg/registry/core/service/strategy.go`, `dropTypeDependentFields`).
pub(super) fn set_policy(
    case: &mut Case,
    service: &str,
    field: PolicyField,
    wanted: &str,
) -> Result<(), ChangeError> {
    edit_service(case, service, |object| {
        let spec = object.spec.as_mut()?;
        let policy = match field {
            PolicyField::ExternalTrafficPolicy => &mut spec.external_traffic_policy,
            PolicyField::InternalTrafficPolicy => &mut spec.internal_traffic_policy,
        };
        *policy = Some(wanted.to_owned());
        if spec.external_traffic_policy.as_deref() != Some("Local") {
            spec.health_check_node_port = None;
        }
        Some(())
    })
}

/// Changes a field of a service, and the slices that are derived from the service.
pub(super) fn set_field(
    case: &mut Case,
    service: &str,
    field: &ServiceField,
) -> Result<(), ChangeError> {
    if *field == ServiceField::SelectedEndpoints {
        let (namespace, name) = service.split_once('/').ok_or_else(missing)?;
        let objects = Arc::make_mut(&mut case.objects);
        let differs = objects.replace_slices(namespace, name);
        return differs.then_some(()).ok_or(ChangeError::NoEffect);
    }
    if let ServiceField::EndpointAddress { address, wanted } = field {
        return set_endpoint_address(case, service, *address, *wanted);
    }
    edit_service(case, service, |object| edit_field(object, field))?;
    Arc::make_mut(&mut case.objects).update_derived_slices();
    Ok(())
}

/// Replaces an address in the slices of a service.
fn set_endpoint_address(
    case: &mut Case,
    service: &str,
    address: IpAddr,
    wanted: IpAddr,
) -> Result<(), ChangeError> {
    let (namespace, name) = service.split_once('/').ok_or_else(missing)?;
    let address = address.to_string();
    let mut result = Err(ChangeError::NoEffect);
    let objects = Arc::make_mut(&mut case.objects);
    for slice in objects.slices_mut(namespace, name) {
        let endpoints = slice.endpoints.iter_mut().flatten();
        let addresses = endpoints.flat_map(|endpoint| &mut endpoint.addresses);
        for own in addresses.filter(|own| **own == address) {
            *own = wanted.to_string();
            result = Ok(());
        }
    }
    result
}

/// Replaces a number among the ports on which the containers of a pod listen.
pub(super) fn set_container_port(
    case: &mut Case,
    pod: &str,
    port: u16,
    wanted: u16,
) -> Result<(), ChangeError> {
    edit_pod(case, pod, |object| {
        let containers = object.spec.iter_mut().flat_map(|spec| &mut spec.containers);
        let mut ports = containers.flat_map(|container| container.ports.iter_mut().flatten());
        let own = ports.find(|own| own.container_port == i32::from(port));
        own.ok_or(ChangeError::NoEffect)?.container_port = i32::from(wanted);
        Ok(())
    })
}

/// Sets the condition `Ready` of a pod to `True`.
pub(super) fn make_pod_ready(case: &mut Case, pod: &str) -> Result<(), ChangeError> {
    edit_pod(case, pod, |object| {
        let status = object.status.get_or_insert_default();
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != "Ready");
        conditions.push(PodCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            ..PodCondition::default()
        });
        Ok(())
    })
}

/// Sets labels of a pod.
pub(super) fn label_pod(
    case: &mut Case,
    pod: &str,
    labels: &BTreeMap<String, String>,
) -> Result<(), ChangeError> {
    edit_pod(case, pod, |object| {
        let own = object.metadata.labels.get_or_insert_default();
        own.extend(labels.clone());
        Ok(())
    })
}

/// Edits a pod, and the slices that are derived from it.
fn edit_pod(
    case: &mut Case,
    pod: &str,
    edit: impl FnOnce(&mut Pod) -> Result<(), ChangeError>,
) -> Result<(), ChangeError> {
    let objects = Arc::make_mut(&mut case.objects);
    let mut pods = objects.pods.iter_mut();
    let found = pods.find(|each| format!("{}/{}", each.namespace, each.name) == pod);
    edit(Arc::make_mut(&mut found.ok_or_else(missing)?.value))?;
    objects.update_derived_slices();
    Ok(())
}

fn missing() -> ChangeError {
    ChangeError::Missing("the lab".to_owned())
}

/// Edits a service. `edit` returns `None` if the service does not have what it changes.
fn edit_service(
    case: &mut Case,
    service: &str,
    edit: impl FnOnce(&mut Service) -> Option<()>,
) -> Result<(), ChangeError> {
    let objects = Arc::make_mut(&mut case.objects);
    let mut services = objects.services.iter_mut();
    let found = services.find(|each| format!("{}/{}", each.namespace, each.name) == service);
    let value = Arc::make_mut(&mut found.ok_or_else(missing)?.value);
    let before = value.clone();
    edit(value).ok_or_else(missing)?;
    if *value == before {
        return Err(ChangeError::NoEffect);
    }
    Ok(())
}

fn edit_field(object: &mut Service, field: &ServiceField) -> Option<()> {
    if matches!(field, ServiceField::NoProxyName) {
        object.metadata.labels.as_mut()?.remove(PROXY_NAME)?;
        return Some(());
    }
    if let ServiceField::NoProxiedAddress | ServiceField::ProxiedAddress = field {
        let is_proxied = *field == ServiceField::ProxiedAddress;
        let balancer = object.status.as_mut()?.load_balancer.as_mut()?;
        for ingress in balancer.ingress.iter_mut().flatten() {
            ingress.ip_mode = is_proxied.then(|| "Proxy".to_owned());
        }
        return Some(());
    }
    if let ServiceField::NoExternalAddress { address } = field {
        let is_it = |text: &str| text.parse() == Ok(*address);
        let balancer = object
            .status
            .as_mut()
            .and_then(|status| status.load_balancer.as_mut());
        if let Some(ingress) = balancer.and_then(|balancer| balancer.ingress.as_mut()) {
            ingress.retain(|own| !own.ip.as_deref().is_some_and(is_it));
        }
        if let Some(addresses) = &mut object.spec.as_mut()?.external_ips {
            addresses.retain(|own| !is_it(own));
        }
        return Some(());
    }
    let spec = object.spec.as_mut()?;
    match field {
        ServiceField::NoSourceRanges => spec.load_balancer_source_ranges = None,
        ServiceField::NoAffinity => {
            spec.session_affinity = Some("None".to_owned());
            spec.session_affinity_config = None;
        }
        ServiceField::Selector { labels } => spec.selector = Some(labels.clone()),
        ServiceField::Port { port, wanted } => port_mut(spec, *port)?.port = i32::from(*wanted),
        ServiceField::NodePort { port, wanted } => {
            port_mut(spec, *port)?.node_port = Some(i32::from(*wanted));
        }
        ServiceField::TargetPort { port, wanted } => {
            port_mut(spec, *port)?.target_port = Some(IntOrString::Int(i32::from(*wanted)));
        }
        ServiceField::Protocol { port, wanted } => {
            port_mut(spec, *port)?.protocol = Some(wanted.to_string().to_uppercase());
        }
        ServiceField::NoProxyName
        | ServiceField::NoProxiedAddress
        | ServiceField::ProxiedAddress
        | ServiceField::NoExternalAddress { .. }
        | ServiceField::SelectedEndpoints
        | ServiceField::EndpointAddress { .. } => {}
    }
    Some(())
}

fn port_mut(spec: &mut ServiceSpec, number: u16) -> Option<&mut ServicePort> {
    let mut ports = spec.ports.iter_mut().flatten();
    ports.find(|port| port.port == i32::from(number))
}
