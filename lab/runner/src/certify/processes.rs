//! Lists the processes below this one.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use crate::kernel::processes::children;

/// Running process. Its start time distinguishes it from an earlier process with the same ID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    id: u32,
    start_time: u64,
    name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.id)
    }
}

/// Maximum number of passes over `/proc`. Other programs below this process may start processes
/// all the time.
const MAX_PASSES: usize = 16;

/// Processes that one pass over `/proc` found below this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Pass {
    running: BTreeSet<Process>,
    /// IDs of processes that were listed and had ended before their state was read.
    ended: BTreeSet<u32>,
}

/// Returns all processes below this one that have not ended.
pub(super) fn descendants() -> BTreeSet<Process> {
    read_until_stable(read_pass)
}

/// Repeats a pass until two passes have the same result. A single pass misses the children of a
/// process that ends during the pass: they move to another list, which the pass has read already
/// (Linux v6.12, `kernel/exit.c`, `forget_original_parent`). The list of children is also incomplete
/// if one of them ends while the list is read (`proc_pid_children(5)`).
fn read_until_stable(mut read: impl FnMut() -> Pass) -> BTreeSet<Process> {
    let mut previous = read();
    for _ in 1..MAX_PASSES {
        let pass = read();
        if pass == previous {
            break;
        }
        previous = pass;
    }
    previous.running
}

fn read_pass() -> Pass {
    let mut pass = Pass::default();
    let mut pending = vec![std::process::id()];
    while let Some(parent) = pending.pop() {
        for child in children(parent) {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            if let Some(process) = parse_stat(child, &stat) {
                pass.running.insert(process);
                pending.push(child);
            } else {
                pass.ended.insert(child);
            }
        }
    }
    pass
}

/// Parses the `stat` file of a process. `None` for a process that has ended and is not yet reaped
/// (`proc_pid_stat(5)`: the name in parentheses may contain any byte, the state is field 3, the
/// start time is field 22).
fn parse_stat(id: u32, stat: &str) -> Option<Process> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let began = fields.nth(18)?.parse().ok()?;
    (!["Z", "X"].contains(&state)).then(|| Process {
        id,
        start_time: began,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_stat_name_with_parentheses_is_read() {
        let stat = |state: &str| {
            format!("7 (a) b ({state}) {state} 1 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 4711 0 0")
        };
        let process = parse_stat(7, &stat("S")).unwrap();
        assert_eq!(
            (process.start_time, process.name.as_str()),
            (4711, "a) b (S")
        );
        assert_eq!(process.to_string(), "a) b (S (process 7)");
        assert_eq!(parse_stat(7, &stat("Z")), None);
        assert_eq!(parse_stat(7, ""), None);
    }

    #[test]
    fn descendants_moved_child_is_found_by_another_pass() {
        let inner = parse_stat(
            8,
            "8 (inner) S 1 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 4712 0 0",
        );
        let ended = BTreeSet::from([7]);
        // In the first pass, process 7 ends after the list was read, and before its state is read.
        let mut passes = [
            Pass {
                running: BTreeSet::new(),
                ended: ended.clone(),
            },
            Pass {
                running: inner.iter().cloned().collect(),
                ended: ended.clone(),
            },
            Pass {
                running: inner.iter().cloned().collect(),
                ended,
            },
        ]
        .into_iter();
        let found = read_until_stable(|| passes.next().unwrap());
        assert_eq!(found, inner.into_iter().collect());
    }

    #[test]
    fn descendants_changing_processes_end_the_search() {
        let mut passes = 0;
        let found = read_until_stable(|| {
            passes += 1;
            Pass {
                ended: BTreeSet::from([passes]),
                ..Pass::default()
            }
        });
        assert_eq!((found, passes), (BTreeSet::new(), 16));
    }

    #[test]
    fn descendants_child_is_listed_until_it_ends() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let is_listed = || descendants().iter().any(|process| process.id == child.id());
        assert!(is_listed());
        let id = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL).unwrap();
        // Waits for the end of the process without reaping it.
        let options = nix::libc::WEXITED | nix::libc::WNOWAIT;
        // SAFETY: `info` is large enough for what `waitid` writes.
        let waited = unsafe {
            let mut info: nix::libc::siginfo_t = std::mem::zeroed();
            nix::libc::waitid(nix::libc::P_PID, child.id(), &raw mut info, options)
        };
        assert_eq!(waited, 0);
        assert!(!is_listed());
        child.wait().unwrap();
    }
}
