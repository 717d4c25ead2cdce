//! Runs trials in one lab that is changed between trials.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::sleep;

use crate::bisect::document::Reached;
use crate::verify::{Outcome, Tally};
use svclab_model::evidence::{Evidence, Verdict};
use svclab_model::plan::{Patience, Plan, Probe, Watch};
use svclab_model::protocol::Fault;
use svclab_runner::kernel::{Agent, KernelError, Session, Tries};

/// Minimum time to wait for an answer in a narrowing trial.
const LEAST: Duration = Duration::from_millis(150);

/// Maximum time to wait for an answer in a narrowing trial.
const MOST: Duration = Duration::from_secs(3);

/// Factor between the slowest answer seen and the time to wait for an answer.
const SLOWER: u32 = 20;

/// Running lab of consecutive trials, or none yet.
pub struct Bench {
    agent: Agent,
    standing: Option<(Plan, Session)>,
}

/// Request for a trial.
pub struct Look {
    /// Plan of the lab.
    pub plan: Plan,
    /// Probes to run.
    pub probes: Vec<Probe>,
    pub way: Way,
    /// Whether to build a new lab, instead of changing the running one.
    pub anew: bool,
}

/// Callback for probes that are still running after some time.
pub struct Doubt {
    /// Time after which the callback runs.
    pub after: Duration,
    pub tell: Box<dyn FnOnce() + Send>,
}

/// Result of a trial.
pub enum Tried {
    /// The probes ran.
    Seen(Box<Evidence>, Reached),
    /// The kernel refused the lab with this message.
    Refused(String),
}

/// Connections and waiting time of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Number of connections from the lab. A timeout must elapse or be proven by the evidence.
    Slow,
    /// This number of connections, with this maximum wait for each.
    Quick {
        connections: u32,
        patience: Duration,
    },
}

impl Way {
    fn of(self, probe: &Probe) -> Probe {
        let mut probe = Probe {
            after: None,
            ..probe.clone()
        };
        match self {
            Self::Slow => {
                probe.settle = true;
                probe.patience = probe.patience.max(Patience::SETTLED.longest);
            }
            Self::Quick {
                connections,
                patience,
            } => {
                probe.settle = false;
                probe.connections = connections;
                probe.patience = patience.min(probe.patience);
            }
        }
        probe
    }

    /// Returns the maximum wait that is sufficient for quick trials, based on the slowest answer in
    /// the evidence.
    pub fn patience(seen: &[&Evidence]) -> Duration {
        let attempts = seen.iter().flat_map(|seen| &seen.attempts);
        let answered =
            attempts.filter(|one| !matches!(one.verdict, Verdict::Timeout | Verdict::Silent));
        let slowest = answered.map(|one| one.took).max().unwrap_or_default();
        (slowest * SLOWER).clamp(LEAST, MOST)
    }
}

impl Bench {
    /// Creates a trial lab that is not built yet.
    pub fn new(agent: Agent) -> Self {
        Self {
            agent,
            standing: None,
        }
    }

    /// Runs probes of a plan in a new lab, or in the running lab after changing it.
    ///
    /// # Errors
    ///
    /// Returns an error if the agent is lost, or fails for a reason other than an invalid plan.
    pub async fn tried(&mut self, look: Look, doubt: Option<Doubt>) -> Result<Tried, KernelError> {
        if look.anew {
            self.standing = None;
        }
        let probes = look.probes.iter();
        let wanted = Plan {
            probes: probes.map(|probe| look.way.of(probe)).collect(),
            watch: Watch::default(),
            ..look.plan
        };
        let (mut runs, mut doubt) = (Tries::default(), doubt);
        loop {
            match self.tried_once(wanted.clone(), &mut doubt).await {
                Err(error) if runs.again(&error) => self.standing = None,
                tried => return tried,
            }
        }
    }

    async fn tried_once(
        &mut self,
        wanted: Plan,
        doubt: &mut Option<Doubt>,
    ) -> Result<Tried, KernelError> {
        let reached = match self.reach(wanted).await {
            Ok(reached) => reached,
            Err(KernelError::Failed(failure)) if failure.fault == Fault::Input => {
                self.standing = None;
                return Ok(Tried::Refused(failure.message));
            }
            Err(error) => return Err(error),
        };
        let Some((_, session)) = &mut self.standing else {
            return Ok(Tried::Refused("no lab stands".to_owned()));
        };
        let mut probing = pin!(session.probe());
        if let Some(after) = doubt.as_ref().map(|doubt| doubt.after) {
            tokio::select! {
                biased;
                evidence = &mut probing => return Ok(Tried::Seen(Box::new(evidence?), reached)),
                () = sleep(after) => {
                    if let Some(doubt) = doubt.take() {
                        (doubt.tell)();
                    }
                }
            }
        }
        Ok(Tried::Seen(Box::new(probing.await?), reached))
    }

    async fn reach(&mut self, wanted: Plan) -> Result<Reached, KernelError> {
        if let Some((there, mut session)) = self.standing.take()
            && let Ok(delta) = svclab_planner::delta::between(&there, &wanted)
        {
            if !delta.is_empty() {
                session.change(delta).await?;
            }
            // Conntrack entries of an earlier trial must not affect the result.
            session.forget().await?;
            self.standing = Some((wanted, session));
            return Ok(Reached::Changed);
        }
        let session = self.agent.build_standing(wanted.clone()).await?;
        self.standing = Some((wanted, session));
        Ok(Reached::Built)
    }
}

/// Counts the outcomes of each probe. A source is named after the node, pod or host of the plan
/// that has its address.
pub fn tallies(plan: &Plan, evidence: &Evidence) -> IndexMap<String, Tally> {
    let names = names(plan);
    let mut all: IndexMap<String, Tally> = IndexMap::new();
    for attempt in &evidence.attempts {
        let source = attempt.seen_source.map(|source| {
            let name = names.get(&source.ip()).cloned();
            name.unwrap_or_else(|| source.ip().to_string())
        });
        all.entry(attempt.probe.clone())
            .or_default()
            .count(Outcome {
                endpoint: attempt.endpoint.clone(),
                source,
                ..Outcome::of(attempt.verdict)
            });
    }
    all
}

fn names(plan: &Plan) -> HashMap<IpAddr, String> {
    let mut names = HashMap::new();
    for namespace in &plan.namespaces {
        for (at, link) in namespace.links.iter().enumerate() {
            for address in &link.addresses {
                let name = if at == 0 {
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
