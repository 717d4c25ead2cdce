//! One lab of an agent's, as the front end holds it.

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

/// How long an agent may work on one request beyond what the lab itself waits
/// for. It is not a limit on labs: it tells a hang from work.
const HANG: Duration = Duration::from_mins(5);

/// How many of the latest changes of backends' health are kept until somebody asks for
/// them.
const MAX_TURNS: usize = 1024;

/// A lab that stands until this is dropped.
#[derive(Debug)]
pub struct Session {
    agent: Agent,
    lab: LabId,
    events: Ear,
    /// What balancers found that nobody has asked for yet.
    turns: VecDeque<Turn>,
    /// How long what is typed on nodes may take.
    typing: Duration,
    probing: Duration,
    descriptors: BTreeMap<String, i32>,
    refused: Vec<Refused>,
    /// The namespaces whose packets are followed.
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

    /// The agent it stands in.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// By which of the agent's descriptors each namespace is held.
    #[must_use]
    pub fn descriptors(&self) -> &BTreeMap<String, i32> {
        &self.descriptors
    }

    /// What the API servers of its nodes refused until real kube-proxies had written their
    /// rules; [`Evidence::refused`] has what they refused since as well.
    #[must_use]
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Turns the lab into one of another plan. After an error it is of no more
    /// use.
    ///
    /// # Errors
    ///
    /// What the agent could not do, or how it was lost.
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

    /// Has the lab forget its connections, so that the next probe meets it as
    /// the first one did. IPVS keeps the clients that it remembers for a
    /// virtual server with persistence.
    ///
    /// # Errors
    ///
    /// What the agent could not do, or how it was lost.
    pub async fn forget(&mut self) -> Result<(), KernelError> {
        self.agent.link.ask(Request::Forget { lab: self.lab });
        match self.answer(HANG).await? {
            Event::Forgotten { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs the plan's probes.
    ///
    /// # Errors
    ///
    /// What the agent could not do, or how it was lost.
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

    /// Begins to trace what is dropped of the lab's packets, where that is for the front
    /// end to do and any packets are followed.
    async fn trace_drops(&self) -> Option<Result<Tracing, Untraced>> {
        let agent = self.agent.traced_as.filter(|_| !self.traced.is_empty())?;
        let of = |name: &String| Some((name.clone(), *self.descriptors.get(name)?));
        let namespaces = self.traced.iter().filter_map(of).collect();
        Some(beside(move || Tracing::begin(agent, namespaces)).await)
    }

    /// Ends whatever the lab serves under a name, as if its process were
    /// killed: connections end, and the kernel refuses who comes. A program that
    /// was started under that name is killed.
    ///
    /// # Errors
    ///
    /// When the lab serves nothing of that name, or the agent was lost.
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

    /// Takes the lab away and waits until the agent has let go of it. To drop a
    /// session takes it away, too, at some time.
    ///
    /// # Errors
    ///
    /// How the agent was lost.
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

    /// Serves the Kubernetes API at an address in a namespace of the lab, with
    /// these objects and no others. Where it is served already, whoever watches
    /// is told what changes, in the order of the objects and first of what goes.
    ///
    /// # Errors
    ///
    /// When an object cannot be served or the address is taken, or the agent was
    /// lost.
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

    /// Has the API server at that address hold these objects in place of those of their
    /// names, and all others as they are; whoever watches is told.
    ///
    /// # Errors
    ///
    /// When an object cannot be served, none serves there, or the agent was lost.
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

    /// At which version the API server has what it was given.
    async fn served(&mut self) -> Result<u64, KernelError> {
        match self.answer(HANG).await? {
            Event::Served { version, .. } => Ok(version),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Starts a program in a namespace of the lab and lets it run until the lab
    /// is gone or [`Session::stop`] ends it. A guest has only the programs that
    /// it was given.
    ///
    /// # Errors
    ///
    /// When the program cannot be started, one of that name runs, or the agent
    /// was lost.
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

    /// How a program is that [`Session::start`] started.
    ///
    /// # Errors
    ///
    /// When none of that name was started, or the agent was lost.
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

    /// Runs a program in a namespace of the lab and waits for its end. A guest
    /// has only the programs that it was given.
    ///
    /// # Errors
    ///
    /// When the program cannot be started, or the agent was lost; not when the
    /// program ends with an error of its own.
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

    /// What attaches to the lab, whatever else it is asked meanwhile.
    #[must_use]
    pub fn opener(&self) -> Opener {
        Opener::new(self.agent.clone(), self.lab)
    }

    /// Waits until a balancer of the lab has found a backend in another state
    /// than before and has acted on it.
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

    /// Ends an agent that does not do what it should.
    fn nonsense(&self, how: &dyn std::fmt::Display) -> KernelError {
        self.agent.link.kill();
        let mut lost = self.agent.link.lost("");
        lost.how = beginning(how);
        KernelError::Lost(lost)
    }
}

/// Does what takes some milliseconds without keeping others waiting, unless there is no
/// room for a thread to do it in.
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

/// How long probes may take: at worst each waits for the one before, for its
/// handshake and for its answer.
fn probing(probes: &[Probe]) -> Duration {
    probes.iter().map(|probe| probe.patience * 2).sum()
}
