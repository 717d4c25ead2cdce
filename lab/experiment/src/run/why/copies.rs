//! Copies of cases that stand, each changed from one trial to the next.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;

use svclab_model::evidence::Evidence;
use svclab_model::plan::{Plan, Watch};
use svclab_runner::kernel::{KernelError, Session, Tries};
use svclab_runner::run::pool::{Held, Pool};

/// How a trial's lab came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// It was built.
    Built,
    /// One that stood was changed.
    Changed,
}

/// The copies that nobody uses at the moment, and how many may be in use.
pub struct Copies {
    turns: Semaphore,
    idle: Mutex<Vec<(String, Copy)>>,
    /// How many wait for room. As long as any does, no copy is kept: idle ones of one case
    /// would hold what another waits for.
    waiting: AtomicUsize,
}

/// A lab that stands.
struct Copy {
    plan: Plan,
    session: Session,
    _room: Option<Held>,
}

impl Copies {
    /// None yet, and never more than so many in use.
    pub fn new(jobs: usize) -> Self {
        Self {
            turns: Semaphore::new(jobs.max(1)),
            idle: Mutex::default(),
            waiting: AtomicUsize::default(),
        }
    }

    /// Runs the probes of a plan, in a copy of its case that is changed, or `afresh` in
    /// one that is built.
    ///
    /// # Errors
    ///
    /// What the kernel refuses, or how the agent was lost.
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
        // It is never closed.
        let _turn = self.turns.acquire().await;
        let plan = as_tried(plan, watched);
        // What a step changes is nowhere to be changed back.
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

    /// Lets the copies of a case go.
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
    /// Changed into what a plan says, and its probes run; nothing where it has to be built
    /// anew for that.
    async fn changed(mut self, plan: &Plan) -> Result<Option<(Evidence, Self)>, KernelError> {
        let Ok(delta) = svclab_planner::delta::between(&self.plan, plan) else {
            return Ok(None);
        };
        let changed = async {
            self.session.change(delta).await?;
            // What an earlier trial left in conntrack decides nothing.
            self.session.forget().await
        };
        match changed.await {
            Ok(()) => {}
            // It is tried in one that is built: what is refused there is refused.
            Err(KernelError::Failed(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        let evidence = self.session.probe().await?;
        plan.clone_into(&mut self.plan);
        Ok(Some((evidence, self)))
    }
}

/// The plan with what is watched.
fn as_tried(plan: &Plan, watched: bool) -> Plan {
    let mut plan = plan.clone();
    plan.watch = if watched {
        Watch::everything(&plan)
    } else {
        Watch::default()
    };
    plan
}
