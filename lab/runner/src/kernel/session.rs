//! Running lab of an agent, on the side of the front end.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::agent::Agent;
use super::asked::Asked;
use super::audience::Ear;
use super::drops::Tracing;
use super::error::{KernelError, SILENT};
use super::flow::Opener;
use super::own_time;
use svclab_agent::drops::Untraced;
use svclab_diagnostic::printable::beginning;
use svclab_model::evidence::{Drops, Evidence, Refused};
use svclab_model::plan::{Delta, Plan, Probe};
use svclab_model::protocol::{Event, Finished, LabId, Request, Running, Turn};

/// Time that an agent may spend on one request in addition to the time that the lab itself waits.
/// It does not limit labs, but distinguishes an agent that hangs from one that works.
const HANG: Duration = Duration::from_mins(5);

/// Maximum number of backend health changes that are kept until they are requested. The latest are
/// kept.
const MAX_TURNS: usize = 1024;

/// Running lab. Dropping the session removes the lab.
#[derive(Debug)]
pub struct Session {
    agent: Agent,
    lab: LabId,
    events: Ear,
    /// Health changes that balancers reported and that were not requested yet.
    turns: VecDeque<Turn>,
    /// Maximum time of the commands that run on nodes.
    typing: Duration,
    probing: Duration,
    descriptors: BTreeMap<String, i32>,
    refused: Vec<Refused>,
    /// Namespaces whose packets are traced.
    traced: Vec<String>,
    asked: Asked,
    ended: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.agent.link.ask(Request::Remove { lab: self.lab });
        self.agent.link.forget(self.lab);
    }
}

impl Session {
    pub(super) fn new(agent: Agent, lab: LabId, events: Ear, plan: &Plan) -> Self {
        let steps = plan
            .steps
            .iter()
            .map(|step| probing(&step.probes) + probing(&step.open) * 2 + HANG);
        let probing = probing(&plan.probes) + steps.sum::<Duration>();
        Self {
            agent,
            descriptors: BTreeMap::new(),
            refused: Vec::new(),
            traced: plan.watch.trace.clone(),
            asked: Asked::of(plan),
            turns: VecDeque::new(),
            ended: false,
            typing: plan.typed.iter().map(|typed| typed.limits.time).sum(),
            lab,
            events,
            probing,
        }
    }

    pub(super) async fn build(&mut self, plan: Plan, standing: bool) -> Result<(), KernelError> {
        self.agent.link.ask(Request::Build {
            lab: self.lab,
            plan: Box::new(plan),
            standing,
        });
        match self.answer(self.typing + HANG).await? {
            Event::Built {
                descriptors,
                refused,
                ..
            } => {
                self.descriptors = descriptors;
                self.refused = refused;
                Ok(())
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the agent that runs the lab.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns the agent's descriptor that holds each namespace, by namespace.
    #[must_use]
    pub fn descriptors(&self) -> &BTreeMap<String, i32> {
        &self.descriptors
    }

    /// Returns the requests that the API servers of the nodes did not serve until the real
    /// kube-proxies had written their rules. [`Evidence::refused`] also contains later requests.
    #[must_use]
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Changes the lab to that of another plan. After an error, the lab is unusable.
    ///
    /// # Errors
    ///
    /// When the agent cannot apply the change or was lost.
    pub async fn change(&mut self, delta: Delta) -> Result<(), KernelError> {
        self.asked.change(&delta);
        if let Some(probes) = &delta.probes {
            self.probing = probing(probes);
        }
        if let Some(watch) = &delta.watch {
            self.traced.clone_from(&watch.trace);
        }
        self.agent.link.ask(Request::Change {
            lab: self.lab,
            delta: Box::new(delta),
        });
        match self.answer(HANG).await? {
            Event::Changed { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Resets the connection state of the lab, so that the next probe runs under the conditions of
    /// the first. IPVS keeps the clients that it recorded for a virtual server with persistence.
    ///
    /// # Errors
    ///
    /// When the agent cannot reset the state or was lost.
    pub async fn forget(&mut self) -> Result<(), KernelError> {
        self.agent.link.ask(Request::Forget { lab: self.lab });
        match self.answer(HANG).await? {
            Event::Forgotten { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs the probes of the plan.
    ///
    /// # Errors
    ///
    /// When the agent cannot run the probes, returns other evidence than requested, or was lost.
    pub async fn probe(&mut self) -> Result<Evidence, KernelError> {
        let tracing = self.trace_drops().await;
        self.agent.link.ask(Request::Probe { lab: self.lab });
        let mut evidence = match self.answer(self.probing + HANG).await? {
            Event::Probed { evidence, .. } => *evidence,
            other => return Err(self.unexpected(&other)),
        };
        if let Err(why) = self.asked.check(&evidence) {
            let how = format_args!("its evidence is not what was asked for: {why}");
            return Err(self.nonsense(&how));
        }
        match tracing {
            Some(Ok(tracing)) => evidence.tell_drops(beside(move || tracing.end()).await),
            Some(Err(why)) => evidence.tell_drops(Drops::Uncertain(why.told())),
            None => {}
        }
        Ok(evidence)
    }

    /// Starts to trace the dropped packets of the lab. `None` if the front end does not trace them,
    /// or if no packets are traced.
    async fn trace_drops(&self) -> Option<Result<Tracing, Untraced>> {
        let agent = self.agent.traced_as.filter(|_| !self.traced.is_empty())?;
        let of = |name: &String| Some((name.clone(), *self.descriptors.get(name)?));
        let namespaces = self.traced.iter().filter_map(of).collect();
        Some(beside(move || Tracing::begin(agent, namespaces)).await)
    }

    /// Stops what the lab serves under a name, as if its process were killed: connections end, and
    /// the kernel refuses new connections. A program that was started under that name is killed.
    ///
    /// # Errors
    ///
    /// When the lab serves nothing under that name, or the agent was lost.
    pub async fn stop(&mut self, server: &str) -> Result<(), KernelError> {
        self.agent.link.ask(Request::Stop {
            lab: self.lab,
            server: server.to_owned(),
        });
        match self.answer(HANG).await? {
            Event::Stopped { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Removes the lab and waits until the agent has released it. Dropping a session also removes
    /// the lab, without waiting.
    ///
    /// # Errors
    ///
    /// When the agent was lost.
    pub async fn end(mut self) -> Result<(), KernelError> {
        self.agent.link.ask(Request::Remove { lab: self.lab });
        let gone = self.answer(HANG).await;
        self.ended = true;
        self.agent.link.forget(self.lab);
        match gone? {
            Event::Gone { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Serves the Kubernetes API with exactly these objects at an address in a namespace of the
    /// lab. If it is already served, watchers receive the changes in the order of the objects,
    /// deletions first. Returns the version of the objects.
    ///
    /// # Errors
    ///
    /// When an object cannot be served, the address is in use, or the agent was lost.
    pub async fn serve(
        &mut self,
        namespace: &str,
        at: SocketAddr,
        objects: Vec<serde_json::Value>,
    ) -> Result<u64, KernelError> {
        self.agent.link.ask(Request::Serve {
            lab: self.lab,
            namespace: namespace.to_owned(),
            at,
            objects,
        });
        self.served().await
    }

    /// Adds these objects to the API server at an address, or replaces those of the same names.
    /// Other objects remain. Watchers receive the changes. Returns the version of the objects.
    ///
    /// # Errors
    ///
    /// When an object cannot be served, no API server is at the address, or the agent was lost.
    pub async fn put(
        &mut self,
        namespace: &str,
        at: SocketAddr,
        objects: Vec<serde_json::Value>,
    ) -> Result<u64, KernelError> {
        self.agent.link.ask(Request::Put {
            lab: self.lab,
            namespace: namespace.to_owned(),
            at,
            objects,
        });
        self.served().await
    }

    /// Returns the version at which the API server has the objects.
    async fn served(&mut self) -> Result<u64, KernelError> {
        match self.answer(HANG).await? {
            Event::Served { version, .. } => Ok(version),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Starts a program in a namespace of the lab. The program runs until the lab is removed or
    /// [`Session::stop`] ends it. A guest contains only the programs that were passed to it.
    ///
    /// # Errors
    ///
    /// When the program cannot be started, a program of that name runs, or the agent was lost.
    pub async fn start(
        &mut self,
        namespace: &str,
        name: &str,
        program: &str,
        arguments: &[String],
    ) -> Result<(), KernelError> {
        self.agent.link.ask(Request::Start {
            lab: self.lab,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            program: program.to_owned(),
            arguments: arguments.to_vec(),
        });
        match self.answer(HANG).await? {
            Event::Started { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the status of a program that [`Session::start`] started.
    ///
    /// # Errors
    ///
    /// When no program of that name was started, or the agent was lost.
    pub async fn look(&mut self, name: &str) -> Result<Running, KernelError> {
        self.agent.link.ask(Request::Look {
            lab: self.lab,
            name: name.to_owned(),
        });
        match self.answer(HANG).await? {
            Event::Looked { running, .. } => Ok(running),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs a program in a namespace of the lab and waits for its end. A guest contains only the
    /// programs that were passed to it.
    ///
    /// # Errors
    ///
    /// When the program cannot be started, or the agent was lost. A program that ends with an error
    /// of its own is no error.
    pub async fn run(
        &mut self,
        namespace: &str,
        program: &str,
        arguments: &[&str],
        input: &str,
    ) -> Result<Finished, KernelError> {
        self.agent.link.ask(Request::Run {
            lab: self.lab,
            namespace: namespace.to_owned(),
            program: program.to_owned(),
            arguments: arguments.iter().map(|each| (*each).to_owned()).collect(),
            input: input.to_owned(),
        });
        match self.answer(HANG).await? {
            Event::Ran { finished, .. } => Ok(finished),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the opener of streams to the lab. Streams work in parallel with other requests.
    #[must_use]
    pub fn opener(&self) -> Opener {
        Opener::new(self.agent.clone(), self.lab)
    }

    /// Waits until a balancer of the lab has found a change of a backend's health and has acted on
    /// it.
    ///
    /// # Errors
    ///
    /// When the agent was lost.
    pub async fn turned(&mut self) -> Result<Turn, KernelError> {
        if let Some(turn) = self.turns.pop_front() {
            return Ok(turn);
        }
        match self.events.recv().await {
            Some(Event::Turned { turn, .. }) => Ok(turn),
            Some(other) => Err(self.unexpected(&other)),
            None => Err(KernelError::Lost(self.agent.link.lost("it ended"))),
        }
    }

    async fn answer(&mut self, within: Duration) -> Result<Event, KernelError> {
        let Self { events, turns, .. } = self;
        let answer = async {
            loop {
                match events.recv().await {
                    Some(Event::Turned { turn, .. }) => {
                        turns.push_back(turn);
                        if turns.len() > MAX_TURNS {
                            turns.pop_front();
                        }
                    }
                    other => return other,
                }
            }
        };
        match own_time::within(self.agent.process(), within, answer).await {
            Some(Some(Event::Failed { failure, .. })) => Err(KernelError::Failed(failure)),
            Some(Some(event)) => Ok(event),
            Some(None) => Err(KernelError::Lost(self.agent.link.lost("it ended"))),
            None => {
                self.agent.link.kill();
                Err(KernelError::Lost(self.agent.link.lost(&format!(
                    "{} {} s",
                    SILENT[1],
                    within.as_secs()
                ))))
            }
        }
    }

    fn unexpected(&self, event: &Event) -> KernelError {
        self.nonsense(&format_args!("it answered what was not asked: {event:?}"))
    }

    /// Kills an agent that violates the protocol.
    fn nonsense(&self, how: &dyn std::fmt::Display) -> KernelError {
        self.agent.link.kill();
        let mut lost = self.agent.link.lost("");
        lost.how = beginning(how);
        KernelError::Lost(lost)
    }
}

/// Runs work of some milliseconds in another thread, so that other tasks are not delayed. Runs it
/// in this thread if no thread can be started.
pub(super) async fn beside<T: Send + 'static>(doing: impl FnOnce() -> T + Send + 'static) -> T {
    let (say, said) = oneshot::channel();
    let doing = Arc::new(Mutex::new(Some(doing)));
    let take = |doing: &Mutex<Option<_>>| {
        let mut doing = doing.lock().unwrap_or_else(PoisonError::into_inner);
        doing.take()
    };
    let there = Arc::clone(&doing);
    let spawned = thread::Builder::new().spawn(move || {
        if let Some(doing) = take(&there) {
            let _ = say.send(doing());
        }
    });
    if spawned.is_ok()
        && let Ok(done) = said.await
    {
        return done;
    }
    match take(&doing) {
        Some(doing) => doing(),
        None => unreachable!("it was done, or has told of its panic"),
    }
}

/// Returns the maximum time of probes. At worst, each probe waits for the previous one, for its
/// handshake and for its answer.
fn probing(probes: &[Probe]) -> Duration {
    probes.iter().map(|probe| probe.patience * 2).sum()
}
