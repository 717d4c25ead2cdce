//! Labs that stand side by side, so that what is waited for in one keeps nobody from
//! trying in another.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::bench::{Bench, Doubt, Look, Tried};
use super::error::BisectError;
use super::task::Task;
use svclab_runner::kernel::{Agent, KernelError};

/// So many labs and no more: one to wait in at either end, and two to narrow down in, of
/// which one is waited for while the other goes on.
const MOST: u64 = 4;

/// How many labs of a bisection can stand side by side where there is so much memory for
/// labs, in KiB: at least one.
#[must_use]
pub fn side_by_side(task: &Task, room: u64) -> usize {
    let each = task.good.memory().max(task.bad.memory()).max(1);
    // One that was taken away is there for a while yet.
    let labs = (room / each).saturating_sub(1).clamp(1, MOST);
    usize::try_from(labs).unwrap_or(1)
}

/// The labs.
pub struct Benches {
    agent: Agent,
    most: usize,
    room: Arc<Semaphore>,
    /// Those that nobody tries anything in.
    free: Arc<Mutex<Vec<Bench>>>,
}

/// A look that goes on by itself, until this is dropped.
pub struct Looking(AbortOnDropHandle<Result<Tried, KernelError>>);

impl Benches {
    /// So many at most.
    pub fn new(agent: &Agent, most: usize) -> Self {
        let most = most.max(1);
        Self {
            agent: agent.clone(),
            most,
            room: Arc::new(Semaphore::new(most)),
            free: Arc::default(),
        }
    }

    /// The kernel, as it calls itself.
    pub fn kernel(&self) -> &str {
        &self.agent.surroundings().kernel
    }

    /// Whether one more look would begin at once.
    pub fn has_room(&self) -> bool {
        self.room.available_permits() > 0
    }

    /// Begins to look, or to wait until there is a lab for it.
    pub fn look(&self, look: Look, doubt: Option<Doubt>) -> Looking {
        let (room, free) = (Arc::clone(&self.room), Arc::clone(&self.free));
        let (agent, most) = (self.agent.clone(), self.most);
        Looking(AbortOnDropHandle::new(tokio::spawn(async move {
            let _room = Arc::clone(&room).acquire_owned().await;
            let known = {
                let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
                // One that is built anew takes nobody's lab, as long as there is room.
                let has_more = free.len() + most - room.available_permits() <= most;
                if look.anew && has_more {
                    None
                } else {
                    free.pop()
                }
            };
            let mut bench = known.unwrap_or_else(|| Bench::new(agent));
            let tried = bench.tried(look, doubt).await;
            if tried.is_ok() {
                free.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(bench);
            }
            tried
        })))
    }
}

impl Looking {
    /// What came of it.
    ///
    /// # Errors
    ///
    /// As [`Bench::tried`].
    pub async fn over(self) -> Result<Tried, BisectError> {
        match self.0.await {
            Ok(tried) => Ok(tried?),
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(Tried::Refused("it was given up".to_owned())),
            },
        }
    }
}
