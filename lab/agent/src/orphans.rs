//! Programs that were killed and that nobody waits for. What a program leaves running is
//! a child of its room's first process ([`super::room`]), and no matter of the agent's.

use std::cell::RefCell;

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

thread_local! {
    static ABANDONED: RefCell<Vec<Pid>> = RefCell::default();
}

/// Notes that nobody waits for a program that was killed.
pub fn abandon(process: Pid) {
    ABANDONED.with_borrow_mut(|abandoned| abandoned.push(process));
    reap();
}

/// Waits for those that have ended by now.
pub fn reap() {
    ABANDONED.with_borrow_mut(|abandoned| {
        abandoned.retain(|process| {
            let looked = waitpid(*process, Some(WaitPidFlag::WNOHANG));
            matches!(looked, Ok(WaitStatus::StillAlive))
        });
    });
}
