//! Reaps killed programs that no task waits for. A process that a program left running is a child
//! of the first process of its PID namespace ([`crate::sandbox::program_namespace`]), which reaps it.

use std::cell::RefCell;

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

thread_local! {
    static KILLED: RefCell<Vec<Pid>> = RefCell::default();
}

/// Registers a killed program that no task waits for.
pub(crate) fn register(process: Pid) {
    KILLED.with_borrow_mut(|abandoned| abandoned.push(process));
    reap();
}

/// Reaps the registered programs that have exited.
pub(crate) fn reap() {
    KILLED.with_borrow_mut(|abandoned| {
        abandoned.retain(|process| {
            let status = waitpid(*process, Some(WaitPidFlag::WNOHANG));
            matches!(status, Ok(WaitStatus::StillAlive))
        });
    });
}
