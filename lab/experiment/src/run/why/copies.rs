//! Manages running copies of cases, each of which is changed from trial to trial.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;

use svclab_model::evidence::Evidence;
use svclab_model::plan::{EvidenceRequest, Plan};
use svclab_runner::kernel::{KernelError, RunCount, Session};
use svclab_runner::run::pool::{Pool, PoolPermits};

/// Origin of a trial's lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabOrigin {
    /// The lab was built.
    Built,
    /// A running lab was changed.
    Changed,
}

/// Pool of idle copies, with a limit for those in use.
pub struct Copies {
    slots: Semaphore,
    idle: Mutex<Vec<(String, RunningCopy)>>,
    /// Number of trials that wait for room. While any waits, no copy is kept: idle copies of one
    /// case would hold the room that another needs.
    waiting: AtomicUsize,
}

/// Running lab.
struct RunningCopy {
    plan: Plan,
    session: Session,
    _room: Option<PoolPermits>,
}

impl Copies {
    /// Creates an empty pool that allows `jobs` copies in use.
    pub fn new(jobs: usize) -> Self {
        Self {
            slots: Semaphore::new(jobs.max(1)),
            idle: Mutex::default(),
            waiting: AtomicUsize::default(),
        }
    }

    /// Runs the probes of a plan, in a changed copy of its case or, with `afresh`, in a new lab.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses the plan or the agent is lost.
    pub async fn run(
        &self,
        pool: &Pool,
        case: &str,
        plan: &Plan,
        full_evidence: bool,
        afresh: bool,
    ) -> Result<(Evidence, LabOrigin), KernelError> {
        let mut tries = RunCount::default();
        loop {
            match self.run_once(pool, case, plan, full_evidence, afresh).await {
                Err(error) if tries.should_retry(&error) => {}
                ran => return ran,
            }
        }
    }

    async fn run_once(
        &self,
        pool: &Pool,
        case: &str,
        plan: &Plan,
        full_evidence: bool,
        afresh: bool,
    ) -> Result<(Evidence, LabOrigin), KernelError> {
        // The semaphore is never closed.
        let _turn = self.slots.acquire().await;
        let plan = with_evidence_request(plan, full_evidence);
        // The changes that a step makes cannot be undone.
        let afresh = afresh || !plan.steps.is_empty();
        let idle_copy = if afresh { None } else { self.take_idle(case) };
        if let Some(copy) = idle_copy
            && let Some((evidence, copy)) = copy.change_and_run(&plan).await?
        {
            self.keep(case, copy);
            return Ok((evidence, LabOrigin::Changed));
        }
        let room = self.wait_for_room(pool, &plan).await;
        let agent = pool.agent().await?;
        if afresh {
            let evidence = agent.build(plan).await?.probe().await?;
            return Ok((evidence, LabOrigin::Built));
        }
        let mut session = agent.build_changeable(plan.clone()).await?;
        let evidence = session.probe().await?;
        let copy = RunningCopy {
            plan,
            session,
            _room: room,
        };
        self.keep(case, copy);
        Ok((evidence, LabOrigin::Built))
    }

    /// Stops the idle copies of a case.
    pub fn stop(&self, case: &str) {
        self.with_idle(|idle| idle.retain(|(copy_case, _)| copy_case != case));
    }

    fn with_idle<T>(&self, with: impl FnOnce(&mut Vec<(String, RunningCopy)>) -> T) -> T {
        with(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_idle(&self, case: &str) -> Option<RunningCopy> {
        self.with_idle(|idle| {
            let index = idle.iter().position(|(copy_case, _)| copy_case == case)?;
            Some(idle.swap_remove(index).1)
        })
    }

    fn keep(&self, case: &str, copy: RunningCopy) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            self.with_idle(|idle| idle.push((case.to_owned(), copy)));
        }
    }

    async fn wait_for_room(&self, pool: &Pool, plan: &Plan) -> Option<PoolPermits> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let permit = pool.acquire_room(plan);
        tokio::pin!(permit);
        let room = tokio::select! {
            biased;
            room = &mut permit => room,
            () = std::future::ready(()) => {
                self.with_idle(Vec::clear);
                permit.await
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        room
    }
}

impl RunningCopy {
    /// Changes the copy into another plan and runs its probes. Returns `None` if the lab has to be
    /// rebuilt.
    async fn change_and_run(
        mut self,
        plan: &Plan,
    ) -> Result<Option<(Evidence, Self)>, KernelError> {
        let Ok(delta) = svclab_planner::delta::diff(&self.plan, plan) else {
            return Ok(None);
        };
        let changing = async {
            self.session.change(delta).await?;
            // Conntrack entries of an earlier trial must not affect the result.
            self.session.reset_connections().await
        };
        match changing.await {
            Ok(()) => {}
            // The trial is repeated in a new lab, which shows whether the kernel refuses the plan
            // itself.
            Err(KernelError::RequestFailed(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        let evidence = self.session.probe().await?;
        plan.clone_into(&mut self.plan);
        Ok(Some((evidence, self)))
    }
}

/// Returns the plan with an evidence request for everything, or for nothing.
fn with_evidence_request(plan: &Plan, full_evidence: bool) -> Plan {
    let mut plan = plan.clone();
    plan.evidence = if full_evidence {
        EvidenceRequest::everything(&plan)
    } else {
        EvidenceRequest::default()
    };
    plan
}
