//! Keeps idle objects for later use, unless somebody waits for the resources that they hold.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Idle objects, and the number of tasks that wait for resources. While any task waits, no object is
/// kept: idle labs of one case would hold the room that another needs.
pub struct Idle<T> {
    state: Mutex<IdleState<T>>,
}

struct IdleState<T> {
    objects: Vec<T>,
    waiting: usize,
}

/// Task that waits for resources until this guard is dropped.
struct Waiting<'i, T>(&'i Idle<T>);

impl<T> Default for Idle<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(IdleState {
                objects: Vec::new(),
                waiting: 0,
            }),
        }
    }
}

impl<T> Idle<T> {
    /// Keeps an object, or drops it if a task waits for resources.
    pub fn keep(&self, object: T) {
        let mut state = self.state();
        // One lock for both: a task that starts to wait now removes the object.
        if state.waiting == 0 {
            state.objects.push(object);
        }
    }

    /// Changes the list of idle objects.
    pub fn update<R>(&self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        change(&mut self.state().objects)
    }

    /// Waits for resources. Drops all idle objects if the resources are not available immediately.
    pub async fn wait_for<R>(&self, resources: impl Future<Output = R>) -> R {
        let _waiting = self.start_waiting();
        let mut resources = pin!(resources);
        tokio::select! {
            biased;
            available = &mut resources => available,
            () = std::future::ready(()) => {
                self.update(Vec::clear);
                resources.await
            }
        }
    }

    fn start_waiting(&self) -> Waiting<'_, T> {
        self.state().waiting += 1;
        Waiting(self)
    }

    fn state(&self) -> MutexGuard<'_, IdleState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn keep_waiting_task_drops_object() {
        let idle = Idle::default();
        idle.keep("first");
        let waiting = idle.start_waiting();
        idle.keep("second");
        drop(waiting);
        idle.keep("third");
        assert_eq!(idle.update(std::mem::take), ["first", "third"]);
    }

    #[tokio::test]
    async fn wait_for_unavailable_resources_drops_objects() {
        let permits = Arc::new(Semaphore::new(1));
        let idle = Idle::default();
        let acquire = || Arc::clone(&permits).acquire_owned();
        idle.keep(idle.wait_for(acquire()).await);
        // Without the drop of the idle permit, this would wait forever.
        assert!(idle.wait_for(acquire()).await.is_ok());
        assert!(idle.update(|kept| kept.is_empty()));
    }

    #[test]
    fn keep_in_other_thread_never_adds_object_while_task_waits() {
        const ROUNDS: usize = 20_000;
        // On a busy machine, a round takes long, and finds the error with a higher probability.
        const MAX_TIME: Duration = Duration::from_secs(5);
        let begun = Instant::now();
        let idle = Idle::default();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    idle.keep(());
                }
            });
            let mut rounds = (0..ROUNDS).take_while(|_| begun.elapsed() < MAX_TIME);
            let kept = rounds.any(|_| {
                let _waiting = idle.start_waiting();
                idle.update(Vec::clear);
                std::thread::yield_now();
                idle.update(|labs| !labs.is_empty())
            });
            is_done.store(true, Ordering::Relaxed);
            assert!(!kept);
        });
    }
}
