//! IPVS on a host, with rights of the machine's own root: what it can do, and
//! what it must not be able to do.
//!
//! This program plays every part. As a test it starts itself again: to try, from
//! where an agent is, to reach what is not the agent's; and, where the long
//! suites are asked for, as the first process of a guest that stands for a host
//! with IPVS and root, in which it is `svclab` itself.

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
        // What svclab starts of itself, and svclab.
        [_, svclab_agent::INIT] => machine::live(),
        [_, "-q", "--", module] => machine::modprobe(module),
        [machine::SVCLAB, ..] => return svclab::cli::main(),
        [_, attempt::WORD, standing, outside] => attempt::main(standing, outside),
        [_, attempt::CHILD] => attempt::child(),
        [_, tenants::INSIDE] => return program::inside(),
        [_, tenants::WAITS] => loop {
            nix::unistd::pause();
        },
        // By the path that all of them are started by.
        [machine::AGENT, ..] => return svclab_agent::start(),
        _ => {}
    }
    let mut tests = vec![
        Trial::test("a_contained_agent_reaches_nothing_of_the_machine", || {
            trials::a_contained_agent_reaches_nothing_of_the_machine();
            Ok(())
        }),
        Trial::test("an_agent_for_ipvs_reaches_nothing_of_the_machine", || {
            trials::an_agent_for_ipvs_reaches_nothing_of_the_machine();
            Ok(())
        }),
    ];
    // It boots a guest, as only the long suites do.
    if full::ordinary_or_full(false, true) {
        tests.push(Trial::test("a_host_with_ipvs_runs_what_needs_it", || {
            trials::a_host_with_ipvs_runs_what_needs_it();
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
