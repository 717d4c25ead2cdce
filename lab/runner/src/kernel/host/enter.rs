//! Commands that enter a namespace of a running lab from outside.

use std::fs;

use super::processes::children_of_thread;
use crate::kernel::agent::session::Session;

/// Returns the command that runs a program inside a namespace of a running lab. `None` if the agent
/// is not a process of this host, has ended, or does not hold the namespace.
#[must_use]
pub fn enter_command(session: &Session, namespace: &str) -> Option<String> {
    let descriptor = session.descriptors().get(namespace)?;
    let agent = find_agent_process(session.agent().process()?)?;
    let net = format!("--net=/proc/{agent}/fd/{descriptor}");
    Some(if nix::unistd::geteuid().is_root() {
        format!("nsenter {net} COMMAND")
    } else {
        format!("nsenter --target {agent} --user --preserve-credentials {net} COMMAND")
    })
}

/// Returns the process ID of the agent itself: PID 1 of the PID namespace that `process` or a
/// descendant of it created.
pub(super) fn find_agent_process(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    if is_namespace_init(&status) {
        return Some(process);
    }
    // Without the children of other threads, which can be other programs.
    children_of_thread(process, process)
        .into_iter()
        .find_map(find_agent_process)
}

/// Whether a process is PID 1 of a PID namespace below that of the caller, by its `status` file.
fn is_namespace_init(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .map(|pids| pids.split_whitespace().collect::<Vec<_>>())
        .is_some_and(|pids| pids.len() > 1 && pids.last() == Some(&"1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_namespace_init_agent_is_pid_1_below() {
        assert!(is_namespace_init("Name:\tsvclab\nNSpid:\t4711\t1\n"));
        assert!(!is_namespace_init("Name:\tsvclab\nNSpid:\t4711\n"));
        assert!(!is_namespace_init("Name:\tsvclab\nNSpid:\t1\n"));
        assert!(!is_namespace_init("Name:\tiptables\nNSpid:\t4712\t2\n"));
    }
}
