//! Finds fields of services and of their pods that may be the cause: policies, ports, selectors,
//! and everything that leaves out an endpoint or an address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::Failures;
use crate::why::change::{PolicyField, ProposedChange, ServiceField};
use svclab_judge::{called_service, is_name_suffix, possible_endpoints};
use svclab_model::plan::{Probe, ProbeProtocol};
use svclab_planner::cluster::Pod;
use svclab_rules::objects::{
    EndpointSlice, NODE_PORTS, PortSpec, Service, ServiceType, SliceEndpoint,
};
use svclab_ruleset::Protocol;

/// Maximum number of values that are tried for a field.
const MAX_VALUES: usize = 8;

/// Returns the changes of services that failing connections call.
pub(super) fn service_changes(failures: &Failures<'_>) -> Vec<ProposedChange> {
    let mut changes = Vec::new();
    for service in &failures.cluster.services {
        if is_called(failures, service) {
            changes.extend(policies(failures, service));
            changes.extend(restrictions(failures, service));
            changes.extend(addresses_of_hosts(failures, service));
            changes.extend(endpoints(failures, service));
        }
        changes.extend(ports(failures, service));
    }
    changes
}

/// Whether a failing connection calls the service: by its probe, or by an address to which the
/// packets were rewritten on their way.
fn is_called(failures: &Failures<'_>, service: &Service) -> bool {
    let mut probes = failures.probes();
    let is_target = probes.any(|probe| {
        called_service(failures.cluster, probe).is_some_and(|(called, _)| called == service)
            || service.has_address(probe.target.address)
    });
    let is_node_port = |port: u16| service.ports.iter().any(|own| own.node_port == Some(port));
    let mut hops = failures.hops();
    is_target
        || hops.any(|hop| {
            let to = [hop.before.destination, hop.after.destination];
            to.iter()
                .any(|to| service.has_address(to.ip()) || is_node_port(to.port()))
        })
}

/// Returns the traffic policies that exclude endpoints. For connections that are answered with a
/// wrong result, returns those that exclude no endpoint.
fn policies(failures: &Failures<'_>, service: &Service) -> Vec<ProposedChange> {
    use PolicyField::{ExternalTrafficPolicy, InternalTrafficPolicy};
    let is_answered = failures.has_answers();
    let is_external = matches!(
        service.kind,
        ServiceType::NodePort | ServiceType::LoadBalancer
    ) || !service.external_ips.is_empty();
    let mut changes = Vec::new();
    for (field, is_local) in [
        (ExternalTrafficPolicy, service.external_local),
        (InternalTrafficPolicy, service.internal_local),
    ] {
        let service = service.full_name();
        if is_local {
            changes.push(ProposedChange::ClusterPolicy { service, field });
        } else if is_answered && (field == InternalTrafficPolicy || is_external) {
            changes.push(ProposedChange::LocalPolicy { service, field });
        }
    }
    changes
}

fn change_of(service: &Service, field: ServiceField) -> ProposedChange {
    ProposedChange::ServiceField {
        service: service.full_name(),
        field,
    }
}

/// Returns the removal of fields that leave out clients, endpoints or addresses.
fn restrictions(failures: &Failures<'_>, service: &Service) -> Vec<ProposedChange> {
    // All connections may have drawn an endpoint that does not answer.
    let draws_endpoints = || {
        let mut probes = failures.probes();
        probes.any(|probe| {
            let endpoints = possible_endpoints(failures.cluster, probe);
            endpoints.is_some_and(|endpoints| endpoints.len() > 1)
        })
    };
    let fields = [
        (
            !service.source_ranges.is_empty(),
            ServiceField::NoSourceRanges,
        ),
        (service.labels.other_proxy, ServiceField::NoProxyName),
        (
            service.ingress.iter().any(|ingress| ingress.is_proxied),
            ServiceField::NoProxiedAddress,
        ),
        (
            service.affinity_seconds.is_some() && (failures.has_answers() || draws_endpoints()),
            ServiceField::NoAffinity,
        ),
    ];
    let set = fields.into_iter().filter(|(is_set, _)| *is_set);
    set.map(|(_, field)| change_of(service, field)).collect()
}

/// Returns the changes by which nodes no longer redirect connections to the host that has an external
/// address of the service: `ipMode: Proxy`, and the removal of the address.
fn addresses_of_hosts(failures: &Failures<'_>, service: &Service) -> Vec<ProposedChange> {
    let balancers: BTreeSet<IpAddr> = service.ingress.iter().map(|ingress| ingress.ip).collect();
    let external = service.external_ips.iter().chain(&balancers).copied();
    let is_called = |address: &IpAddr| {
        let mut probes = failures.probes();
        probes.any(|probe| probe.target.address == *address)
    };
    let is_of_host = |address: &IpAddr| {
        let namespaces = failures.plan.namespaces.iter();
        let mut links = namespaces.flat_map(|namespace| &namespace.links);
        links.any(|link| link.addresses.iter().any(|own| own.ip() == *address))
    };
    let found = external.filter(|address| is_called(address) && is_of_host(address));
    let found: BTreeSet<IpAddr> = found.collect();
    let is_of_balancer = found.iter().any(|address| balancers.contains(address));
    let proxied = is_of_balancer.then_some(ServiceField::ProxiedAddress);
    let removed = found.into_iter();
    let removed = removed.map(|address| ServiceField::NoExternalAddress { address });
    let fields = proxied.into_iter().chain(removed);
    fields.map(|field| change_of(service, field)).collect()
}

/// Returns the changes by which the service gets endpoints that serve its ports.
fn endpoints(failures: &Failures<'_>, service: &Service) -> Vec<ProposedChange> {
    let slices = failures.cluster.slices.iter();
    let slices: Vec<_> = slices.filter(|slice| slice.belongs_to(service)).collect();
    let mut changes = Vec::new();
    if slices.iter().all(|slice| slice.endpoints.is_empty()) {
        changes.extend(selectors(failures, service));
    }
    changes.extend(labels(failures, service));
    let differ_from_selected = || {
        let mut objects = (*failures.case.objects).clone();
        objects.replace_slices(&service.namespace, &service.name)
    };
    if !service.selector.is_empty() && differ_from_selected() {
        changes.push(change_of(service, ServiceField::SelectedEndpoints));
    }
    if service.selector.is_empty() {
        changes.extend(addresses(failures, service, &slices));
    }
    for slice in slices {
        let unready = slice.endpoints.iter().filter(|endpoint| !endpoint.ready);
        let pods = unready.filter_map(|endpoint| endpoint.pod.as_ref());
        changes.extend(pods.map(|pod| ProposedChange::MakePodReady {
            pod: format!("{}/{pod}", service.namespace),
        }));
        for port in &service.ports {
            if slice.port_numbers(&port.name).next().is_none() {
                changes.extend(named_target(failures, service, slice, port));
            }
            for number in slice.port_numbers(&port.name) {
                let served = slice.endpoints.iter().flat_map(|endpoint| {
                    other_served_ports(failures, endpoint, (number, port.protocol))
                });
                let served: Vec<(&Pod, u16)> = served.take(MAX_VALUES).collect();
                changes.extend(served.iter().map(|(_, wanted)| {
                    let (port, wanted) = (port.port, *wanted);
                    change_of(service, ServiceField::TargetPort { port, wanted })
                }));
                changes.extend(
                    served
                        .iter()
                        .map(|(pod, port)| ProposedChange::ContainerPort {
                            pod: format!("{}/{}", pod.namespace, pod.name),
                            port: *port,
                            wanted: number,
                        }),
                );
            }
        }
    }
    changes
}

/// Returns the ports that pods serve in place of a target port whose name no container has.
fn named_target(
    failures: &Failures<'_>,
    service: &Service,
    slice: &EndpointSlice,
    port: &PortSpec,
) -> Vec<ProposedChange> {
    // No server has port 0.
    let served = slice
        .endpoints
        .iter()
        .flat_map(|endpoint| other_served_ports(failures, endpoint, (0, port.protocol)));
    let mut numbers: Vec<u16> = served.map(|(_, number)| number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let numbers = numbers.into_iter().take(MAX_VALUES);
    let port = port.port;
    numbers
        .map(|wanted| change_of(service, ServiceField::TargetPort { port, wanted }))
        .collect()
}

/// Returns the addresses of expected pods in place of those of endpoints that are no pods.
fn addresses(
    failures: &Failures<'_>,
    service: &Service,
    slices: &[&EndpointSlice],
) -> Vec<ProposedChange> {
    let names = expected_endpoints(failures, service);
    let pods = &failures.cluster.pods;
    let expected = pods.iter().filter(|pod| {
        let reference = pod.reference();
        names.iter().any(|name| is_name_suffix(&reference, name))
    });
    let expected: Vec<IpAddr> = expected.flat_map(|pod| pod.ips.clone()).collect();
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    let unknown = endpoints.flat_map(|endpoint| &endpoint.addresses);
    let unknown = unknown.filter(|own| !pods.iter().any(|pod| pod.ips.contains(own)));
    let changes = unknown.flat_map(|address| {
        let is_same_family = |wanted: &&IpAddr| wanted.is_ipv4() == address.is_ipv4();
        let wanted = expected.iter().filter(is_same_family);
        wanted.map(|wanted| {
            let (address, wanted) = (*address, *wanted);
            change_of(service, ServiceField::EndpointAddress { address, wanted })
        })
    });
    changes.take(MAX_VALUES).collect()
}

/// Returns the pod of an endpoint with each port that it serves, if it does not serve this one.
fn other_served_ports<'c>(
    failures: &Failures<'c>,
    endpoint: &SliceEndpoint,
    (number, protocol): (u16, Protocol),
) -> Vec<(&'c Pod, u16)> {
    let cluster = failures.cluster;
    let mut pods = cluster.pods.iter().filter(|pod| !pod.host_network);
    let pod = pods.find(|pod| endpoint.addresses.iter().any(|own| pod.ips.contains(own)));
    let Some(pod) = pod else {
        return Vec::new();
    };
    let name = pod.reference();
    let is_protocol = |served: ProbeProtocol| Protocol::try_from(served) == Ok(protocol);
    let served = cluster.serving.iter();
    let served = served.filter(|served| served.netns == name && is_protocol(served.protocol));
    let ports: Vec<(&Pod, u16)> = served.map(|served| (pod, served.port)).collect();
    if ports.iter().any(|(_, port)| *port == number) {
        Vec::new()
    } else {
        ports
    }
}

/// Returns selectors with the labels of pods.
fn selectors(failures: &Failures<'_>, service: &Service) -> Vec<ProposedChange> {
    let mut tried: Vec<BTreeMap<String, String>> = Vec::new();
    if service.selector.is_empty() {
        return Vec::new();
    }
    let pods = failures.case.objects.pods.iter();
    for pod in pods.filter(|pod| pod.namespace == service.namespace) {
        let labels = pod.value.metadata.labels.clone().unwrap_or_default();
        if !labels.is_empty() && !tried.contains(&labels) && tried.len() < MAX_VALUES {
            tried.push(labels);
        }
    }
    let to_change = |labels| change_of(service, ServiceField::Selector { labels });
    tried.into_iter().map(to_change).collect()
}

/// Returns the names of the endpoints that the lab expects for failing probes of a service.
fn expected_endpoints<'c>(failures: &Failures<'c>, service: &Service) -> BTreeSet<&'c String> {
    let expected = &failures.case.expected().expected.probes;
    let calls = |probe: &&Probe| {
        called_service(failures.cluster, probe).is_some_and(|(called, _)| called == service)
    };
    let probes = failures.probes().filter(calls);
    let expected = probes.filter_map(|probe| expected.get(&probe.name)?.endpoints.as_ref());
    expected.flatten().collect()
}

/// Returns the labels with which the service selects pods that the lab expects as endpoints.
fn labels(failures: &Failures<'_>, service: &Service) -> Vec<ProposedChange> {
    let selector = &service.selector;
    if selector.is_empty() {
        return Vec::new();
    }
    let names = expected_endpoints(failures, service);
    let pods = failures.case.objects.pods.iter();
    let pods = pods.filter(|pod| {
        let reference = format!("pod/{}/{}", pod.namespace, pod.name);
        let labels = pod.value.metadata.labels.as_ref();
        let has = |(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value);
        pod.namespace == service.namespace
            && names.iter().any(|name| is_name_suffix(&reference, name))
            && !selector.iter().all(has)
    });
    let changes = pods.map(|pod| ProposedChange::LabelPod {
        pod: format!("{}/{}", pod.namespace, pod.name),
        labels: selector.clone(),
    });
    changes.take(MAX_VALUES).collect()
}

/// Returns the changes by which the service gets a port that failing connections call.
fn ports(failures: &Failures<'_>, service: &Service) -> Vec<ProposedChange> {
    let mut changes = Vec::new();
    for probe in failures.probes() {
        let Ok(protocol) = Protocol::try_from(probe.protocol) else {
            continue;
        };
        let target: SocketAddr = probe.target.socket();
        let number = target.port();
        let is_port = |own: &&PortSpec| own.port == number;
        if service.has_address(target.ip()) {
            let with_number: Vec<&PortSpec> = service.ports.iter().filter(is_port).collect();
            if with_number.iter().any(|own| own.protocol == protocol) {
                continue;
            }
            let other_protocol = with_number.iter().map(|own| ServiceField::Protocol {
                port: own.port,
                wanted: protocol,
            });
            changes.extend(other_protocol.map(|field| change_of(service, field)));
            let renumbered = service.ports.iter().filter(|own| own.protocol == protocol);
            changes.extend(renumbered.take(MAX_VALUES).map(|own| {
                let (port, wanted) = (own.port, number);
                change_of(service, ServiceField::Port { port, wanted })
            }));
        } else if NODE_PORTS.contains(&number) && is_unknown_node_port(failures, target, protocol) {
            let own = service.ports.iter();
            let own = own.filter(|own| own.protocol == protocol && own.node_port.is_some());
            changes.extend(own.map(|own| {
                let (port, wanted) = (own.port, number);
                change_of(service, ServiceField::NodePort { port, wanted })
            }));
        }
    }
    changes
}

/// Whether the target is a port of a node that no service has and nothing serves.
fn is_unknown_node_port(failures: &Failures<'_>, target: SocketAddr, protocol: Protocol) -> bool {
    let cluster = failures.cluster;
    let is_at = |ip| target.ip() == ip;
    let mut nodes = cluster.nodes.iter();
    let node = nodes.find(|node| node.addresses.iter().any(|own| is_at(own.ip())));
    let mut ports = cluster.services.iter().flat_map(|service| &service.ports);
    let is_known =
        ports.any(|port| port.node_port == Some(target.port()) && port.protocol == protocol);
    node.is_some_and(|node| {
        let mut served = cluster.serving.iter();
        !is_known && !served.any(|own| own.netns == node.name && own.port == target.port())
    })
}
