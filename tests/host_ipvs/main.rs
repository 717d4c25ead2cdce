//! Tests IPVS on a host, where the agent has privileges of the initial user namespace: what works,
//! and what the agent must not reach.
//!
//! This program plays every part and starts itself again. From the agent's environment, it attempts
//! to escape. In the full test run, the program is also the first process of a guest that simulates
//! a host with IPVS and root. There it acts as `svclab`.

mod attempt;
#[path = "../shared/full.rs"]
mod full;
mod machine;
#[path = "../shared/program.rs"]
mod program;
#[path = "../shared/tenants.rs"]
mod tenants;
mod trials;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        // Started by svclab, or as svclab.
        [_, svclab_agent::INIT] => machine::run_as_init(),
        [_, "-q", "--", module] => machine::modprobe(module),
        [machine::SVCLAB, ..] => return svclab::cli::main(),
        [_, attempt::RUN_ATTEMPTS, standing, outside] => attempt::main(standing, outside),
        [_, attempt::PRINT_PRIVILEGES] => attempt::print_privileges(),
        [_, tenants::RUN_ATTEMPTS] => return program::run_attempts(),
        [_, tenants::WAIT_FOREVER] => loop {
            nix::unistd::pause();
        },
        // All agents are started by this path.
        [machine::AGENT, ..] => return svclab_agent::run_from_args(),
        _ => {}
    }
    let mut tests = vec![
        Trial::test("contained_agent_escape_attempts_are_refused", || {
            trials::contained_agent_escape_attempts_are_refused();
            Ok(())
        }),
        Trial::test("agent_for_ipvs_escape_attempts_are_refused", || {
            trials::agent_for_ipvs_escape_attempts_are_refused();
            Ok(())
        }),
    ];
    // This test boots a guest, which only the full test run does.
    if full::ordinary_or_full(false, true) {
        tests.push(Trial::test("host_with_ipvs_runs_labs_with_ipvs", || {
            trials::host_with_ipvs_runs_labs_with_ipvs();
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
