//! Processes that lost who started them: they become children of the agent, which
//! is the first process where it is, and are waited for by it when they end.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

thread_local! {
    /// The processes that the agent started itself, whose ends others wait for.
    static OWN: RefCell<HashSet<i32>> = RefCell::default();
}

/// How often, and after how long, it is looked again while one of the agent's own
/// has ended that nobody has asked after yet.
const AGAIN: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// The agent has started a process that is waited for elsewhere.
pub fn own(process: Option<u32>) {
    if let Some(process) = process.and_then(|process| i32::try_from(process).ok()) {
        OWN.with_borrow_mut(|own| own.insert(process));
    }
}

/// Waits for those that end whom nobody else waits for, for ever.
pub async fn reap() {
    let Ok(mut ends) = signal(SignalKind::child()) else {
        return;
    };
    loop {
        for _ in 0..AGAIN {
            if !reap_some() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        if ends.recv().await.is_none() {
            return;
        }
    }
}

/// Takes those that have ended; whether one of the agent's own is in the way, which
/// the kernel tells of first as long as nobody has asked after it.
fn reap_some() -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        let ended = match waitid(Id::All, look) {
            Ok(WaitStatus::Exited(process, _) | WaitStatus::Signaled(process, _, _)) => process,
            Err(Errno::EINTR) => continue,
            _ => return false,
        };
        if OWN.with_borrow(|own| own.contains(&ended.as_raw())) {
            return true;
        }
        let _ = waitpid(Pid::from_raw(ended.as_raw()), Some(WaitPidFlag::WNOHANG));
    }
}
