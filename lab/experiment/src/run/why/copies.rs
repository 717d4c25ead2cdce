//! Manages running copies of cases, each of which is changed from trial to trial.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;

use svclab_model::evidence::Evidence;
use svclab_model::plan::{Plan, Watch};
use svclab_runner::kernel::{KernelError, Session, Tries};
use svclab_runner::run::pool::{Held, Pool};

/// Origin of a trial's lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// The lab was built.
    Built,
    /// A running lab was changed.
    Changed,
}

/// Pool of idle copies, with a limit for those in use.
pub struct Copies {
    turns: Semaphore,
    idle: Mutex<Vec<(String, Copy)>>,
    /// Number of trials that wait for room. While any waits, no copy is kept: idle copies of one
    /// case would hold the room that another needs.
    waiting: AtomicUsize,
}

/// Running lab.
struct Copy {
    plan: Plan,
    session: Session,
    _room: Option<Held>,
}

impl Copies {
    /// Creates an empty pool that allows `jobs` copies in use.
    pub fn new(jobs: usize) -> Self {
        Self {
            turns: Semaphore::new(jobs.max(1)),
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
        watched: bool,
        afresh: bool,
    ) -> Result<(Evidence, Reached), KernelError> {
        let mut tries = Tries::default();
        loop {
            match self.run_once(pool, case, plan, watched, afresh).await {
                Err(error) if tries.again(&error) => {}
                ran => return ran,
            }
        }
    }

    async fn run_once(
        &self,
        pool: &Pool,
        case: &str,
        plan: &Plan,
        watched: bool,
        afresh: bool,
    ) -> Result<(Evidence, Reached), KernelError> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let plan = as_tried(plan, watched);
        // The changes that a step makes cannot be undone.
        let afresh = afresh || !plan.steps.is_empty();
        let idle = if afresh { None } else { self.taken(case) };
        if let Some(copy) = idle
            && let Some((evidence, copy)) = copy.changed(&plan).await?
        {
            self.kept(case, copy);
            return Ok((evidence, Reached::Changed));
        }
        let room = self.room(pool, &plan).await;
        let agent = pool.agent().await?;
        if afresh {
            let evidence = agent.build(plan).await?.probe().await?;
            return Ok((evidence, Reached::Built));
        }
        let mut session = agent.build_standing(plan.clone()).await?;
        let evidence = session.probe().await?;
        let copy = Copy {
            plan,
            session,
            _room: room,
        };
        self.kept(case, copy);
        Ok((evidence, Reached::Built))
    }

    /// Stops the idle copies of a case.
    pub fn let_go(&self, case: &str) {
        self.all(|idle| idle.retain(|(of, _)| of != case));
    }

    fn all<T>(&self, with: impl FnOnce(&mut Vec<(String, Copy)>) -> T) -> T {
        with(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn taken(&self, case: &str) -> Option<Copy> {
        self.all(|idle| {
            let at = idle.iter().position(|(of, _)| of == case)?;
            Some(idle.swap_remove(at).1)
        })
    }

    fn kept(&self, case: &str, copy: Copy) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            self.all(|idle| idle.push((case.to_owned(), copy)));
        }
    }

    async fn room(&self, pool: &Pool, plan: &Plan) -> Option<Held> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let place = pool.place(plan);
        tokio::pin!(place);
        let room = tokio::select! {
            biased;
            room = &mut place => room,
            () = std::future::ready(()) => {
                self.all(Vec::clear);
                place.await
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        room
    }
}

impl Copy {
    /// Changes the copy into another plan and runs its probes. Returns `None` if the lab has to be
    /// rebuilt.
    async fn changed(mut self, plan: &Plan) -> Result<Option<(Evidence, Self)>, KernelError> {
        let Ok(delta) = svclab_planner::delta::between(&self.plan, plan) else {
            return Ok(None);
        };
        let changed = async {
            self.session.change(delta).await?;
            // Conntrack entries of an earlier trial must not affect the result.
            self.session.forget().await
        };
        match changed.await {
            Ok(()) => {}
            // The trial is repeated in a new lab, which shows whether the kernel refuses the plan
            // itself.
            Err(KernelError::Failed(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        let evidence = self.session.probe().await?;
        plan.clone_into(&mut self.plan);
        Ok(Some((evidence, self)))
    }
}

/// Returns the plan with an evidence request for everything, or for nothing.
fn as_tried(plan: &Plan, watched: bool) -> Plan {
    let mut plan = plan.clone();
    plan.watch = if watched {
        Watch::everything(&plan)
    } else {
        Watch::default()
    };
    plan
}
