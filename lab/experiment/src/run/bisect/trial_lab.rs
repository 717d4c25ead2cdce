//! Runs trials in one lab that is changed between trials.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::sleep;

use crate::bisect::document::LabOrigin;
use crate::verify::{ConnectionOutcome, Tally};
use svclab_model::evidence::{Evidence, Verdict};
use svclab_model::plan::{EvidenceRequest, MaxWait, Plan, Probe};
use svclab_model::protocol::FailureKind;
use svclab_runner::kernel::{Agent, KernelError, RunCount, Session};

/// Minimum time to wait for an answer in a narrowing trial.
const MIN_WAIT: Duration = Duration::from_millis(150);

/// Maximum time to wait for an answer in a narrowing trial.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// Factor between the slowest answer seen and the time to wait for an answer.
const WAIT_FACTOR: u32 = 20;

/// Running lab of consecutive trials, or none yet.
pub struct TrialLab {
    agent: Agent,
    running: Option<(Plan, Session)>,
}

/// Request for a trial.
pub struct TrialRequest {
    /// Plan of the lab.
    pub plan: Plan,
    /// Probes to run.
    pub probes: Vec<Probe>,
    pub mode: ProbeMode,
    /// Whether to build a new lab, instead of changing the running one.
    pub new_lab: bool,
}

/// Callback for probes that are still running after some time.
pub struct SlowNotice {
    /// Time after which the callback runs.
    pub after: Duration,
    pub notify: Box<dyn FnOnce() + Send>,
}

/// Result of a trial.
pub enum TrialResult {
    /// The probes ran.
    Finished(Box<Evidence>, LabOrigin),
    /// The kernel refused the lab with this message.
    Refused(String),
}

/// Connections and waiting time of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeMode {
    /// Number of connections from the lab. A timeout must elapse or be proven by the evidence.
    Full,
    /// This number of connections, with this maximum wait for each.
    Quick {
        connections: u32,
        max_wait: Duration,
    },
}

impl ProbeMode {
    fn apply(self, probe: &Probe) -> Probe {
        let mut probe = Probe {
            after: None,
            ..probe.clone()
        };
        match self {
            Self::Full => {
                probe.settle = true;
                probe.max_wait = probe.max_wait.max(MaxWait::SETTLED.limit);
            }
            Self::Quick {
                connections,
                max_wait,
            } => {
                probe.settle = false;
                probe.connections = connections;
                probe.max_wait = max_wait.min(probe.max_wait);
            }
        }
        probe
    }

    /// Returns the maximum wait that is sufficient for quick trials, based on the slowest answer in
    /// the evidence.
    pub fn sufficient_wait(seen: &[&Evidence]) -> Duration {
        let attempts = seen.iter().flat_map(|seen| &seen.attempts);
        let answered = attempts
            .filter(|attempt| !matches!(attempt.verdict, Verdict::Timeout | Verdict::Silent));
        let slowest = answered
            .map(|attempt| attempt.duration)
            .max()
            .unwrap_or_default();
        (slowest * WAIT_FACTOR).clamp(MIN_WAIT, MAX_WAIT)
    }
}

impl TrialLab {
    /// Creates a trial lab that is not built yet.
    pub fn new(agent: Agent) -> Self {
        Self {
            agent,
            running: None,
        }
    }

    /// Runs probes of a plan in a new lab, or in the running lab after changing it.
    ///
    /// # Errors
    ///
    /// Returns an error if the agent is lost, or fails for a reason other than an invalid plan.
    pub async fn run(
        &mut self,
        request: TrialRequest,
        notice: Option<SlowNotice>,
    ) -> Result<TrialResult, KernelError> {
        if request.new_lab {
            self.running = None;
        }
        let probes = request.probes.iter();
        let plan = Plan {
            probes: probes.map(|probe| request.mode.apply(probe)).collect(),
            evidence: EvidenceRequest::default(),
            ..request.plan
        };
        let (mut tries, mut notice) = (RunCount::default(), notice);
        loop {
            match self.run_once(plan.clone(), &mut notice).await {
                Err(error) if tries.should_retry(&error) => self.running = None,
                result => return result,
            }
        }
    }

    async fn run_once(
        &mut self,
        plan: Plan,
        notice: &mut Option<SlowNotice>,
    ) -> Result<TrialResult, KernelError> {
        let reached = match self.prepare(plan).await {
            Ok(reached) => reached,
            Err(KernelError::RequestFailed(failure)) if failure.kind == FailureKind::Input => {
                self.running = None;
                return Ok(TrialResult::Refused(failure.message));
            }
            Err(error) => return Err(error),
        };
        let Some((_, session)) = &mut self.running else {
            return Ok(TrialResult::Refused("no lab is running".to_owned()));
        };
        let mut probing = pin!(session.probe());
        if let Some(after) = notice.as_ref().map(|doubt| doubt.after) {
            tokio::select! {
                biased;
                evidence = &mut probing => return Ok(TrialResult::Finished(Box::new(evidence?), reached)),
                () = sleep(after) => {
                    if let Some(doubt) = notice.take() {
                        (doubt.notify)();
                    }
                }
            }
        }
        Ok(TrialResult::Finished(Box::new(probing.await?), reached))
    }

    async fn prepare(&mut self, plan: Plan) -> Result<LabOrigin, KernelError> {
        if let Some((current, mut session)) = self.running.take()
            && let Ok(delta) = svclab_planner::delta::diff(&current, &plan)
        {
            if !delta.is_empty() {
                session.change(delta).await?;
            }
            // Conntrack entries of an earlier trial must not affect the result.
            session.reset_connections().await?;
            self.running = Some((plan, session));
            return Ok(LabOrigin::Changed);
        }
        let session = self.agent.build_changeable(plan.clone()).await?;
        self.running = Some((plan, session));
        Ok(LabOrigin::Built)
    }
}

/// Counts the outcomes of each probe. A source is named after the node, pod or host of the plan
/// that has its address.
pub fn tallies(plan: &Plan, evidence: &Evidence) -> IndexMap<String, Tally> {
    let names = address_names(plan);
    let mut counts: IndexMap<String, Tally> = IndexMap::new();
    for attempt in &evidence.attempts {
        let source = attempt.seen_source.map(|source| {
            let name = names.get(&source.ip()).cloned();
            name.unwrap_or_else(|| source.ip().to_string())
        });
        counts
            .entry(attempt.probe.clone())
            .or_default()
            .count(ConnectionOutcome {
                endpoint: attempt.endpoint.clone(),
                source,
                ..ConnectionOutcome::from_verdict(attempt.verdict)
            });
    }
    counts
}

fn address_names(plan: &Plan) -> HashMap<IpAddr, String> {
    let mut names = HashMap::new();
    for namespace in &plan.namespaces {
        for (index, link) in namespace.links.iter().enumerate() {
            for address in &link.addresses {
                let name = if index == 0 {
                    namespace.name.clone()
                } else {
                    format!("{}/{}", namespace.name, link.name)
                };
                names.entry(address.ip()).or_insert(name);
            }
        }
    }
    names
}
