//! Builds the namespaces of a lab: their interfaces, addresses, routes and virtual servers, while
//! their rules are loaded.

use std::rc::Rc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::yield_now;

use crate::lab::begin;
use crate::net::netfilter::accounting;
use crate::net::netlink::{self, FIRST_INDEX, NamespaceNetlink, links};
use crate::net::netns::NetNs;
use crate::net::ports::Ports;
use crate::net::{ipvs, sysctl};
use crate::rules::{self, PendingLoad};
use crate::runtime::failure;
use crate::runtime::profile::Phases;
use crate::sandbox::tenant::Tenant;
use svclab_model::plan::Plan;
use svclab_model::protocol::Failure;
use svclab_model::protocol::profile::Phase;

/// Namespaces in the order of the plan, each with its netlink connection.
pub(super) type BuiltNamespaces = Vec<(NetNs, NamespaceNetlink)>;

/// Builds everything but the rules, which are loaded meanwhile: `rules` receives those of each
/// namespace once the namespace exists. Other tasks run after each namespace.
pub(super) async fn build<'p>(
    plan: &'p Plan,
    stays_running: bool,
    step: &impl Fn(String),
    rules: UnboundedSender<PendingLoad<'p>>,
) -> Result<BuiltNamespaces, Failure> {
    begin(step, "create its namespaces").await;
    let (built, waiting) = create_namespaces(plan, stays_running, &rules).await?;
    begin(step, "create its interfaces while its rules load").await;
    connect(plan, &built).await?;
    send_all(&rules, waiting);
    begin(step, "add its routes and neighbours while its rules load").await;
    add_routes(plan, &built).await?;
    begin(step, "load its rules").await;
    Ok(built)
}

/// Creates the namespaces without interfaces, and starts the programs that load their rules. Returns
/// the rules that wait for interfaces.
async fn create_namespaces<'p>(
    plan: &'p Plan,
    stays_running: bool,
    rules: &UnboundedSender<PendingLoad<'p>>,
) -> Result<(BuiltNamespaces, Vec<PendingLoad<'p>>), Failure> {
    let tenant = Tenant::new().map_err(|error| failure::cannot_prepare_programs(&error))?;
    let ports = Rc::default();
    let mut built = Vec::with_capacity(plan.namespaces.len());
    let mut waiting = Vec::new();
    let (mut started, mut next_index) = (0, FIRST_INDEX);
    for namespace in &plan.namespaces {
        let mut phases = Phases::begin(Phase::Namespaces);
        let ns = create_namespace(&tenant, &ports, &namespace.name)?;
        phases.enter(Phase::Sysctls);
        let sysctls = namespace.sysctls.iter();
        let of_namespace: Vec<_> = sysctls.filter(|setting| setting.link.is_none()).collect();
        sysctl::write_first(&ns, &namespace.name, &of_namespace)?;
        phases.enter(Phase::Namespaces);
        let wire = NamespaceNetlink::open(&ns, namespace, &mut next_index)?;
        // Rules refer to these objects.
        accounting::create(&ns, &namespace.name, &namespace.accounting)?;
        phases.enter(Phase::ProgramStarts);
        let queue_is_full = started >= rules::MAX_PARALLEL;
        let loads = rules::prepare(&ns, namespace, stays_running, queue_is_full)?;
        started += loads.count_waiting();
        if rules::wait_for_interfaces(namespace, &plan.evidence) {
            waiting.push(loads);
        } else {
            send_all(rules, [loads]);
        }
        built.push((ns, wire));
        drop(phases);
        yield_now().await;
    }
    Ok((built, waiting))
}

/// Sends rules to be loaded. If loading has failed, nothing receives them.
fn send_all<'p>(
    rules: &UnboundedSender<PendingLoad<'p>>,
    loads: impl IntoIterator<Item = PendingLoad<'p>>,
) {
    for load in loads {
        let _ = rules.send(load);
    }
}

fn create_namespace(tenant: &Tenant, ports: &Rc<Ports>, name: &str) -> Result<NetNs, Failure> {
    NetNs::new(tenant, ports).map_err(|error| {
        let message = format!("cannot create the network namespace {name}: {error}");
        failure::host(message, &error)
    })
}

/// Creates the interfaces, writes their sysctls, adds addresses, and waits until they carry packets.
async fn connect(plan: &Plan, built: &BuiltNamespaces) -> Result<(), Failure> {
    let mut phases = Phases::begin(Phase::Links);
    links::make_links(built, &plan.namespaces).await?;
    phases.enter(Phase::Sysctls);
    for ((ns, _), namespace) in built.iter().zip(&plan.namespaces) {
        let settings = sysctl::interface_sysctls(&namespace.sysctls);
        sysctl::write(ns, &namespace.name, settings)?;
        yield_now().await;
    }
    phases.enter(Phase::Addresses);
    for ((_, wire), namespace) in built.iter().zip(&plan.namespaces) {
        wire.bring_up(namespace)?;
        yield_now().await;
    }
    phases.enter(Phase::Carrier);
    let wires = built.iter().map(|(ns, wire)| (ns, wire));
    netlink::wait_until_ready(wires, &plan.namespaces).await?;
    for ((_, wire), namespace) in built.iter().zip(&plan.namespaces) {
        wire.disable_ports(namespace)?;
    }
    Ok(())
}

/// Adds neighbours, routes, routing rules and virtual servers.
async fn add_routes(plan: &Plan, built: &BuiltNamespaces) -> Result<(), Failure> {
    let mut phases = Phases::begin(Phase::Routes);
    for ((_, wire), namespace) in built.iter().zip(&plan.namespaces) {
        wire.add_routes(namespace)?;
        wire.add_routing_rules(namespace)?;
        yield_now().await;
    }
    phases.enter(Phase::Ipvs);
    for ((ns, _), namespace) in built.iter().zip(&plan.namespaces) {
        ipvs::add(ns, namespace)?;
    }
    Ok(())
}
