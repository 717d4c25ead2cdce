//! Implements `svclab rules`.

use std::fs;
use std::io;
use std::path::Path;

use crate::cli::args::RulesArguments;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{output_width, print, print_diagnostics, print_message, print_note};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::files;
use svclab_diagnostic::source::{Source, Sources};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_model::evidence::StageEvidence;
use svclab_model::plan::Plan;
use svclab_planner::build::{declare_kubelet_chain, kube_proxy_plan};
use svclab_planner::node_rules::{READ_BACK_FILES, program_inputs, read_back};
use svclab_report::version_history::version_history;
use svclab_rules::kube_proxy::history::NFT_OBEYS_MASQUERADE_FLAG;
use svclab_rules::kube_proxy::services::ignore_reason;
use svclab_rules::kube_proxy::{self, DetectLocalMode, KubeProxy, KubeProxyError, Mode, Version};
use svclab_rules::objects::Service;
use svclab_runner::kernel::{KernelError, KernelSelector};
use svclab_scenario::objects::{Object, Objects};
use svclab_scenario::reference::{DocumentRef, ObjectKind};
use svclab_scenario::{FileAccess, with_object_files};

/// Prints the rules that kube-proxy writes on a node, or the history of a version.
pub(crate) fn rules(arguments: &RulesArguments) -> CommandResult {
    let version = match (arguments.history, arguments.kube_version) {
        (Some(version), _) => {
            print(&version_history(version, output_width()))?;
            return Ok(Outcome::SUCCESS);
        }
        (None, Some(version)) => version,
        // clap requires one of both.
        (None, None) => return Err(CliError::nothing_selected()),
    };
    let (sources, objects) = read_objects(arguments)?;
    let mut plan = build_plan(arguments, version, &objects)
        .map_err(|diagnostic| CliError::invalid_input(&sources, vec![diagnostic]))?;
    if arguments.verbose {
        print_ignored(&objects, version);
    }
    match &arguments.read_back {
        None => print(&program_inputs(&plan))?,
        Some(directory) => {
            declare_kubelet_chain(&mut plan);
            let node = plan.case.clone();
            let evidence = run_interruptible(load_rules(arguments, plan))??;
            write_rules(directory, &evidence, &node).map_err(|source| CliError::Write {
                target: format!("to {}", directory.display()),
                source,
                help: Some("give a writable directory with --read-back"),
            })?;
        }
    }
    Ok(Outcome::SUCCESS)
}

fn read_objects(arguments: &RulesArguments) -> Result<(Sources, Objects), CliError> {
    let files: Result<Vec<Source>, _> = arguments
        .files
        .iter()
        .map(|path| Source::read(path))
        .collect();
    let sources = with_object_files(files?, FileAccess::LabDirectory)?;
    match Objects::load(&sources) {
        Ok((objects, warnings)) => {
            print_diagnostics(&sources, &warnings);
            Ok((sources, objects))
        }
        Err(diagnostics) => Err(CliError::invalid_input(&sources, diagnostics)),
    }
}

/// Returns the configuration of kube-proxy from the arguments.
fn kube_proxy_config(arguments: &RulesArguments, version: Version) -> KubeProxy {
    let defaults = KubeProxy::new(version);
    // nftables mode ignores flags with the name of another mode.
    let (masquerade_all, masquerade_bit) = if arguments.proxy_mode == Mode::Nftables {
        let is_supported = version.has(&NFT_OBEYS_MASQUERADE_FLAG);
        (
            arguments.masquerade_all && is_supported,
            defaults.masquerade_bit,
        )
    } else {
        (arguments.masquerade_all, arguments.iptables_masquerade_bit)
    };
    KubeProxy {
        mode: arguments.proxy_mode,
        cluster_cidr: arguments.cluster_cidr.clone(),
        detect_local_mode: arguments.detect_local_mode,
        bridge_interface: arguments.pod_bridge_interface.clone(),
        interface_name_prefix: arguments.pod_interface_name_prefix.clone(),
        masquerade_all,
        masquerade_bit,
        node_port_addresses: arguments.nodeport_addresses.clone(),
        ipvs_scheduler: arguments.ipvs_scheduler.clone(),
        strict_arp: arguments.ipvs_strict_arp,
        localhost_node_ports: arguments.iptables_localhost_nodeports,
        tcp_be_liberal: arguments.conntrack_tcp_be_liberal,
        random_fully: !arguments.no_random_fully,
        accounting: !arguments.no_nfacct,
        ..defaults
    }
}

fn build_plan(
    arguments: &RulesArguments,
    version: Version,
    objects: &Objects,
) -> Result<Plan, Diagnostic> {
    let proxy = kube_proxy_config(arguments, version);
    if let Some(since) = proxy.lacks_dual_stack() {
        return Err(Diagnostic::error(format!(
            "kube-proxy {version} accepts only one network in --cluster-cidr"
        ))
        .with_help(format!(
            "use v1.{since} or newer, or the network of one address family"
        )));
    }
    let nodes = convert_all(&objects.nodes);
    let services = convert_all(&objects.services);
    let slices = convert_all(&objects.endpoint_slices);
    let service_cidrs = convert_all(&objects.service_cidrs);
    let proxy_objects = kube_proxy::Objects {
        node: selected_node(arguments, objects)?,
        nodes: &nodes,
        services: &services,
        endpoint_slices: &slices,
        service_cidrs: &service_cidrs,
        interface_addresses: &[],
    };
    kube_proxy_plan(&proxy, &proxy_objects, arguments.iptables)
        .map_err(|error| error_diagnostic(&error, objects))
}

fn convert_all<'o, T, U: From<&'o T>>(objects: &'o [Object<T>]) -> Vec<U> {
    let values = objects.iter().map(|object| object.value.as_ref());
    values.map(U::from).collect()
}

/// Returns the name of the selected node.
fn selected_node<'a>(
    arguments: &'a RulesArguments,
    objects: &'a Objects,
) -> Result<&'a str, Diagnostic> {
    let names = objects.nodes.iter().map(|node| node.name.as_str());
    match (&arguments.node, objects.nodes.as_slice()) {
        (Some(name), _) if objects.node(name).is_some() => Ok(name),
        (Some(name), _) => Err(
            Diagnostic::error(format!("the files contain no Node `{name}`"))
                .with_optional_help(did_you_mean(name, names)),
        ),
        (None, [only]) => Ok(&only.name),
        (None, []) => Err(Diagnostic::error("the files contain no Node").with_help(
            "give a file with the node that kube-proxy runs on: `kubectl get node -o yaml`",
        )),
        (None, _) => Err(
            Diagnostic::error("the files contain several Nodes").with_help(format!(
                "select one with --node: {}",
                names.collect::<Vec<_>>().join(", ")
            )),
        ),
    }
}

/// Builds a diagnostic for an error of kube-proxy, with the span of the invalid value.
fn error_diagnostic(error: &KubeProxyError, objects: &Objects) -> Diagnostic {
    let (kind, object, value) = match error {
        KubeProxyError::Service { service, value, .. } => (ObjectKind::Service, service, value),
        KubeProxyError::EndpointSlice { slice, value, .. } => {
            (ObjectKind::EndpointSlice, slice, value)
        }
        KubeProxyError::PodCidr { node, value } => (ObjectKind::Node, node, value),
        KubeProxyError::ServiceCidr { name, value } => (ObjectKind::ServiceCidr, name, value),
        KubeProxyError::UnsupportedMode { since, .. } => {
            return Diagnostic::error(error.to_string())
                .with_help(format!("use v1.{since} or newer, or another --proxy-mode"));
        }
        KubeProxyError::MissingDetectLocalField { mode, .. } => {
            let flag = match mode {
                DetectLocalMode::BridgeInterface => Some("--pod-bridge-interface"),
                DetectLocalMode::InterfaceNamePrefix => Some("--pod-interface-name-prefix"),
                DetectLocalMode::ClusterCIDR | DetectLocalMode::NodeCIDR => None,
            };
            let help = flag.map(|flag| format!("set it with {flag}"));
            return Diagnostic::error(error.to_string()).with_optional_help(help);
        }
        KubeProxyError::UnsupportedDetectLocalMode { .. } => {
            return Diagnostic::error(error.to_string()).with_help(
                "use a version that supports it, or detect local traffic with --cluster-cidr",
            );
        }
        _ => return Diagnostic::error(error.to_string()),
    };
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    let tree = objects.tree(&DocumentRef::object(kind, namespace, name));
    let diagnostic = Diagnostic::error(error.to_string());
    match tree.and_then(|tree| tree.find_text(value)) {
        Some(span) => diagnostic.with_position(span, "not valid"),
        None => diagnostic,
    }
}

/// Prints the objects that kube-proxy ignores to standard error.
fn print_ignored(objects: &Objects, version: Version) {
    for service in &objects.services {
        if let Some(why) = ignore_reason(&Service::from(service.value.as_ref()), version) {
            print_message(format_args!(
                "ignored: service {}/{} {why}",
                service.namespace, service.name
            ));
        }
    }
    for slice in &objects.endpoint_slices {
        if slice.value.address_type == "FQDN" {
            print_message(format_args!(
                "ignored: endpoint slice {}/{} contains names, not addresses",
                slice.namespace, slice.name
            ));
        }
    }
    for (kind, count) in &objects.ignored {
        print_message(format_args!("ignored: {count} of kind {kind}"));
    }
}

async fn load_rules(arguments: &RulesArguments, plan: Plan) -> Result<StageEvidence, KernelError> {
    let kernels = KernelSelector::new(arguments.kernels.choice()).with_notice(print_note);
    let kernel = kernels.for_plan(&plan).await?.into_iter().next();
    let Some(kernel) = kernel else {
        return Ok(StageEvidence::default());
    };
    let agent = kernel.start().await?;
    let mut session = agent.build(plan).await?;
    let mut evidence = session.probe().await?;
    Ok(evidence.stages.pop().unwrap_or_default())
}

/// Writes the rules that the kernel returned, and removes the files of earlier runs.
fn write_rules(directory: &Path, evidence: &StageEvidence, node: &str) -> io::Result<()> {
    files::create_output_directory(directory)?;
    for name in READ_BACK_FILES {
        match fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    for (name, text) in read_back(evidence, node) {
        files::write_file(&directory.join(name), |out| out.write_all(text.as_bytes()))?;
    }
    Ok(())
}
