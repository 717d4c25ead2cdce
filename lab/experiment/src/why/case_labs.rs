//! Runs a case, unchanged or with changes, in the labs of a bench.

use std::sync::Arc;

use crate::bench::{AgentSource, Bench, LabChoice, LabOrigin, TrialRequest};
use svclab_model::evidence::Evidence;
use svclab_model::plan::{EvidenceRequest, Plan};
use svclab_runner::kernel::KernelError;
use svclab_runner::run::execute::pool::Pool;
use svclab_runner::run::prepare::Prepared;
use svclab_runner::run::refit::without_rejected;

/// Labs of one case on one kernel.
#[derive(Clone, Copy)]
pub(super) struct CaseLabs<'a> {
    pub(super) bench: &'a Bench,
    pub(super) pool: &'a Arc<Pool>,
}

impl CaseLabs<'_> {
    /// Runs the probes of a case in a changed lab or a new one. If the kernel refuses objects of a
    /// dump that may be omitted, the case runs again without them.
    pub(super) async fn run(
        &self,
        prepared: &Prepared,
        full_evidence: bool,
        lab: LabChoice,
    ) -> Result<(Evidence, LabOrigin), KernelError> {
        let error = match self.run_once(prepared, full_evidence, lab).await {
            Err(error) if !prepared.replay_reports.is_empty() => error,
            ran => return ran,
        };
        let agent = self.pool.agent().await?;
        match without_rejected(prepared, &error, &agent).await {
            Some(Ok(fitting)) => self.run_once(&fitting, full_evidence, lab).await,
            _ => Err(error),
        }
    }

    async fn run_once(
        &self,
        prepared: &Prepared,
        full_evidence: bool,
        lab: LabChoice,
    ) -> Result<(Evidence, LabOrigin), KernelError> {
        let mut plan = with_early_timeouts(prepared);
        plan.evidence = if full_evidence {
            EvidenceRequest::everything(&plan)
        } else {
            EvidenceRequest::default()
        };
        let trial = TrialRequest {
            case: prepared.case.id.clone(),
            plan,
            lab,
            notice: None,
        };
        let agents = AgentSource::Pool(Arc::clone(self.pool));
        Ok(self.bench.run(&agents, trial).await?)
    }
}

/// Returns the plan of a case, with timeouts reported as soon as they are proven. Probes for which
/// the lab sets a maximum wait are excluded, because a later answer does not count. Plans with a
/// real kube-proxy are excluded, because they do not contain its future changes.
fn with_early_timeouts(prepared: &Prepared) -> Plan {
    let mut plan = prepared.plan.clone();
    if !plan.kube_proxies.is_empty() {
        return plan;
    }
    let spec = &prepared.case.spec;
    let sets_wait = |name: &str| {
        let probe = spec.probe(name);
        probe.is_some_and(|probe| probe.max_wait.is_some() || probe.across.is_some())
    };
    for probe in plan.probes_mut() {
        probe.settle = !sets_wait(&probe.name);
    }
    plan
}
