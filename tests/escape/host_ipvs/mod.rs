//! Tests IPVS on a host, where the agent has privileges of the initial user namespace: what works,
//! and what the agent must not reach.
//!
//! From the agent's environment, this program attempts to escape. In the full test run, the program
//! is also the first process of a guest that simulates a host with IPVS and root. There it acts as
//! `svclab` and as the agent.

mod attempt;
mod machine;
mod trials;

use std::process::ExitCode;

pub use trials::trials;

/// Runs the role that the arguments name; `None` if they name no role of this module. All agents
/// are started by one path, as are some other roles, which must be checked before.
pub fn run_role(words: &[&str]) -> Option<ExitCode> {
    match *words {
        // Started by svclab, or as svclab.
        [_, svclab_agent::INIT] => machine::run_as_init(),
        [_, "-q", "--", module] => machine::modprobe(module),
        [machine::SVCLAB, ..] => Some(svclab::cli::main()),
        [_, attempt::RUN_ATTEMPTS, privilege, outside] => attempt::main(privilege, outside),
        [_, attempt::PRINT_PRIVILEGES] => attempt::print_privileges(),
        [machine::AGENT, ..] => Some(svclab_agent::run_from_args()),
        _ => None,
    }
}
