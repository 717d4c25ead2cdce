//! A standing lab: its namespaces, its servers, and what is done with them.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::task::JoinSet;

use super::api::Api;
use super::daemon::Daemon;
use super::loader::Loaders;
use super::netns::NetNs;
use super::streams::Place;
use super::tenant::Tenant;
use super::timestamps::Timestamps;
use super::wire::{self, Wire};
use super::{accounting, failure, health, ipvs, program, real_proxy, rules, server, sysctl, typed};
use svclab_model::evidence::{Evidence, Refused};
use svclab_model::plan::Mode;
use svclab_model::plan::{Namespace, Plan, Server};
use svclab_model::protocol::{Failure, Finished, Running, Turn};

/// A lab as it stands in this kernel. Dropping it takes it away.
pub struct Lab {
    /// What was built. Of rules and sets it says, once they have changed, only
    /// which tables there are and whether there is a set.
    pub(super) plan: Plan,
    pub(super) namespaces: HashMap<String, NetNs>,
    pub(super) wires: Vec<Wire>,
    /// Servers; dropping a set ends one and closes its sockets.
    pub(super) servers: Vec<(Server, JoinSet<()>)>,
    /// Health checks, which end with the lab.
    pub(super) checks: JoinSet<()>,
    /// What waits for more rules.
    pub(super) loaders: Loaders,
    /// API servers, by their namespaces and addresses.
    apis: HashMap<(String, SocketAddr), Api>,
    /// Programs that were started and let run, by their names.
    daemons: HashMap<String, Daemon>,
    /// Whether steps were made: it is no more what was built.
    stepped: bool,
    /// How long each kube-proxy took to write its rules, by node, in milliseconds.
    pub(super) synced_ms: BTreeMap<String, u64>,
    /// Has the kernel say when it saw each packet.
    _timestamps: Timestamps,
}

impl Lab {
    /// Builds a plan. `step` is told what is about to be done, `turned` of
    /// backends that are found in another state than before. In a `standing`
    /// lab the programs that load rules wait for more.
    ///
    /// # Errors
    ///
    /// What the kernel or a program refused; nothing is left of the lab then.
    pub async fn build(
        plan: Plan,
        standing: bool,
        step: &impl Fn(String),
        turned: &Rc<dyn Fn(Turn)>,
    ) -> Result<Self, Failure> {
        let timestamps = Timestamps::begin();
        let tenant = Tenant::new().map_err(|error| failure::no_place(&error))?;
        let ports = Rc::default();
        step("make its namespaces".to_owned());
        let mut made: Vec<(NetNs, Wire)> = Vec::with_capacity(plan.namespaces.len());
        let mut begun = Vec::with_capacity(plan.namespaces.len());
        let mut waiting = 0;
        for namespace in &plan.namespaces {
            let ns = NetNs::new(&tenant, &ports).map_err(|error| {
                failure::machine(
                    format!(
                        "cannot make a network namespace for {}: {error}",
                        namespace.name
                    ),
                    &error,
                )
            })?;
            sysctl::write(
                &ns,
                &namespace.name,
                namespace
                    .sysctls
                    .iter()
                    .filter(|setting| setting.link.is_none()),
            )?;
            let wire = Wire::open(&ns, namespace).await?;
            let enough = waiting >= rules::AT_ONCE;
            let loads = rules::begin(&ns, namespace, standing, enough)?;
            waiting += loads.waiting();
            begun.push(loads);
            made.push((ns, wire));
        }
        step("make its interfaces".to_owned());
        wire::make_links(&made, &plan.namespaces).await?;
        for ((ns, _), namespace) in made.iter().zip(&plan.namespaces) {
            sysctl::write(ns, &namespace.name, sysctl::of_links(&namespace.sysctls))?;
        }
        for ((_, wire), namespace) in made.iter().zip(&plan.namespaces) {
            wire.bring_up(namespace).await?;
        }
        for bridged in [false, true] {
            for ((_, wire), namespace) in made.iter().zip(&plan.namespaces) {
                wire.carry(namespace, &plan.namespaces, bridged).await?;
            }
        }
        step("add its routes and neighbours".to_owned());
        for ((_, wire), namespace) in made.iter().zip(&plan.namespaces) {
            wire.route(namespace).await?;
            wire.policy(namespace).await?;
        }
        for ((ns, _), namespace) in made.iter().zip(&plan.namespaces) {
            ipvs::add(ns, namespace).await?;
            accounting::make(ns, &namespace.name, &namespace.accounting)?;
        }
        step("load its rules".to_owned());
        let loads = begun.into_iter().map(rules::finish);
        let loaders: Vec<Loaders> = stream::iter(loads)
            .buffered(rules::AT_ONCE)
            .try_collect()
            .await?;
        let loaders = loaders.into_iter().flatten().collect();
        let (namespaces, wires): (Vec<NetNs>, Vec<Wire>) = made.into_iter().unzip();
        let namespaces: HashMap<String, NetNs> = plan
            .namespaces
            .iter()
            .map(|namespace| namespace.name.clone())
            .zip(namespaces)
            .collect();
        step("start its servers".to_owned());
        let servers = plan
            .servers
            .iter()
            .map(|server| Ok((server.clone(), server::open_in(&plan, &namespaces, server)?)))
            .collect::<Result<Vec<_>, Failure>>()?;
        let mut lab = Self {
            plan,
            namespaces,
            wires,
            servers,
            checks: JoinSet::new(),
            loaders,
            apis: HashMap::new(),
            daemons: HashMap::new(),
            stepped: false,
            synced_ms: BTreeMap::new(),
            _timestamps: timestamps,
        };
        if !lab.plan.proxies.is_empty() {
            step("wait for its kube-proxies' rules".to_owned());
            real_proxy::start(&mut lab).await?;
        }
        if !lab.plan.typed.is_empty() {
            step("type what is typed by hand".to_owned());
            typed::all(&lab).await?;
        }
        lab.check(step, turned).await?;
        Ok(lab)
    }

    /// Begins to ask the balancers' backends how they are, if any is to be asked.
    pub(super) async fn check(
        &mut self,
        step: &impl Fn(String),
        turned: &Rc<dyn Fn(Turn)>,
    ) -> Result<(), Failure> {
        if self.plan.health.is_empty() {
            return Ok(());
        }
        step("ask its balancers' backends how they are".to_owned());
        health::begin(
            &self.plan.health,
            &self.namespaces,
            turned,
            &mut self.checks,
        )
        .await
    }

    /// Runs the plan's probes and says what was seen; then makes its steps, one after the
    /// other, each with what is tried after it. After an error within a step the lab is of
    /// no more use.
    ///
    /// # Errors
    ///
    /// When something could not be tried or watched at all, or a step could not be made or
    /// was made before.
    pub async fn probe(
        &mut self,
        step: &impl Fn(String),
        turned: &Rc<dyn Fn(Turn)>,
    ) -> Result<Evidence, Failure> {
        let steps = std::mem::take(&mut self.plan.steps);
        if self.stepped {
            return Err(failure::bug(
                "the steps of the lab have been made, and it is not what it was".to_owned(),
            ));
        }
        self.stepped = !steps.is_empty();
        let mut next = steps.iter().map(|step| step.open.as_slice());
        let (mut evidence, mut open) = self.stage(Vec::new(), next.next(), step).await?;
        for made in &steps {
            let (seen, opened) = self.make(made, open, next.next(), step, turned).await?;
            evidence.steps.push(seen);
            open = opened;
        }
        Ok(evidence)
    }

    /// The mode of the real kube-proxy there, if there is one: it makes what the plan
    /// does not know.
    pub(super) fn real_proxy(&self, namespace: &Namespace) -> Option<Mode> {
        let mut proxies = self.plan.proxies.iter();
        let proxy = proxies.find(|proxy| proxy.namespace == namespace.name)?;
        Some(proxy.mode)
    }

    /// By which of this process's descriptors each namespace is held.
    pub fn descriptors(&self) -> BTreeMap<String, i32> {
        self.namespaces
            .iter()
            .map(|(name, ns)| (name.clone(), ns.as_raw_fd()))
            .collect()
    }

    /// Ends the servers, or the program, of that name. When it returns, their
    /// sockets are closed.
    ///
    /// # Errors
    ///
    /// When the lab serves nothing under that name.
    pub async fn stop(&mut self, server: &str) -> Result<(), Failure> {
        if let Some(daemon) = self.daemons.remove(server) {
            daemon.end().await;
            return Ok(());
        }
        let (named, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.servers)
            .into_iter()
            .partition(|(served, _)| served.name == server);
        self.servers = others;
        if named.is_empty() {
            return Err(failure::bug(format!(
                "{server} is to be stopped, which the lab does not serve"
            )));
        }
        for (_, mut tasks) in named {
            tasks.shutdown().await;
        }
        Ok(())
    }

    /// Serves the Kubernetes API, or gives the API server that is there other
    /// objects. Returns the version at which it has them.
    ///
    /// # Errors
    ///
    /// When an object cannot be served, or the address is taken.
    pub fn serve(
        &mut self,
        namespace: &str,
        at: SocketAddr,
        objects: Vec<serde_json::Value>,
    ) -> Result<u64, Failure> {
        let key = (namespace.to_owned(), at);
        if let Some(api) = self.apis.get(&key) {
            return api.replace(objects);
        }
        let api = Api::of(namespace);
        let version = api.replace(objects)?;
        let api = api.open(self.inside(namespace, "an API server")?, namespace, at)?;
        self.apis.insert(key, api);
        Ok(version)
    }

    /// Gives an API server that is there these objects in place of those of their
    /// names. Returns the version at which it has them.
    ///
    /// # Errors
    ///
    /// When an object cannot be served, or none serves there.
    pub fn put(
        &self,
        namespace: &str,
        at: SocketAddr,
        objects: Vec<serde_json::Value>,
    ) -> Result<u64, Failure> {
        let api = self.apis.get(&(namespace.to_owned(), at));
        let api = api.ok_or_else(|| {
            failure::bug(format!(
                "no Kubernetes API is served on {at} in {namespace}"
            ))
        })?;
        api.put(objects)
    }

    /// The API server at an address of a namespace.
    pub(super) fn api(&self, namespace: &str, at: SocketAddr) -> Option<&Api> {
        self.apis.get(&(namespace.to_owned(), at))
    }

    /// The API servers of a namespace, by their addresses.
    pub(super) fn apis<'l>(&'l self, namespace: &'l str) -> impl Iterator<Item = &'l Api> {
        let there = self.apis.iter().filter(move |((of, _), _)| of == namespace);
        let there: BTreeMap<SocketAddr, &Api> = there.map(|((_, at), api)| (*at, api)).collect();
        there.into_values()
    }

    /// What its API servers refused, namespace by namespace, and how many requests were
    /// not kept.
    pub fn refused(&self) -> (Vec<Refused>, u64) {
        let (mut all, mut left_out) = (Vec::new(), 0_u64);
        let names = self.plan.namespaces.iter().map(|namespace| &namespace.name);
        for api in names.flat_map(|name| self.apis(name)) {
            let refusals = api.refusals();
            all.extend_from_slice(refusals.kept());
            left_out = left_out.saturating_add(refusals.left_out());
        }
        (all, left_out)
    }

    /// Starts a program in one of the namespaces and lets it run.
    ///
    /// # Errors
    ///
    /// When the program cannot be started, or one of that name runs.
    pub fn start(
        &mut self,
        namespace: &str,
        name: &str,
        program: &str,
        arguments: &[String],
        path: &str,
    ) -> Result<(), Failure> {
        if self.daemons.contains_key(name) {
            return Err(failure::bug(format!("{name} was started already")));
        }
        let ns = self.inside(namespace, program)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let daemon = Daemon::start(ns, namespace, program, &arguments, path)?;
        self.daemons.insert(name.to_owned(), daemon);
        Ok(())
    }

    /// How a program is that was started.
    ///
    /// # Errors
    ///
    /// When none of that name was.
    pub fn look(&self, name: &str) -> Result<Running, Failure> {
        self.daemons
            .get(name)
            .map(Daemon::look)
            .ok_or_else(|| failure::bug(format!("{name} was never started")))
    }

    /// A program that was started.
    pub(super) fn daemon(&self, name: &str) -> Option<&Daemon> {
        self.daemons.get(name)
    }

    /// Runs a program in one of the namespaces.
    ///
    /// # Errors
    ///
    /// When the program cannot be started; not when it ends with an error of
    /// its own.
    pub async fn run(
        &self,
        namespace: &str,
        program: &str,
        arguments: &[String],
        input: &str,
    ) -> Result<Finished, Failure> {
        let ns = self.inside(namespace, program)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        program::run(ns, namespace, program, &arguments, input).await
    }

    /// Where one can be attached to it.
    pub fn places(&self) -> HashMap<String, Place> {
        let of = |(namespace, wire): (&Namespace, &Wire)| {
            let place = Place {
                ns: self.namespaces.get(&namespace.name)?.clone(),
                interfaces: wire.names(),
            };
            Some((namespace.name.clone(), place))
        };
        let all = self.plan.namespaces.iter().zip(&self.wires);
        all.filter_map(of).collect()
    }

    /// Ends it, but for its namespaces, which nothing is in any more.
    pub fn end(self) -> impl Iterator<Item = NetNs> {
        self.namespaces.into_values()
    }

    fn inside(&self, namespace: &str, what: &str) -> Result<&NetNs, Failure> {
        self.namespaces.get(namespace).ok_or_else(|| {
            failure::bug(format!(
                "{what} is to run in {namespace}, which the plan has not got"
            ))
        })
    }

    pub(super) fn namespace(&self, name: &str) -> Result<&NetNs, Failure> {
        self.namespaces
            .get(name)
            .ok_or_else(|| failure::bug(format!("the plan watches {name}, which it has not got")))
    }
}
