//! Makes a step: changes a running lab and runs the probes of the step.

use std::cell::RefCell;
use std::rc::Rc;

use super::capture::{self, Basket};
use super::delay::Delay;
use super::dialogue::Open;
use super::lab::Lab;
use super::scout::Scouts;
use super::{conntrack, real_proxy};
use svclab_model::evidence::{Attempt, StepEvidence};
use svclab_model::plan::{Delta, Probe, Step};
use svclab_model::protocol::{Failure, Turn};

impl Lab {
    /// Makes a step, runs its probes and repeats the exchange on the `open` connections. Then opens
    /// the connections that stay open across the next step.
    ///
    /// # Errors
    ///
    /// When the lab cannot be changed, a probe cannot run, evidence cannot be recorded, or a
    /// kube-proxy does not write its rules.
    pub(super) async fn make(
        &mut self,
        made: &Step,
        open: Vec<Open>,
        next: Option<&[Probe]>,
        step: &impl Fn(String),
        turned: &Rc<dyn Fn(Turn)>,
    ) -> Result<(StepEvidence, Vec<Open>), Failure> {
        let name = &made.name;
        step(format!("make the step {name}"));
        let basket = Rc::new(RefCell::new(Basket::default()));
        let captures = match &made.told {
            Some(_) => self.capture(&basket, |_| true)?,
            None => Vec::new(),
        };
        let before = real_proxy::before(self, made.told.as_ref()).await?;
        let changed = basket.borrow_mut().now();
        let delay = Delay::begin();
        if let Some(told) = &made.told {
            self.plan.objects.clone_from(&told.objects);
            real_proxy::tell(self, &told.objects)?;
        }
        let delta = Delta {
            probes: Some(made.probes.clone()),
            ..made.delta.clone()
        };
        self.change(delta, step, turned).await?;
        for (name, stale) in &made.forget {
            conntrack::forget_stale(self.namespace(name)?, name, stale)?;
        }
        let scouts = match &made.told {
            Some(told) => self.wait(told, &before, &made.probes, step).await?,
            None => Vec::new(),
        };
        let applied = basket.borrow_mut().now();
        for capture in &captures {
            capture.drain();
        }
        let closing = capture::end(captures).await;
        let (packets, _) = basket.borrow_mut().take();
        let (evidence, opened) = self.stage(open, next, step).await?;
        closing.over().await;
        let seen = StepEvidence {
            name: name.clone(),
            changed,
            applied,
            scouts,
            late_ms: delay.of_any(),
            packets,
            evidence: Box::new(evidence),
        };
        Ok((seen, opened))
    }

    /// Waits until every kube-proxy has applied its updates, and repeats the step's probes
    /// meanwhile.
    async fn wait(
        &self,
        told: &svclab_model::plan::Told,
        before: &real_proxy::Before,
        probes: &[Probe],
        step: &impl Fn(String),
    ) -> Result<Vec<Attempt>, Failure> {
        step("wait for its kube-proxies' rules".to_owned());
        let mut scouts = Scouts::of(probes, &self.namespaces);
        let heard = real_proxy::heard(self, told, before);
        tokio::pin!(heard);
        loop {
            tokio::select! {
                biased;
                heard = &mut heard => {
                    heard?;
                    break;
                }
                sent = scouts.send() => sent?,
            }
        }
        Ok(scouts.end().await)
    }
}
