//! Running lab of an agent, on the side of the front end.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Agent;
use super::audience::SessionReceiver;
use super::cpu_wait;
use super::evidence_check::ExpectedEvidence;
use super::lab_drops::LabDrops;
use super::stream::StreamOpener;
use crate::kernel::error::{KernelError, SILENCE_PREFIXES};
use svclab_diagnostic::printable::format_beginning;
use svclab_model::evidence::{Evidence, RejectedRequest};
use svclab_model::plan::{Delta, Plan, Stage};
use svclab_model::protocol::profile::Profile;
use svclab_model::protocol::{
    BackendHealthChange, Event, LabId, ProgramOutput, ProgramStatus, Request,
};

/// Time that an agent may spend on one request in addition to the time that the lab itself waits.
/// It does not limit labs, but distinguishes an agent that hangs from one that works.
const HANG_TIMEOUT: Duration = Duration::from_mins(5);

/// Maximum number of backend health changes that are kept until they are requested. The latest are
/// kept.
const MAX_HEALTH_CHANGES: usize = 1024;

/// Running lab. Dropping the session removes the lab.
#[derive(Debug)]
pub struct Session {
    agent: Agent,
    lab: LabId,
    events: SessionReceiver,
    /// Health changes that balancers reported and that were not requested yet.
    health_changes: VecDeque<BackendHealthChange>,
    /// Maximum time of the commands that run on nodes.
    max_command_time: Duration,
    max_probe_time: Duration,
    descriptors: BTreeMap<String, i32>,
    refused: Vec<RejectedRequest>,
    expected_evidence: ExpectedEvidence,
    is_removed: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        self.agent.link.send(Request::Remove { lab: self.lab });
        self.agent.link.remove_lab(self.lab);
    }
}

/// Properties of a lab that do not belong to its plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuildOptions {
    /// Whether [`Session::change`] follows. If so, the programs that load rules keep running and
    /// wait for more.
    pub accepts_changes: bool,
    /// Whether [`Session::take_profile`] follows, so that the agent measures its work.
    pub is_profiled: bool,
}

impl Session {
    pub(super) fn new(agent: Agent, lab: LabId, events: SessionReceiver, plan: &Plan) -> Self {
        Self {
            agent,
            descriptors: BTreeMap::new(),
            refused: Vec::new(),
            expected_evidence: ExpectedEvidence::new(plan),
            health_changes: VecDeque::new(),
            is_removed: false,
            max_command_time: plan
                .commands
                .iter()
                .map(|typed| typed.limits.max_time)
                .sum(),
            lab,
            events,
            max_probe_time: max_probe_time(&plan.stages),
        }
    }

    pub(super) async fn build(
        &mut self,
        plan: Plan,
        options: BuildOptions,
    ) -> Result<(), KernelError> {
        self.agent.link.send(Request::Build {
            lab: self.lab,
            plan: Box::new(plan),
            accepts_changes: options.accepts_changes,
            is_profiled: options.is_profiled,
        });
        match self.answer(self.max_command_time + HANG_TIMEOUT).await? {
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
    pub fn refused(&self) -> &[RejectedRequest] {
        &self.refused
    }

    /// Changes the lab to that of another plan. After an error, the lab is unusable.
    ///
    /// # Errors
    ///
    /// When the agent cannot apply the change or was lost.
    pub async fn change(&mut self, delta: Delta) -> Result<(), KernelError> {
        self.expected_evidence.apply(&delta);
        if let Some(stages) = &delta.stages {
            self.max_probe_time = max_probe_time(stages);
        }
        self.agent.link.send(Request::Change {
            lab: self.lab,
            delta: Box::new(delta),
        });
        match self.answer(HANG_TIMEOUT).await? {
            Event::Changed { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the costs that the agent measured since the lab was built with
    /// [`BuildOptions::is_profiled`], or since the previous profile.
    ///
    /// # Errors
    ///
    /// When the agent was lost.
    pub async fn take_profile(&mut self) -> Result<Profile, KernelError> {
        self.agent.link.send(Request::TakeProfile { lab: self.lab });
        match self.answer(HANG_TIMEOUT).await? {
            Event::Profiled { profile, .. } => Ok(profile),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Resets the connection state of the lab, so that the next probe runs under the conditions of
    /// the first. IPVS keeps the clients that it recorded for a virtual server with persistence.
    ///
    /// # Errors
    ///
    /// When the agent cannot reset the state or was lost.
    pub async fn reset_connections(&mut self) -> Result<(), KernelError> {
        self.agent
            .link
            .send(Request::ResetConnections { lab: self.lab });
        match self.answer(HANG_TIMEOUT).await? {
            Event::ConnectionsReset { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs the probes of the plan.
    ///
    /// # Errors
    ///
    /// When the agent cannot run the probes, returns other evidence than requested, or was lost.
    pub async fn probe(&mut self) -> Result<Evidence, KernelError> {
        let mut drops = self.trace_drops().await;
        self.agent.link.send(Request::Probe { lab: self.lab });
        let (link, lab) = (Arc::clone(&self.agent.link), self.lab);
        let settles = self.expected_evidence.settles_timeouts();
        let reporting = async {
            match &mut drops {
                Some(drops) if settles => drops.report(&link, lab).await,
                _ => pending().await,
            }
        };
        let answer = tokio::select! {
            answer = self.answer(self.max_probe_time + HANG_TIMEOUT) => answer?,
            never = reporting => match never {},
        };
        let mut evidence = match answer {
            Event::Probed { evidence, .. } => *evidence,
            other => return Err(self.unexpected(&other)),
        };
        if let Err(reason) = self.expected_evidence.check(&evidence) {
            let cause = format_args!("its evidence does not match the request: {reason}");
            return Err(self.protocol_violation(&cause));
        }
        if let Some(drops) = drops {
            let traced = self.expected_evidence.traced_namespaces();
            let drops = drops.stop(traced).await;
            if !traced.is_empty() {
                evidence.assign_drops(drops);
            }
        }
        Ok(evidence)
    }

    /// Starts to trace the dropped packets of the lab. `None` if the front end does not trace them,
    /// or if nothing needs them.
    async fn trace_drops(&self) -> Option<LabDrops> {
        let expected = &self.expected_evidence;
        let settles = expected.settles_timeouts();
        let needs = |name: &String| settles || expected.traced_namespaces().contains(name);
        let namespaces = self.descriptors.iter();
        let namespaces = namespaces.filter(|(name, _)| needs(name));
        let namespaces: Vec<(String, i32)> = namespaces
            .map(|(name, descriptor)| (name.clone(), *descriptor))
            .collect();
        let agent = self.agent.traced_as.filter(|_| !namespaces.is_empty())?;
        Some(LabDrops::start(agent, namespaces).await)
    }

    /// Stops what the lab serves under a name, as if its process were killed: connections end, and
    /// the kernel refuses new connections. A program that was started under that name is killed.
    ///
    /// # Errors
    ///
    /// When the lab serves nothing under that name, or the agent was lost.
    pub async fn stop(&mut self, server: &str) -> Result<(), KernelError> {
        self.agent.link.send(Request::Stop {
            lab: self.lab,
            server: server.to_owned(),
        });
        match self.answer(HANG_TIMEOUT).await? {
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
    pub async fn remove(mut self) -> Result<(), KernelError> {
        self.agent.link.send(Request::Remove { lab: self.lab });
        let removed = self.answer(HANG_TIMEOUT).await;
        self.is_removed = true;
        self.agent.link.remove_lab(self.lab);
        match removed? {
            Event::Removed { .. } => Ok(()),
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
        address: SocketAddr,
        objects: Vec<serde_json::Value>,
    ) -> Result<u64, KernelError> {
        self.agent.link.send(Request::Serve {
            lab: self.lab,
            namespace: namespace.to_owned(),
            address,
            objects,
        });
        self.served_version().await
    }

    /// Adds these objects to the API server at an address, or replaces those of the same names.
    /// Other objects remain. Watchers receive the changes. Returns the version of the objects.
    ///
    /// # Errors
    ///
    /// When an object cannot be served, no API server is at the address, or the agent was lost.
    pub async fn update_objects(
        &mut self,
        namespace: &str,
        address: SocketAddr,
        objects: Vec<serde_json::Value>,
    ) -> Result<u64, KernelError> {
        self.agent.link.send(Request::UpdateObjects {
            lab: self.lab,
            namespace: namespace.to_owned(),
            address,
            objects,
        });
        self.served_version().await
    }

    /// Returns the version at which the API server has the objects.
    async fn served_version(&mut self) -> Result<u64, KernelError> {
        match self.answer(HANG_TIMEOUT).await? {
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
        self.agent.link.send(Request::Start {
            lab: self.lab,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            program: program.to_owned(),
            arguments: arguments.to_vec(),
        });
        match self.answer(HANG_TIMEOUT).await? {
            Event::Started { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the status of a program that [`Session::start`] started.
    ///
    /// # Errors
    ///
    /// When no program of that name was started, or the agent was lost.
    pub async fn program_status(&mut self, name: &str) -> Result<ProgramStatus, KernelError> {
        self.agent.link.send(Request::ProgramStatus {
            lab: self.lab,
            name: name.to_owned(),
        });
        match self.answer(HANG_TIMEOUT).await? {
            Event::ProgramStatus {
                status: running, ..
            } => Ok(running),
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
    ) -> Result<ProgramOutput, KernelError> {
        self.agent.link.send(Request::Run {
            lab: self.lab,
            namespace: namespace.to_owned(),
            program: program.to_owned(),
            arguments: arguments.iter().map(|each| (*each).to_owned()).collect(),
            input: input.to_owned(),
        });
        match self.answer(HANG_TIMEOUT).await? {
            Event::ProgramFinished {
                output: finished, ..
            } => Ok(finished),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs a program, like [`Self::run`], for at most `max_wait`. Time in which the program waits
    /// for a processor does not count, up to 10 times `max_wait`. `None` if the program does not
    /// end in that time; the session then waits for its reply, and can only be dropped.
    ///
    /// # Errors
    ///
    /// See [`Self::run`].
    pub async fn run_within(
        &mut self,
        max_wait: Duration,
        namespace: &str,
        program: &str,
        arguments: &[&str],
    ) -> Option<Result<ProgramOutput, KernelError>> {
        let process = self.agent.process();
        let run = self.run(namespace, program, arguments, "");
        cpu_wait::within_cpu_time(process, max_wait, run).await
    }

    /// Returns the opener of streams to the lab. Streams work in parallel with other requests.
    #[must_use]
    pub fn opener(&self) -> StreamOpener {
        StreamOpener::new(self.agent.clone(), self.lab)
    }

    /// Waits until a balancer of the lab has found a change of a backend's health and has acted on
    /// it.
    ///
    /// # Errors
    ///
    /// When the agent was lost.
    pub async fn next_health_change(&mut self) -> Result<BackendHealthChange, KernelError> {
        if let Some(turn) = self.health_changes.pop_front() {
            return Ok(turn);
        }
        match self.events.recv().await {
            Some(Event::BackendHealthChanged { change: turn, .. }) => Ok(turn),
            Some(other) => Err(self.unexpected(&other)),
            None => Err(KernelError::Lost(self.agent.link.loss("connection closed"))),
        }
    }

    async fn answer(&mut self, timeout: Duration) -> Result<Event, KernelError> {
        let Self {
            events,
            health_changes: turns,
            ..
        } = self;
        let answer = async {
            loop {
                match events.recv().await {
                    Some(Event::BackendHealthChanged { change: turn, .. }) => {
                        turns.push_back(turn);
                        if turns.len() > MAX_HEALTH_CHANGES {
                            turns.pop_front();
                        }
                    }
                    other => return other,
                }
            }
        };
        match cpu_wait::within_cpu_time(self.agent.process(), timeout, answer).await {
            Some(Some(Event::Failed { failure, .. })) => Err(KernelError::RequestFailed(failure)),
            Some(Some(event)) => Ok(event),
            Some(None) => Err(KernelError::Lost(self.agent.link.loss("connection closed"))),
            None => {
                self.agent.link.kill();
                Err(KernelError::Lost(self.agent.link.loss(&format!(
                    "{} {} s",
                    SILENCE_PREFIXES[1],
                    timeout.as_secs()
                ))))
            }
        }
    }

    fn unexpected(&self, event: &Event) -> KernelError {
        self.protocol_violation(&format_args!("unexpected answer: {event:?}"))
    }

    /// Kills an agent that violates the protocol.
    fn protocol_violation(&self, cause: &dyn std::fmt::Display) -> KernelError {
        self.agent.link.kill();
        let mut lost = self.agent.link.loss("");
        lost.cause = format_beginning(cause);
        KernelError::Lost(lost)
    }
}

/// Returns the maximum time of stages. At worst, each probe waits for the previous one, for its
/// handshake and for its answer.
fn max_probe_time(stages: &[Stage]) -> Duration {
    let probes = stages.iter().flat_map(|stage| &stage.probes);
    let steps = stages.iter().filter(|stage| stage.step.is_some());
    let probe_time: Duration = probes.map(|probe| probe.max_wait * 2).sum();
    probe_time + steps.map(|_| HANG_TIMEOUT).sum::<Duration>()
}
