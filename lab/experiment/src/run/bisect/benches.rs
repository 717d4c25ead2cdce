//! Runs several labs in parallel, so that waiting in one lab does not delay trials in another.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::bench::{Bench, Doubt, Look, Tried};
use super::error::BisectError;
use super::task::Task;
use svclab_runner::kernel::{Agent, KernelError};

/// Maximum number of parallel labs: two to wait for results of good and bad, and two for narrowing,
/// of which one waits while the other continues.
const MOST: u64 = 4;

/// Returns how many labs of a bisection fit into `room` KiB of memory; at least one.
#[must_use]
pub fn side_by_side(task: &Task, room: u64) -> usize {
    let each = task.good.memory().max(task.bad.memory()).max(1);
    // The memory of a removed lab stays in use for some time.
    let labs = (room / each).saturating_sub(1).clamp(1, MOST);
    usize::try_from(labs).unwrap_or(1)
}

/// Pool of labs.
pub struct Benches {
    agent: Agent,
    most: usize,
    room: Arc<Semaphore>,
    /// Idle labs.
    free: Arc<Mutex<Vec<Bench>>>,
}

/// Trial that runs in the background until this handle is dropped.
pub struct Looking(AbortOnDropHandle<Result<Tried, KernelError>>);

impl Benches {
    /// Creates a pool of at most `most` labs.
    pub fn new(agent: &Agent, most: usize) -> Self {
        let most = most.max(1);
        Self {
            agent: agent.clone(),
            most,
            room: Arc::new(Semaphore::new(most)),
            free: Arc::default(),
        }
    }

    /// Returns the release of the kernel.
    pub fn kernel(&self) -> &str {
        &self.agent.surroundings().kernel
    }

    /// Whether another trial can start immediately.
    pub fn has_room(&self) -> bool {
        self.room.available_permits() > 0
    }

    /// Starts a trial, or queues the trial until a lab is available.
    pub fn look(&self, look: Look, doubt: Option<Doubt>) -> Looking {
        let (room, free) = (Arc::clone(&self.room), Arc::clone(&self.free));
        let (agent, most) = (self.agent.clone(), self.most);
        Looking(AbortOnDropHandle::new(tokio::spawn(async move {
            let _room = Arc::clone(&room).acquire_owned().await;
            let known = {
                let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
                // A new lab replaces an idle one only if the limit of labs is reached.
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
    /// Waits for the result of the trial.
    ///
    /// # Errors
    ///
    /// See [`Bench::tried`].
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
