//! Refuses pods that an API server would refuse.

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod, PodStatus, Probe};

use super::{
    check_address, check_optional_port, check_port_number, check_port_reference, check_protocol,
};
use crate::yaml::tree::{PathSegment, Tree};
use svclab_diagnostic::Diagnostic;

/// Checks the addresses and ports of a pod as the API server does (Kubernetes v1.36,
/// `pkg/apis/core/validation/validation.go`, `validateContainerPorts`, `validateHTTPGetAction`).
pub(crate) fn check_pod(pod: &Pod, tree: &Tree) -> Result<(), Diagnostic> {
    if let Some(status) = &pod.status {
        check_addresses(status, tree)?;
    }
    let Some(spec) = &pod.spec else {
        return Ok(());
    };
    let lists = [
        ("containers", Some(&spec.containers)),
        ("initContainers", spec.init_containers.as_ref()),
    ];
    for (list, containers) in lists {
        for (index, container) in containers.into_iter().flatten().enumerate() {
            check_container(container, tree, crate::path!["spec", list, index])?;
        }
    }
    Ok(())
}

fn check_addresses(status: &PodStatus, tree: &Tree) -> Result<(), Diagnostic> {
    if let Some(text) = &status.pod_ip {
        check_address(tree, crate::path!["status", "podIP"], text)?;
    }
    for (index, address) in status.pod_ips.iter().flatten().enumerate() {
        let path = crate::path!["status", "podIPs", index, "ip"];
        check_address(tree, path, &address.ip)?;
    }
    Ok(())
}

fn check_container(
    container: &Container,
    tree: &Tree,
    path: &[PathSegment],
) -> Result<(), Diagnostic> {
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let path = |name: &str| [path, crate::path!["ports", index, name]].concat();
        check_protocol(tree, &path("protocol"), port.protocol.as_deref())?;
        check_port_number(tree, &path("containerPort"), port.container_port)?;
        check_optional_port(tree, &path("hostPort"), port.host_port)?;
    }
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (name, probe) in probes {
        if let Some(probe) = probe {
            check_probe(probe, tree, &[path, crate::path![name]].concat())?;
        }
    }
    let lifecycle = container.lifecycle.as_ref();
    let handlers = [
        (
            "postStart",
            lifecycle.and_then(|hooks| hooks.post_start.as_ref()),
        ),
        (
            "preStop",
            lifecycle.and_then(|hooks| hooks.pre_stop.as_ref()),
        ),
    ];
    for (name, handler) in handlers {
        if let Some(LifecycleHandler {
            http_get,
            tcp_socket,
            ..
        }) = handler
        {
            let path =
                |action: &str| [path, crate::path!["lifecycle", name, action, "port"]].concat();
            if let Some(action) = http_get {
                check_port_reference(tree, &path("httpGet"), &action.port)?;
            }
            if let Some(action) = tcp_socket {
                check_port_reference(tree, &path("tcpSocket"), &action.port)?;
            }
        }
    }
    Ok(())
}

fn check_probe(probe: &Probe, tree: &Tree, path: &[PathSegment]) -> Result<(), Diagnostic> {
    let path = |action: &str| [path, crate::path![action, "port"]].concat();
    if let Some(action) = &probe.http_get {
        check_port_reference(tree, &path("httpGet"), &action.port)?;
    }
    if let Some(action) = &probe.tcp_socket {
        check_port_reference(tree, &path("tcpSocket"), &action.port)?;
    }
    if let Some(action) = &probe.grpc {
        check_port_number(tree, &path("grpc"), action.port)?;
    }
    Ok(())
}
