//! Makes a step: changes a running lab and runs the probes of the step.

use std::cell::RefCell;
use std::rc::Rc;

use crate::lab::Lab;
use crate::lab::real_proxy;
use crate::net::netfilter::conntrack;
use crate::probe::convergence_probes::ConvergenceProbes;
use crate::probe::open_connections::OpenConnection;
use crate::runtime::delay::Delay;
use crate::watch::capture::{self, CaptureBuffer};
use svclab_model::evidence::{Attempt, StepEvidence};
use svclab_model::plan::{Delta, Probe, Step};
use svclab_model::protocol::{BackendHealthChange, Failure};

impl Lab {
    /// Makes a step, runs its probes and repeats the exchange on the `open` connections. Then opens
    /// the connections that stay open across the next step.
    ///
    /// # Errors
    ///
    /// When the lab cannot be changed, a probe cannot run, evidence cannot be recorded, or a
    /// kube-proxy does not write its rules.
    pub(crate) async fn make_step(
        &mut self,
        planned_step: &Step,
        open: Vec<OpenConnection>,
        next: Option<&[Probe]>,
        step: &impl Fn(String),
        on_health_change: &Rc<dyn Fn(BackendHealthChange)>,
    ) -> Result<(StepEvidence, Vec<OpenConnection>), Failure> {
        let name = &planned_step.name;
        step(format!("apply the step {name}"));
        let buffer = Rc::new(RefCell::new(CaptureBuffer::default()));
        let captures = match &planned_step.api_update {
            Some(_) => self.start_captures(&buffer, |_| true)?,
            None => Vec::new(),
        };
        let before = real_proxy::wait_until_idle(self, planned_step.api_update.as_ref()).await?;
        let changed = buffer.borrow_mut().now();
        let delay = Delay::start();
        if let Some(update) = &planned_step.api_update {
            self.plan.objects.clone_from(&update.objects);
            real_proxy::update_objects(self, &update.objects)?;
        }
        let delta = Delta {
            probes: Some(planned_step.probes.clone()),
            ..planned_step.delta.clone()
        };
        self.apply_delta(delta, step, on_health_change).await?;
        for (name, stale) in &planned_step.conntrack_deletions {
            conntrack::delete_stale(self.recorded_namespace(name)?, name, stale)?;
        }
        let scouts = match &planned_step.api_update {
            Some(update) => {
                self.wait_for_proxies(update, &before, &planned_step.probes, step)
                    .await?
            }
            None => Vec::new(),
        };
        let applied = buffer.borrow_mut().now();
        for capture in &captures {
            capture.drain();
        }
        let closing = capture::end(captures).await;
        let (packets, _) = buffer.borrow_mut().take();
        let (evidence, opened) = self.run_stage(open, next, step).await?;
        closing.wait().await;
        let step_evidence = StepEvidence {
            name: name.clone(),
            changed_at: changed,
            applied_at: applied,
            convergence_attempts: scouts,
            delay_ms: delay.host_ms(),
            packets,
            evidence: Box::new(evidence),
        };
        Ok((step_evidence, opened))
    }

    /// Waits until every kube-proxy has applied its updates, and repeats the step's probes
    /// meanwhile.
    async fn wait_for_proxies(
        &self,
        update: &svclab_model::plan::ApiUpdate,
        before: &real_proxy::MetricsBefore,
        probes: &[Probe],
        step: &impl Fn(String),
    ) -> Result<Vec<Attempt>, Failure> {
        step("wait for the rules of its kube-proxies".to_owned());
        let mut scouts = ConvergenceProbes::new(probes, &self.namespaces);
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
