//! Builds the namespaces of a lab: their interfaces, addresses, routes and virtual servers.

use std::rc::Rc;

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

/// Creates the namespaces without interfaces, and starts the programs that load their rules.
pub(super) fn create_namespaces(
    plan: &Plan,
    stays_running: bool,
) -> Result<(BuiltNamespaces, Vec<PendingLoad<'_>>), Failure> {
    let mut phases = Phases::begin(Phase::Namespaces);
    let tenant = Tenant::new().map_err(|error| failure::cannot_prepare_programs(&error))?;
    let ports = Rc::default();
    let mut built = Vec::with_capacity(plan.namespaces.len());
    let mut started_loads = Vec::with_capacity(plan.namespaces.len());
    let (mut started, mut next_index) = (0, FIRST_INDEX);
    for namespace in &plan.namespaces {
        phases.enter(Phase::Namespaces);
        let ns = create_namespace(&tenant, &ports, &namespace.name)?;
        phases.enter(Phase::Sysctls);
        let sysctls = namespace.sysctls.iter();
        let of_namespace: Vec<_> = sysctls.filter(|setting| setting.link.is_none()).collect();
        sysctl::write_first(&ns, &namespace.name, &of_namespace)?;
        phases.enter(Phase::Namespaces);
        let wire = NamespaceNetlink::open(&ns, namespace, &mut next_index)?;
        phases.enter(Phase::ProgramStarts);
        let queue_is_full = started >= rules::MAX_PARALLEL;
        let loads = rules::prepare(&ns, namespace, stays_running, queue_is_full)?;
        started += loads.count_waiting();
        started_loads.push(loads);
        built.push((ns, wire));
    }
    Ok((built, started_loads))
}

fn create_namespace(tenant: &Tenant, ports: &Rc<Ports>, name: &str) -> Result<NetNs, Failure> {
    NetNs::new(tenant, ports).map_err(|error| {
        let message = format!("cannot create the network namespace {name}: {error}");
        failure::host(message, &error)
    })
}

/// Creates the interfaces, writes their sysctls, adds addresses, and waits until they carry packets.
pub(super) async fn connect(plan: &Plan, built: &BuiltNamespaces) -> Result<(), Failure> {
    let mut phases = Phases::begin(Phase::Links);
    links::make_links(built, &plan.namespaces)?;
    phases.enter(Phase::Sysctls);
    for ((ns, _), namespace) in built.iter().zip(&plan.namespaces) {
        let settings = sysctl::interface_sysctls(&namespace.sysctls);
        sysctl::write(ns, &namespace.name, settings)?;
    }
    phases.enter(Phase::Addresses);
    for ((_, wire), namespace) in built.iter().zip(&plan.namespaces) {
        wire.bring_up(namespace)?;
    }
    phases.enter(Phase::Carrier);
    let wires = built.iter().map(|(ns, wire)| (ns, wire));
    netlink::wait_until_ready(wires, &plan.namespaces).await?;
    for ((_, wire), namespace) in built.iter().zip(&plan.namespaces) {
        wire.disable_ports(namespace)?;
    }
    Ok(())
}

/// Adds neighbours, routes, routing rules, virtual servers and accounting objects.
pub(super) fn add_routes(plan: &Plan, built: &BuiltNamespaces) -> Result<(), Failure> {
    let mut phases = Phases::begin(Phase::Routes);
    for ((_, wire), namespace) in built.iter().zip(&plan.namespaces) {
        wire.add_routes(namespace)?;
        wire.add_routing_rules(namespace)?;
    }
    phases.enter(Phase::Ipvs);
    for ((ns, _), namespace) in built.iter().zip(&plan.namespaces) {
        ipvs::add(ns, namespace)?;
        accounting::create(ns, &namespace.name, &namespace.accounting)?;
    }
    Ok(())
}
