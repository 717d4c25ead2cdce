//! Resolves the names in the probes of a lab to namespaces and addresses.

mod after_chain;
pub(crate) mod held_ports;
mod node_ports;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::cluster::{Cluster, NameError, ObjectName, Problem, Reference, place};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_model::plan::{Lifetime, Namespace, Probe, ProbeProtocol, Target};
use svclab_rules::objects::Service;
use svclab_ruleset::Protocol;
use svclab_scenario::expectation::ProbeExpectation;
use svclab_scenario::lab;
use svclab_scenario::tree::PathSegment;

use crate::build::PlanInput;

/// Resolves the probes that start in a stage, in the order of the lab.
pub fn resolve(
    order: &PlanInput<'_>,
    stage: usize,
    namespaces: &[Namespace],
    problems: &mut Vec<Problem>,
) -> Vec<Probe> {
    let next_step = order.stages.get(stage + 1).and_then(|next| next.step);
    let mut planned = Vec::new();
    for (declared_in, input) in order.stages.iter().enumerate() {
        for (name, probe) in input.probes {
            let lifetime = match probe.across.as_deref() {
                None if declared_in == stage => Lifetime::Stage,
                Some(across) if next_step == Some(across) => Lifetime::Opened,
                _ => continue,
            };
            match resolve_probe(order, (stage, declared_in), namespaces, (name, probe)) {
                Ok(probe) => planned.push(Probe { lifetime, ..probe }),
                Err(problem) => problems.push(problem.at_stage(stage)),
            }
        }
    }
    planned
}

fn resolve_probe(
    order: &PlanInput<'_>,
    (stage, declared_in): (usize, usize),
    namespaces: &[Namespace],
    (name, probe): (&String, &lab::Probe),
) -> Result<Probe, Box<Problem>> {
    let cluster = order.stages[stage].cluster;
    let field_path = |field: &str| -> Vec<PathSegment> {
        match declared_in.checked_sub(1) {
            None => place!["spec", "probes", name, field].into(),
            Some(step) => place!["spec", "steps", step, "probes", name, field].into(),
        }
    };
    let problem_at = |(field, error): (&str, NameError)| {
        Box::new(Problem::at_path(field_path(field), error.message).with_help(error.help))
    };
    let longest = order.max_wait.limit;
    let mut planned = plan_probe(cluster, namespaces, name, probe, longest).map_err(problem_at)?;
    // The proof of a timeout follows one datagram without fragments.
    let is_provable =
        probe.protocol == ProbeProtocol::Tcp || (probe.bytes, probe.datagrams) == (None, None);
    planned.settle =
        order.max_wait.settle && is_provable && can_settle_timeout(order, cluster, name, probe);
    if let Some(after) = &probe.after {
        after_chain::check_after_chain(order.stages[declared_in].probes, name, after)
            .map_err(|error| problem_at(("after", error)))?;
    }
    if let Some(expected) = order.row.expected.probes.get(name)
        && requires_reply(expected)
    {
        check_server_exists(cluster, probe, planned.target)
            .map_err(|error| problem_at(("to", error)))?;
    }
    Ok(planned)
}

/// Resolves a probe of a lab to namespaces and addresses. The given maximum wait applies to a probe
/// without its own.
///
/// # Errors
///
/// Returns the field with an invalid value, and the reason.
pub fn plan_probe(
    cluster: &Cluster,
    namespaces: &[Namespace],
    name: &str,
    probe: &lab::Probe,
    default_max_wait: Duration,
) -> Result<Probe, (&'static str, NameError)> {
    let at_field = |field| move |error| (field, error);
    let from = cluster
        .source_namespace(&probe.from)
        .map_err(at_field("from"))?;
    let own_addresses: Vec<IpAddr> = namespaces
        .iter()
        .filter(|namespace| namespace.name == from)
        .flat_map(|namespace| {
            namespace
                .links
                .iter()
                .flat_map(|link| link.addresses.iter().map(ipnetwork::IpNetwork::ip))
        })
        .collect();
    let to = resolve_target(cluster, &own_addresses, probe).map_err(at_field("to"))?;
    let bind = probe
        .bind
        .as_deref()
        .map(|bind| resolve_bind(cluster, &own_addresses, bind, to.address))
        .transpose()
        .map_err(at_field("bind"))?;
    Ok(Probe {
        name: name.to_owned(),
        namespace: from,
        target: to,
        protocol: probe.protocol,
        connections: probe.connections,
        concurrency: probe.concurrency,
        bind,
        source_port: probe.source_port,
        bytes: probe.bytes,
        datagrams: probe.datagrams.unwrap_or(NonZeroU32::MIN),
        max_wait: probe.max_wait.unwrap_or(default_max_wait),
        settle: false,
        after: probe.after.clone(),
        lifetime: Lifetime::Stage,
    })
}

fn resolve_target(
    cluster: &Cluster,
    own_addresses: &[IpAddr],
    probe: &lab::Probe,
) -> Result<Target, NameError> {
    let reference = Reference::parse(&probe.to)?;
    let addresses = cluster.addresses(&reference.name)?;
    // Uses the first address of a family that the source has, otherwise the first address.
    let address = addresses
        .iter()
        .find(|address| {
            own_addresses
                .iter()
                .any(|mine| mine.is_ipv4() == address.is_ipv4())
        })
        .or(addresses.first())
        .copied()
        .ok_or_else(|| NameError {
            message: format!("`{}` has no address", probe.to),
            help: None,
        })?;
    let error = |message: String, help: Option<String>| NameError { message, help };
    let port = match (&reference.port, probe.protocol) {
        (None, ProbeProtocol::Ping) => 0,
        (Some(_), ProbeProtocol::Ping) => {
            return Err(error(
                format!("`{}`: a ping has no port", probe.to),
                Some(format!("write `{}`", reference.name)),
            ));
        }
        (None, _) => {
            return Err(error(
                format!("`{}` has no port", probe.to),
                Some(format!("write `{}:80`", reference.name)),
            ));
        }
        (Some(port), _) => match port.parse::<u16>() {
            Ok(0) => return Err(error("0 is not a valid port".to_owned(), None)),
            Ok(port) => port,
            Err(_) => named_port(cluster, &reference, port)?,
        },
    };
    if let Some(name) = sctp_only_service(cluster, address, port) {
        return Err(error(
            format!("port {port} of {name} uses SCTP, which probes do not support"),
            Some("probes support TCP, UDP and ping".to_owned()),
        ));
    }
    Ok(Target { address, port })
}

/// Returns the service at this address and port if all such services use SCTP.
fn sctp_only_service(cluster: &Cluster, address: IpAddr, port: u16) -> Option<String> {
    let mut nodes = cluster.nodes.iter();
    let is_node = nodes.any(|node| node.addresses.iter().any(|own| own.ip() == address));
    let mut found = None;
    for service in &cluster.services {
        for service_port in &service.ports {
            let is_target = service_port.port == port && service.has_address(address)
                || is_node && service_port.node_port == Some(port);
            if !is_target {
                continue;
            }
            if service_port.protocol != Protocol::Sctp {
                return None;
            }
            found = Some(format!("service/{}", service.full_name()));
        }
    }
    found
}

/// Resolves the name of a service port to its number.
fn named_port(cluster: &Cluster, reference: &Reference, port: &str) -> Result<u16, NameError> {
    let ports = cluster
        .service(&reference.name)
        .map(|service| &service.ports)
        .filter(|ports| !ports.is_empty())
        .ok_or_else(|| NameError {
            message: format!("`{port}` is not a port number"),
            help: Some("write a number: only ports of services have names".to_owned()),
        })?;
    ports
        .iter()
        .find(|each| each.name == port)
        .map(|each| each.port)
        .ok_or_else(|| NameError {
            message: format!("{} has no port named `{port}`", reference.name),
            help: did_you_mean(
                port,
                ports
                    .iter()
                    .map(|each| each.name.as_str())
                    .filter(|name| !name.is_empty()),
            ),
        })
}

fn resolve_bind(
    cluster: &Cluster,
    own_addresses: &[IpAddr],
    bind: &str,
    to: IpAddr,
) -> Result<IpAddr, NameError> {
    let reference = Reference::parse(bind)?;
    if let Some(port) = &reference.port {
        return Err(NameError {
            message: format!("`{bind}` has port `{port}`, but a probe binds to an address only"),
            help: Some(format!("write `{}`", reference.name)),
        });
    }
    let addresses = cluster.addresses(&reference.name)?;
    addresses
        .into_iter()
        .find(|address| own_addresses.contains(address) && address.is_ipv4() == to.is_ipv4())
        .ok_or_else(|| NameError {
            message: format!("`{bind}` is not an address of the source"),
            help: Some(format!(
                "the source has {}",
                own_addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        })
}

/// Whether an expectation requires a reply.
fn requires_reply(expected: &ProbeExpectation) -> bool {
    let is_positive =
        |count: Option<svclab_scenario::count::Count>| count.is_some_and(|count| count.min() > 0);
    is_positive(expected.connected)
        || is_positive(expected.answered)
        || expected
            .endpoints
            .as_ref()
            .is_some_and(|pods| !pods.is_empty())
}

/// Whether a timeout of a probe may be settled before the maximum wait has passed. The lab must
/// expect a timeout, so that all necessary evidence is recorded, and must not expect
/// retransmissions.
fn can_settle_timeout(
    order: &PlanInput<'_>,
    cluster: &Cluster,
    name: &str,
    probe: &lab::Probe,
) -> bool {
    let expected = order.row.expected.probes.get(name);
    let timeout = expected.and_then(|expected| expected.timeout);
    let claimed = order
        .row
        .claims
        .iter()
        .filter_map(|claim| claim.says.as_ref());
    let expects_retransmissions = claimed
        .chain([&order.row.expected])
        .flat_map(|expected| &expected.wire)
        .any(|wire| wire.resent.is_some());
    // The plan does not contain what a real kube-proxy does next.
    let generated = cluster.nodes.iter().all(|node| {
        let proxy = node.kube_proxy.as_ref();
        proxy.is_none_or(|proxy| proxy.binary.is_none())
    });
    generated
        && probe.max_wait.is_none()
        && probe.across.is_none()
        && !expects_retransmissions
        && timeout.is_some_and(|count| count.max() != Some(0))
}

/// Checks that a server exists for a probe that must receive a reply.
fn check_server_exists(cluster: &Cluster, probe: &lab::Probe, to: Target) -> Result<(), NameError> {
    let reference = Reference::parse(&probe.to)?;
    if probe.protocol == ProbeProtocol::Ping {
        return Ok(());
    }
    if let Some(service) = cluster.service(&reference.name) {
        return check_service_has_endpoints(cluster, service, probe, to.port);
    }
    let netns = match &reference.name {
        ObjectName::Pod(..) => cluster.source_namespace(&reference.name.to_string())?,
        name => match (node_ports::target_node(cluster, name), name) {
            (Some(node), _) if node_ports::may_serve(cluster, node, to, probe.protocol) => {
                return Ok(());
            }
            (Some(node), _) => node.name.clone(),
            (None, ObjectName::Machine(host)) => host.clone(),
            _ => return Ok(()),
        },
    };
    let ports: Vec<u16> = cluster
        .serving
        .iter()
        .filter(|serving| serving.netns == netns && serving.protocol == probe.protocol)
        .map(|serving| serving.port)
        .collect();
    if ports.contains(&to.port) {
        return Ok(());
    }
    let served: Vec<String> = ports.iter().map(ToString::to_string).collect();
    let node_port = node_ports::describe_port(cluster, &reference.name, probe.protocol, to.port);
    Err(NameError {
        message: format!(
            "no server listens on {} port {} of {}",
            probe.protocol, to.port, reference.name
        ),
        help: Some(if let Some(node_port) = node_port {
            node_port
        } else if served.is_empty() {
            format!("it has no {} servers", probe.protocol)
        } else {
            format!("ports with servers: {}", served.join(", "))
        }),
    })
}

fn check_service_has_endpoints(
    cluster: &Cluster,
    service: &Service,
    probe: &lab::Probe,
    port: u16,
) -> Result<(), NameError> {
    let name = service.full_name();
    let ports = service.ports.iter().map(|port| port.port);
    if !ports.clone().any(|own| own == port) {
        let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
        let owner = node_ports::describe_owner(cluster, probe.protocol, port);
        let owner = owner.map_or_else(String::new, |owner| format!("; {owner}"));
        return Err(NameError {
            message: format!("service {name} has no port {port}"),
            help: Some(format!("its ports are {}{owner}", ports.join(", "))),
        });
    }
    let mut slices = cluster.slices.iter();
    if slices.any(|slice| slice.belongs_to(service) && !slice.endpoints.is_empty()) {
        return Ok(());
    }
    let selector = service.selector.iter();
    let selector: Vec<String> = selector
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    Err(NameError {
        message: format!(
            "service {name} has no endpoints, so `{}` cannot reply",
            probe.to
        ),
        help: Some(if selector.is_empty() {
            "the service has no selector: write an EndpointSlice for it".to_owned()
        } else {
            format!(
                "no ready pod in {} has the labels {}",
                service.namespace,
                selector.join(", ")
            )
        }),
    })
}
