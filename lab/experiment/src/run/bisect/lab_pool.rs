//! Runs several labs in parallel, so that waiting in one lab does not delay trials in another.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::error::BisectError;
use super::task::Task;
use super::trial_lab::{SlowNotice, TrialLab, TrialRequest, TrialResult};
use svclab_runner::kernel::{Agent, KernelError};

/// Maximum number of parallel labs: two to wait for results of good and bad, and two for narrowing,
/// of which one waits while the other continues.
const MAX_LABS: u64 = 4;

/// Returns how many labs of a bisection fit into `room` KiB of memory; at least one.
#[must_use]
pub fn parallel_labs(task: &Task, room: u64) -> usize {
    let each = task.good.memory_kib().max(task.bad.memory_kib()).max(1);
    // The memory of a removed lab stays in use for some time.
    let labs = (room / each).saturating_sub(1).clamp(1, MAX_LABS);
    usize::try_from(labs).unwrap_or(1)
}

/// Pool of labs.
pub struct LabPool {
    agent: Agent,
    max_labs: usize,
    slots: Arc<Semaphore>,
    /// Idle labs.
    idle: Arc<Mutex<Vec<TrialLab>>>,
}

/// Trial that runs in the background until this handle is dropped.
pub struct RunningTrial(AbortOnDropHandle<Result<TrialResult, KernelError>>);

impl LabPool {
    /// Creates a pool of at most `max_labs` labs.
    pub fn new(agent: &Agent, max_labs: usize) -> Self {
        let max_labs = max_labs.max(1);
        Self {
            agent: agent.clone(),
            max_labs,
            slots: Arc::new(Semaphore::new(max_labs)),
            idle: Arc::default(),
        }
    }

    /// Returns the release of the kernel.
    pub fn kernel(&self) -> &str {
        &self.agent.environment().kernel
    }

    /// Whether another trial can start immediately.
    pub fn has_room(&self) -> bool {
        self.slots.available_permits() > 0
    }

    /// Starts a trial, or queues the trial until a lab is available.
    pub fn start(&self, look: TrialRequest, notice: Option<SlowNotice>) -> RunningTrial {
        let (slots, idle) = (Arc::clone(&self.slots), Arc::clone(&self.idle));
        let (agent, max_labs) = (self.agent.clone(), self.max_labs);
        RunningTrial(AbortOnDropHandle::new(tokio::spawn(async move {
            let _room = Arc::clone(&slots).acquire_owned().await;
            let idle_lab = {
                let mut free = idle.lock().unwrap_or_else(PoisonError::into_inner);
                // A new lab replaces an idle one only if the limit of labs is reached.
                let can_build = free.len() + max_labs - slots.available_permits() <= max_labs;
                if look.new_lab && can_build {
                    None
                } else {
                    free.pop()
                }
            };
            let mut lab = idle_lab.unwrap_or_else(|| TrialLab::new(agent));
            let result = lab.run(look, notice).await;
            if result.is_ok() {
                idle.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(lab);
            }
            result
        })))
    }
}

impl RunningTrial {
    /// Waits for the result of the trial.
    ///
    /// # Errors
    ///
    /// See [`TrialLab::run`].
    pub async fn finish(self) -> Result<TrialResult, BisectError> {
        match self.0.await {
            Ok(tried) => Ok(tried?),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(TrialResult::Refused("the trial was cancelled".to_owned())),
            },
        }
    }
}
