//! Commands that enter a namespace of a running lab from outside.

use crate::kernel::agent::session::Session;
use crate::kernel::processes::find_agent_process;

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
