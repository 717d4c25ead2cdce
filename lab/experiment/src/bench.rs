//! The labs that run trials.
//!
//! Input: the plan of a trial. Output: the evidence of its probes. A trial changes an idle lab of
//! the same case into its plan, which is faster than building a lab.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;

use svclab_model::evidence::Evidence;
use svclab_model::plan::{Namespace, Plan};
use svclab_planner::delta::diff;
use svclab_ruleset::iptables::script::IptablesScript;
use svclab_runner::kernel::{Agent, KernelError, RunCount, Session};
use svclab_runner::run::execute::Room;
use svclab_runner::run::execute::idle::Idle;
use svclab_runner::run::execute::pool::Pool;

/// Origin of a trial's lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LabOrigin {
    /// The lab was built.
    Built,
    /// The running lab was changed.
    Changed,
    /// There was no lab: the kernel refused it.
    Refused,
}

/// Agents that build labs.
#[derive(Clone)]
pub(crate) enum AgentSource {
    Agent(Agent),
    Pool(Arc<Pool>),
}

/// Run of the probes of a plan.
pub(crate) struct TrialRequest {
    /// Only labs of the same case are changed into the plan.
    pub(crate) case: String,
    pub(crate) plan: Plan,
    pub(crate) lab: LabChoice,
    pub(crate) notice: Option<SlowNotice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabChoice {
    /// An idle lab if there is one.
    Any,
    /// A new lab, which later trials may change.
    New,
    /// A new lab, which is removed after the trial.
    Single,
}

/// Message that is sent if the probes of a trial are still running after some time.
pub(crate) struct SlowNotice {
    pub(crate) after: Duration,
    pub(crate) trial: usize,
    pub(crate) receiver: mpsc::UnboundedSender<usize>,
}

/// Idle labs, with a limit for the labs in use.
pub(crate) struct Bench {
    slots: Semaphore,
    max_labs: usize,
    idle: Idle<RunningLab>,
}

/// Reason why a trial has no evidence.
#[derive(Debug)]
pub(crate) struct TrialError {
    /// Origin of the lab if the lab was ready and its probes failed.
    pub(crate) lab: Option<LabOrigin>,
    pub(crate) error: KernelError,
}

impl TrialError {
    /// Whether the probes failed in a lab in which other trials ran before: their closed connections
    /// may hold all source ports of a probe.
    const fn is_of_changed_lab(&self) -> bool {
        let is_changed = matches!(self.lab, Some(LabOrigin::Changed));
        is_changed && matches!(self.error, KernelError::RequestFailed(_))
    }
}

impl From<KernelError> for TrialError {
    fn from(error: KernelError) -> Self {
        Self { lab: None, error }
    }
}

impl From<TrialError> for KernelError {
    fn from(failed: TrialError) -> Self {
        failed.error
    }
}

struct RunningLab {
    case: String,
    plan: Plan,
    session: Session,
    _room: Option<Room>,
}

impl Bench {
    /// Creates a bench without labs that runs `max_labs` trials at once.
    pub(crate) fn new(max_labs: usize) -> Self {
        let max_labs = max_labs.max(1);
        Self {
            slots: Semaphore::new(max_labs),
            max_labs,
            idle: Idle::default(),
        }
    }

    /// Returns the number of trials that run at once.
    pub(crate) const fn max_labs(&self) -> usize {
        self.max_labs
    }

    /// Whether another trial can start immediately.
    pub(crate) fn has_room(&self) -> bool {
        self.slots.available_permits() > 0
    }

    /// Runs a trial as soon as fewer than `max_labs` trials run.
    pub(crate) async fn run(
        &self,
        agents: &AgentSource,
        mut trial: TrialRequest,
    ) -> Result<(Evidence, LabOrigin), TrialError> {
        let mut tries = RunCount::default();
        loop {
            match self.run_once(agents, &mut trial).await {
                Err(failed) if failed.is_of_changed_lab() => trial.lab = LabChoice::New,
                Err(failed) if tries.should_retry(&failed.error) => {}
                ran => return ran,
            }
        }
    }

    async fn run_once(
        &self,
        agents: &AgentSource,
        trial: &mut TrialRequest,
    ) -> Result<(Evidence, LabOrigin), TrialError> {
        // The semaphore is never closed.
        let _slot = self.slots.acquire().await;
        if trial.plan.stages.len() > 1 {
            // The changes that a step makes cannot be undone.
            trial.lab = LabChoice::Single;
        }
        let changed = match self.take_idle(trial) {
            Some(lab) => lab.change(&trial.plan).await?,
            None => None,
        };
        let (mut lab, origin) = match changed {
            Some(lab) => (lab, LabOrigin::Changed),
            None => (self.build(agents, trial).await?, LabOrigin::Built),
        };
        let probed = lab.probe(&mut trial.notice).await;
        let evidence = probed.map_err(|error| TrialError {
            lab: Some(origin),
            error,
        })?;
        if trial.lab != LabChoice::Single {
            self.idle.keep(lab);
        }
        Ok((evidence, origin))
    }

    pub(crate) fn stop(&self, case: &str) {
        self.idle.update(|labs| labs.retain(|lab| lab.case != case));
    }

    fn take_idle(&self, trial: &TrialRequest) -> Option<RunningLab> {
        self.idle.update(|idle| match trial.lab {
            LabChoice::Any => {
                let index = idle.iter().rposition(|lab| lab.case == trial.case)?;
                Some(idle.swap_remove(index))
            }
            LabChoice::New => {
                // A new lab replaces an idle one only if the limit of labs is reached.
                let running = self.max_labs - self.slots.available_permits();
                if idle.len() + running > self.max_labs {
                    idle.pop();
                }
                None
            }
            LabChoice::Single => None,
        })
    }

    async fn build(
        &self,
        agents: &AgentSource,
        trial: &TrialRequest,
    ) -> Result<RunningLab, KernelError> {
        let plan = trial.plan.clone();
        let (agent, room) = match agents {
            AgentSource::Agent(agent) => (agent.clone(), None),
            AgentSource::Pool(pool) => {
                let room = self.idle.wait_for(pool.acquire_room(&plan)).await;
                (pool.agent().await?, room)
            }
        };
        Ok(RunningLab {
            case: trial.case.clone(),
            session: match trial.lab {
                LabChoice::Single => agent.build(plan.clone()).await?,
                LabChoice::Any | LabChoice::New => agent.build_changeable(plan.clone()).await?,
            },
            plan,
            _room: room,
        })
    }
}

impl RunningLab {
    /// Changes the lab into another plan. Returns `None` if a new lab has to be built.
    async fn change(mut self, plan: &Plan) -> Result<Option<Self>, KernelError> {
        // Packets of an earlier trial must not affect the result.
        if plan.namespaces.iter().any(remembers_packets) {
            return Ok(None);
        }
        // Its rules are not part of a plan, and it keeps the objects that it has received.
        let has_real_proxy = !plan.kube_proxies.is_empty() || !self.plan.kube_proxies.is_empty();
        if has_real_proxy && !has_same_lab(&self.plan, plan) {
            return Ok(None);
        }
        let Ok(delta) = diff(&self.plan, plan) else {
            return Ok(None);
        };
        let changing = async {
            if !delta.is_empty() {
                self.session.change(delta).await?;
            }
            self.session.reset_connections().await
        };
        match changing.await {
            Ok(()) => {}
            // A new lab shows whether the kernel refuses the plan itself.
            Err(KernelError::RequestFailed(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        plan.clone_into(&mut self.plan);
        Ok(Some(self))
    }

    async fn probe(&mut self, notice: &mut Option<SlowNotice>) -> Result<Evidence, KernelError> {
        let mut probing = pin!(self.session.probe());
        if let Some(after) = notice.as_ref().map(|notice| notice.after) {
            tokio::select! {
                biased;
                evidence = &mut probing => return evidence,
                () = sleep(after) => {
                    if let Some(notice) = notice.take() {
                        // The receiver no longer exists if the search has ended.
                        let _ = notice.receiver.send(notice.trial);
                    }
                }
            }
        }
        probing.await
    }
}

/// Whether two plans differ at most in what is recorded.
fn has_same_lab(one: &Plan, other: &Plan) -> bool {
    let recorded = Plan {
        evidence: one.evidence.clone(),
        ..other.clone()
    };
    *one == recorded
}

/// Matches, targets and statements whose limits, counts and entries only a new lab resets.
const REMEMBERING: [&str; 8] = [
    "-j SET ",
    "-m limit ",
    "-m hashlimit ",
    "-m quota ",
    "--mode nth ",
    "limit rate ",
    "quota ",
    "numgen inc ",
];

/// Whether a namespace has rules that decide by earlier packets and that cannot be reset. Input that
/// cannot be parsed has none: it cannot be changed in place.
fn remembers_packets(namespace: &Namespace) -> bool {
    let remembers = |rule: &str| REMEMBERING.iter().any(|words| rule.contains(words));
    let inputs = namespace
        .iptables_rules()
        .flat_map(|rules| [&rules.v4, &rules.v6]);
    let tables = inputs
        .filter_map(|input| input.state().ok())
        .flat_map(IptablesScript::tables);
    let mut commands = tables.flat_map(|(_, table)| &table.commands);
    let tables = namespace.nft.state().into_iter();
    let tables = tables.flat_map(|ruleset| &ruleset.tables);
    let chains = tables.flat_map(|table| &table.chains);
    let mut rules = chains.flat_map(|chain| &chain.rules);
    commands.any(|command| remembers(&command.rule)) || rules.any(|rule| remembers(&rule.text))
}

/// Builds a new lab and runs its probes several times.
pub(crate) async fn probe_new_lab(
    agent: &Agent,
    plan: &Plan,
    runs: u64,
) -> Result<Vec<Evidence>, KernelError> {
    let mut tries = RunCount::default();
    loop {
        let probing = async {
            let mut session = agent.build(plan.clone()).await?;
            let mut evidence = Vec::new();
            for _ in 0..runs {
                evidence.push(session.probe().await?);
            }
            Ok(evidence)
        };
        match probing.await {
            Err(error) if tries.should_retry(&error) => {}
            probed => return probed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::protocol::{Failure, FailureKind};

    #[test]
    fn plans_that_differ_in_objects_have_other_labs() {
        let plan = Plan::default();
        let changed = |change: fn(&mut Plan)| {
            let mut other = plan.clone();
            change(&mut other);
            has_same_lab(&plan, &other)
        };
        assert!(changed(|_| {}));
        assert!(changed(|plan| plan
            .evidence
            .trace
            .push("node-1".to_owned())));
        assert!(!changed(|plan| plan.objects.push(serde_json::json!({}))));
        assert!(!changed(|plan| plan.namespaces.push(Namespace::default())));
    }

    #[test]
    fn only_changed_lab_is_replaced_after_failed_probes() {
        let failed = |lab| TrialError {
            lab,
            error: KernelError::RequestFailed(Failure {
                kind: FailureKind::Input,
                message: "no free source port".to_owned(),
                remedy: None,
                rejected: None,
            }),
        };
        assert!(failed(Some(LabOrigin::Changed)).is_of_changed_lab());
        assert!(!failed(Some(LabOrigin::Built)).is_of_changed_lab());
        assert!(!failed(None).is_of_changed_lab());
    }
}
