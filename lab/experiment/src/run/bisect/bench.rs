//! One lab that stands, changed from trial to trial.

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

/// The least that is waited for an answer on the way.
const LEAST: Duration = Duration::from_millis(150);

/// The most.
const MOST: Duration = Duration::from_secs(3);

/// So many times as long as the slowest answer took is waited for others.
const SLOWER: u32 = 20;

/// The lab that stands, if any does.
pub struct Bench {
    agent: Agent,
    standing: Option<(Plan, Session)>,
}

/// What is looked at.
pub struct Look {
    /// The lab.
    pub plan: Plan,
    /// What is tried in it.
    pub probes: Vec<Probe>,
    /// How.
    pub way: Way,
    /// Whether the lab is built for it.
    pub anew: bool,
}

/// Who hears that a probe has not ended after some time, while it goes on.
pub struct Doubt {
    /// After how long.
    pub after: Duration,
    /// What is done then.
    pub tell: Box<dyn FnOnce() + Send>,
}

/// What became of a trial.
pub enum Tried {
    /// It came to evidence.
    Seen(Box<Evidence>, Reached),
    /// The kernel refused it, in these words.
    Refused(String),
}

/// How a probe is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As often as the lab says, and a timeout is waited for or proven.
    Slow,
    /// So often, each with so much patience.
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

    /// The patience that is enough on the way, where evidence shows how long answers take.
    pub fn patience(seen: &[&Evidence]) -> Duration {
        let attempts = seen.iter().flat_map(|seen| &seen.attempts);
        let answered =
            attempts.filter(|one| !matches!(one.verdict, Verdict::Timeout | Verdict::Silent));
        let slowest = answered.map(|one| one.took).max().unwrap_or_default();
        (slowest * SLOWER).clamp(LEAST, MOST)
    }
}

impl Bench {
    /// Without a lab yet.
    pub fn new(agent: Agent) -> Self {
        Self {
            agent,
            standing: None,
        }
    }

    /// Tries probes of a plan: in the lab that stands once it is changed, or in one that is
    /// built.
    ///
    /// # Errors
    ///
    /// When the agent is lost, or fails for another reason than what the plan asks for.
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
            // What an earlier trial left in conntrack decides nothing.
            session.forget().await?;
            self.standing = Some((wanted, session));
            return Ok(Reached::Changed);
        }
        let session = self.agent.build_standing(wanted.clone()).await?;
        self.standing = Some((wanted, session));
        Ok(Reached::Built)
    }
}

/// What became of each probe, where sources are called by the machine or pod in a plan
/// that has their address.
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
