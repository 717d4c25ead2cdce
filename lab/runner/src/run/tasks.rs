//! Tasks that run in parallel. Each returns a result; a task that panics returns an error.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt as _;
use tokio::task::{Id, JoinError, JoinSet};

use crate::results::{ErrorKind, RunError};
use svclab_diagnostic::bug;

/// Running tasks with their numbers.
pub struct Tasks<T> {
    running: JoinSet<T>,
    numbers: HashMap<Id, usize>,
}

impl<T> Default for Tasks<T> {
    fn default() -> Self {
        Self {
            running: JoinSet::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<T: Send + 'static> Tasks<T> {
    /// Starts a task. [`Tasks::next`] returns its number with its result.
    pub fn spawn(&mut self, number: usize, task: impl Future<Output = T> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.numbers.insert(id, number);
    }

    /// Waits for a task to end. Returns its number and result, or `None` once all tasks have ended.
    pub async fn next(&mut self) -> Option<(usize, Result<T, RunError>)> {
        loop {
            let (id, ended) = match self.running.join_next_with_id().await? {
                Ok((id, value)) => (id, Ok(value)),
                Err(error) => (error.id(), Err(to_run_error(error))),
            };
            if let Some(number) = self.numbers.remove(&id) {
                return Some((number, ended));
            }
        }
    }
}

fn to_run_error(error: JoinError) -> RunError {
    match error.try_into_panic() {
        Ok(payload) => RunError::panicked(payload.as_ref()),
        Err(cancelled) => RunError {
            kind: ErrorKind::Bug,
            message: format!("a task of svclab did not finish: {cancelled}"),
            remedy: Some(bug::REMEDY.to_owned()),
        },
    }
}

/// Runs `work` and converts a panic to an error.
///
/// # Errors
///
/// When `work` panics.
pub async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, RunError> {
    // Everything that `work` held is dropped with it. Data that it shares is not trusted after a
    // panic: the process ends with the exit code of a bug.
    let ended = AssertUnwindSafe(work).catch_unwind().await;
    ended.map_err(|payload| RunError::panicked(payload.as_ref()))
}

/// Runs `work`, which does not wait, and converts a panic to an error.
pub(super) fn catch_panic_sync<T>(work: impl FnOnce() -> T) -> Result<T, RunError> {
    // The data that `work` used is not used again after a panic.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| RunError::panicked(payload.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_panicking_task_returns_error() {
        let mut tasks = Tasks::default();
        for number in 0..4 {
            tasks.spawn(number, async move {
                assert_ne!(number, 2, "the third");
                number * 10
            });
        }
        let mut ended = Vec::new();
        while let Some(result) = tasks.next().await {
            ended.push(result);
        }
        ended.sort_by_key(|(number, _)| *number);
        let numbers: Vec<usize> = ended.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        assert_eq!(ended[3].1, Ok(30));
        let error = ended[2].1.as_ref().expect_err("the task panics");
        assert_eq!(error.kind, ErrorKind::Bug);
        assert!(error.message.contains("the third"), "{error:?}");
    }

    #[tokio::test]
    async fn catch_panic_panicking_work_returns_error() {
        let error: Result<(), RunError> = catch_panic(async { panic!("midway") }).await;
        let error = error.expect_err("the task panics");
        assert_eq!(error.message, "svclab panicked: midway");
        assert_eq!(catch_panic(async { 7 }).await, Ok(7));
    }
}
