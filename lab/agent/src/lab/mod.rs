//! Manages a running lab: builds it, runs its probes and steps, and serves requests about it.

mod build;
pub(crate) mod change;
pub(crate) mod deferred_cleanup;
mod node_commands;
mod quiesce;
mod real_proxy;
pub(crate) mod stage;
pub(crate) mod step;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;

use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};

use crate::net::attach_point::AttachPoint;
use crate::net::netlink::NamespaceNetlink;
use crate::net::netns::NetNs;
use crate::program;
use crate::program::background::BackgroundProgram;
use crate::rules;
use crate::rules::loader::Loaders;
use crate::runtime::failure;
use crate::runtime::profile::{self, Phases};
use crate::sandbox::tenant::Tenant;
use crate::servers::api::Api;
use crate::servers::{health, server};
use crate::watch::reported_drops::ReportedDrops;
use crate::watch::timestamps::TimestampGuard;
use svclab_model::evidence::{Evidence, RejectedRequest};
use svclab_model::plan::Mode;
use svclab_model::plan::{Namespace, Plan, Server};
use svclab_model::protocol::profile::Phase;
use svclab_model::protocol::{BackendHealthChange, Failure, ProgramOutput, ProgramStatus};

/// Running lab. Dropping the value removes the lab from the kernel.
pub(crate) struct RunningLab {
    /// Plan of the lab. After a change of rules or sets, the plan only states which tables exist
    /// and whether a set exists.
    pub(super) plan: Plan,
    pub(super) namespaces: HashMap<String, NetNs>,
    pub(super) netlinks: Vec<NamespaceNetlink>,
    /// Servers with their tasks. Dropping a task set stops the server and closes its sockets.
    pub(super) servers: Vec<(Server, JoinSet<()>)>,
    /// Health checks, which stop with the lab.
    pub(super) health_checks: JoinSet<()>,
    /// Restore programs that wait for more rules.
    pub(super) loaders: Loaders,
    /// API servers, by namespace and address.
    apis: HashMap<(String, SocketAddr), Api>,
    /// Background programs, by name.
    background_programs: HashMap<String, BackgroundProgram>,
    /// Whether a step was made. If so, the lab differs from the plan.
    is_changed: bool,
    /// Whether the lab may change by itself after its `byHand` commands.
    pub(super) changes_by_itself: bool,
    /// Time that each kube-proxy took to write its rules, by node, in milliseconds.
    pub(super) synced_ms: BTreeMap<String, u64>,
    /// Makes the kernel stamp packets with the time of reception.
    _timestamps: TimestampGuard,
}

impl RunningLab {
    /// Builds a plan. `step` receives a description of each build step. `on_health_change` is
    /// called when the health of a backend changes. With `stays_running`, the lab will be changed
    /// later, and the restore programs stay running for more rules.
    ///
    /// # Errors
    ///
    /// When the kernel or a program rejects a part of the plan. Nothing of the lab remains.
    pub(crate) async fn build(
        plan: Plan,
        stays_running: bool,
        step: &impl Fn(String),
        on_health_change: &Rc<dyn Fn(BackendHealthChange)>,
    ) -> Result<Self, Failure> {
        let timestamps = TimestampGuard::enable();
        let (sender, receiver) = mpsc::unbounded_channel();
        let connected = async {
            let built = build::build(&plan, stays_running, step, sender).await?;
            Ok((built, Phases::begin(Phase::Rules)))
        };
        let ((built, mut phases), loaders) =
            join_in_order(connected, rules::load_all(receiver)).await?;
        let (namespaces, wires): (Vec<NetNs>, Vec<NamespaceNetlink>) = built.into_iter().unzip();
        let namespaces: HashMap<String, NetNs> = plan
            .namespaces
            .iter()
            .map(|namespace| namespace.name.clone())
            .zip(namespaces)
            .collect();
        begin(step, "start its servers").await;
        phases.enter(Phase::Servers);
        let servers = plan
            .servers
            .iter()
            .map(|server| {
                Ok((
                    server.clone(),
                    server::open_for_plan(&plan, &namespaces, server)?,
                ))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        let mut lab = Self {
            plan,
            namespaces,
            netlinks: wires,
            servers,
            health_checks: JoinSet::new(),
            loaders,
            apis: HashMap::new(),
            background_programs: HashMap::new(),
            is_changed: false,
            changes_by_itself: false,
            synced_ms: BTreeMap::new(),
            _timestamps: timestamps,
        };
        drop(phases);
        if !lab.plan.kube_proxies.is_empty() {
            begin(step, "wait for the rules of its kube-proxies").await;
            let _span = profile::span(Phase::KubeProxies);
            real_proxy::start(&mut lab).await?;
        }
        if !lab.plan.commands.is_empty() {
            begin(step, "run its `byHand` commands").await;
            let _span = profile::span(Phase::Commands);
            lab.changes_by_itself = node_commands::run_commands(&lab).await?;
        }
        lab.start_health_checks(step, on_health_change).await?;
        Ok(lab)
    }

    /// Starts the health checks of the load balancers' backends, if the plan has any.
    pub(super) async fn start_health_checks(
        &mut self,
        step: &impl Fn(String),
        on_health_change: &Rc<dyn Fn(BackendHealthChange)>,
    ) -> Result<(), Failure> {
        if self.plan.health.is_empty() {
            return Ok(());
        }
        begin(step, "check the backends of its load balancers").await;
        let _span = profile::span(Phase::HealthChecks);
        health::start_checks(
            &self.plan.health,
            &self.namespaces,
            on_health_change,
            &mut self.health_checks,
        )
        .await
    }

    /// Runs the plan's stages in sequence and returns the evidence: makes the step of each stage and
    /// runs its probes. After an error in a step, the lab is unusable. `drops` are those that the
    /// front end reports meanwhile.
    ///
    /// # Errors
    ///
    /// When a probe cannot run, evidence cannot be recorded, a step fails, or a step was made
    /// before.
    pub(crate) async fn probe(
        &mut self,
        drops: &ReportedDrops,
        step: &impl Fn(String),
        on_health_change: &Rc<dyn Fn(BackendHealthChange)>,
    ) -> Result<Evidence, Failure> {
        if self.is_changed {
            return Err(failure::bug(
                "cannot repeat the probes: the steps have changed the lab".to_owned(),
            ));
        }
        // Changes of the lab need the rest of the plan.
        let stages = std::mem::take(&mut self.plan.stages);
        let evidence = self
            .run_stages(&stages, drops, step, on_health_change)
            .await;
        self.plan.stages = stages;
        evidence
    }

    /// Returns the mode of the real kube-proxy in the namespace, or `None` without a real
    /// kube-proxy. The plan does not contain the objects of a real kube-proxy.
    pub(super) fn real_proxy_mode(&self, namespace: &Namespace) -> Option<Mode> {
        Some(self.plan.real_proxy(&namespace.name)?.mode)
    }

    /// Whether programs may change the lab while its probes run.
    pub(super) fn may_change(&self) -> bool {
        // All namespaces have the same tenant.
        let tenant = self.namespaces.values().next().map(NetNs::tenant);
        self.changes_by_itself || tenant.is_some_and(Tenant::has_attached_programs)
    }

    /// Returns the file descriptor of each namespace in this process.
    pub(crate) fn descriptors(&self) -> BTreeMap<String, i32> {
        self.namespaces
            .iter()
            .map(|(name, ns)| (name.clone(), ns.as_raw_fd()))
            .collect()
    }

    /// Stops the servers or the program with this name. When this function returns, their sockets
    /// are closed.
    ///
    /// # Errors
    ///
    /// When the lab has no server or program with this name.
    pub(crate) async fn stop(&mut self, server: &str) -> Result<(), Failure> {
        if let Some(daemon) = self.background_programs.remove(server) {
            daemon.kill().await;
            return Ok(());
        }
        let (stopped, remaining): (Vec<_>, Vec<_>) = std::mem::take(&mut self.servers)
            .into_iter()
            .partition(|(served, _)| served.name == server);
        self.servers = remaining;
        if stopped.is_empty() {
            return Err(failure::bug(format!(
                "cannot stop {server}: the lab has no such server or program"
            )));
        }
        for (_, mut tasks) in stopped {
            tasks.shutdown().await;
        }
        Ok(())
    }

    /// Starts a Kubernetes API server, or replaces all objects of the existing API server. Returns
    /// the new version of its store.
    ///
    /// # Errors
    ///
    /// When an object cannot be served, or the address is in use.
    pub(crate) fn serve_api(
        &mut self,
        namespace: &str,
        address: SocketAddr,
        objects: Vec<serde_json::Value>,
    ) -> Result<u64, Failure> {
        let key = (namespace.to_owned(), address);
        if let Some(api) = self.apis.get(&key) {
            return api.replace(objects);
        }
        let api = Api::new(namespace);
        let version = api.replace(objects)?;
        let api = api.open(
            self.namespace_for(namespace, "an API server")?,
            namespace,
            address,
        )?;
        self.apis.insert(key, api);
        Ok(version)
    }

    /// Adds objects to an existing API server or replaces those with the same name. Returns the new
    /// version of its store.
    ///
    /// # Errors
    ///
    /// When an object cannot be served, or no API server exists at the address.
    pub(crate) fn upsert_objects(
        &self,
        namespace: &str,
        address: SocketAddr,
        objects: Vec<serde_json::Value>,
    ) -> Result<u64, Failure> {
        let api = self.apis.get(&(namespace.to_owned(), address));
        let api = api.ok_or_else(|| {
            failure::bug(format!("no API server listens on {address} in {namespace}"))
        })?;
        api.upsert(objects)
    }

    /// Returns the API server at an address of a namespace.
    pub(super) fn api(&self, namespace: &str, address: SocketAddr) -> Option<&Api> {
        self.apis.get(&(namespace.to_owned(), address))
    }

    /// Returns the API servers of a namespace, sorted by address.
    pub(super) fn apis<'l>(&'l self, namespace: &'l str) -> impl Iterator<Item = &'l Api> {
        let in_namespace = self.apis.iter().filter(move |((of, _), _)| of == namespace);
        let by_address: BTreeMap<SocketAddr, &Api> =
            in_namespace.map(|((_, at), api)| (*at, api)).collect();
        by_address.into_values()
    }

    /// Returns the requests that the API servers refused, sorted by namespace, and the number of
    /// requests that were not recorded.
    pub(crate) fn refused_requests(&self) -> (Vec<RejectedRequest>, u64) {
        let (mut refused, mut missed) = (Vec::new(), 0_u64);
        let names = self.plan.namespaces.iter().map(|namespace| &namespace.name);
        for api in names.flat_map(|name| self.apis(name)) {
            let refusals = api.refusals();
            refused.extend_from_slice(refusals.requests());
            missed = missed.saturating_add(refusals.missed());
        }
        (refused, missed)
    }

    /// Starts a background program in a namespace.
    ///
    /// # Errors
    ///
    /// When the program cannot be started, or a program with this name exists.
    pub(crate) fn start(
        &mut self,
        namespace: &str,
        name: &str,
        program: &str,
        arguments: &[String],
        path: &str,
    ) -> Result<(), Failure> {
        if self.background_programs.contains_key(name) {
            return Err(failure::bug(format!("{name} is already started")));
        }
        let ns = self.namespace_for(namespace, program)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let daemon = BackgroundProgram::start(ns, namespace, program, &arguments, path)?;
        self.background_programs.insert(name.to_owned(), daemon);
        Ok(())
    }

    /// Returns the status of a background program.
    ///
    /// # Errors
    ///
    /// When no program with this name was started.
    pub(crate) fn program_status(&self, name: &str) -> Result<ProgramStatus, Failure> {
        self.background_programs
            .get(name)
            .map(BackgroundProgram::status)
            .ok_or_else(|| failure::bug(format!("{name} was never started")))
    }

    /// Returns a background program.
    pub(super) fn background_program(&self, name: &str) -> Option<&BackgroundProgram> {
        self.background_programs.get(name)
    }

    /// Runs a program in a namespace and waits for its exit. An exit status other than 0 is not an
    /// error.
    pub(crate) async fn run(
        &self,
        namespace: &str,
        program: &str,
        arguments: &[String],
        input: &str,
    ) -> Result<ProgramOutput, Failure> {
        let ns = self.namespace_for(namespace, program)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        program::run(ns, namespace, program, &arguments, input).await
    }

    /// Returns the namespaces to which clients can attach streams.
    pub(crate) fn attach_points(&self) -> HashMap<String, AttachPoint> {
        let attach_point = |(namespace, wire): (&Namespace, &NamespaceNetlink)| {
            let place = AttachPoint {
                ns: self.namespaces.get(&namespace.name)?.clone(),
                interfaces: wire.names(),
            };
            Some((namespace.name.clone(), place))
        };
        let namespaces = self.plan.namespaces.iter().zip(&self.netlinks);
        namespaces.filter_map(attach_point).collect()
    }

    /// Ends everything in the lab and returns its namespaces, which are empty.
    pub(crate) fn end(self) -> impl Iterator<Item = NetNs> {
        self.namespaces.into_values()
    }

    fn namespace_for(&self, namespace: &str, user: &str) -> Result<&NetNs, Failure> {
        self.namespaces.get(namespace).ok_or_else(|| {
            failure::bug(format!(
                "cannot run {user} in {namespace}: the plan has no such namespace"
            ))
        })
    }

    pub(super) fn recorded_namespace(&self, name: &str) -> Result<&NetNs, Failure> {
        self.namespaces.get(name).ok_or_else(|| {
            failure::bug(format!(
                "cannot record {name}: the plan has no such namespace"
            ))
        })
    }
}

/// Waits for two tasks that run at the same time. If both fail, the failure is that of the first:
/// what is reported must not depend on which is faster. A failure of the first cancels the second.
async fn join_in_order<A, B>(
    first: impl Future<Output = Result<A, Failure>>,
    second: impl Future<Output = Result<B, Failure>>,
) -> Result<(A, B), Failure> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    tokio::select! {
        biased;
        first = &mut first => Ok((first?, second.await?)),
        second = &mut second => Ok((first.await?, second?)),
    }
}

/// Reports a step before its work begins. Without the pause, the report would be sent after the work,
/// which may block the thread or use up the memory of a guest.
async fn begin(step: &impl Fn(String), text: impl Into<String>) {
    step(text.into());
    task::yield_now().await;
}
