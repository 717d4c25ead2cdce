//! Makes a step: changes a running lab from one stage to the next.

use std::cell::RefCell;
use std::rc::Rc;

use crate::lab::real_proxy;
use crate::lab::{RunningLab, begin};
use crate::net::netfilter::conntrack;
use crate::probe::convergence_probes::ConvergenceProbes;
use crate::runtime::closing::ClosingSockets;
use crate::runtime::delay::Delay;
use crate::watch::capture::{self, CaptureBuffer};
use svclab_model::evidence::{Attempt, StepEvidence};
use svclab_model::plan::{Lifetime, Probe, Stage, Step};
use svclab_model::protocol::{BackendHealthChange, Failure};

/// Step whose probes have not ended.
pub(super) struct MadeStep {
    evidence: StepEvidence,
    delay: Delay,
    closing: ClosingSockets,
}

impl MadeStep {
    /// Returns the evidence of the step, after its probes.
    pub(super) async fn end(self) -> StepEvidence {
        self.closing.wait().await;
        StepEvidence {
            delay_ms: self.delay.host_ms(),
            ..self.evidence
        }
    }
}

impl RunningLab {
    /// Makes the step of a stage.
    ///
    /// # Errors
    ///
    /// When the lab cannot be changed, evidence cannot be recorded, or a kube-proxy does not write
    /// its rules.
    pub(super) async fn make_step(
        &mut self,
        planned_step: &Step,
        stage: &Stage,
        step: &impl Fn(String),
        on_health_change: &Rc<dyn Fn(BackendHealthChange)>,
    ) -> Result<MadeStep, Failure> {
        self.is_changed = true;
        begin(step, format!("apply the step {}", planned_step.name)).await;
        let buffer = Rc::new(RefCell::new(CaptureBuffer::default()));
        let captures = match &planned_step.api_update {
            Some(_) => self.start_captures(&buffer, |_| true)?,
            None => Vec::new(),
        };
        let before = real_proxy::wait_until_idle(self, planned_step.api_update.as_ref()).await?;
        let changed_at = buffer.borrow_mut().now();
        let delay = Delay::start();
        if let Some(update) = &planned_step.api_update {
            self.plan.objects.clone_from(&update.objects);
            real_proxy::update_objects(self, &update.objects)?;
        }
        self.apply_delta(planned_step.delta.clone(), step, on_health_change)
            .await?;
        for (name, stale) in &planned_step.conntrack_deletions {
            conntrack::delete_stale(self.recorded_namespace(name)?, name, stale)?;
        }
        let convergence_attempts = match &planned_step.api_update {
            Some(update) => self.wait_for_proxies(update, &before, stage, step).await?,
            None => Vec::new(),
        };
        let applied_at = buffer.borrow_mut().now();
        for capture in &captures {
            capture.drain();
        }
        let closing = capture::end(captures).await;
        let (packets, packets_missed) = buffer.borrow_mut().take();
        Ok(MadeStep {
            evidence: StepEvidence {
                name: planned_step.name.clone(),
                changed_at,
                applied_at,
                convergence_attempts,
                delay_ms: 0,
                packets,
                packets_missed,
            },
            delay,
            closing,
        })
    }

    /// Waits until every kube-proxy has applied its updates, and repeats the step's probes
    /// meanwhile.
    async fn wait_for_proxies(
        &self,
        update: &svclab_model::plan::ApiUpdate,
        before: &real_proxy::MetricsBefore,
        stage: &Stage,
        step: &impl Fn(String),
    ) -> Result<Vec<Attempt>, Failure> {
        let probes: Vec<&Probe> = stage.probes_with(Lifetime::Stage).collect();
        begin(step, "wait for the rules of its kube-proxies").await;
        let mut scouts = ConvergenceProbes::new(&probes, &self.namespaces);
        let updates_applied = real_proxy::wait_until_applied(self, update, before);
        tokio::pin!(updates_applied);
        loop {
            tokio::select! {
                biased;
                heard = &mut updates_applied => {
                    heard?;
                    break;
                }
                round = scouts.run_round() => round?,
            }
        }
        Ok(scouts.into_attempts().await)
    }
}
