//! Tests that nothing escapes from a lab. A program runs beside the agent of a run, in the same
//! namespaces and with the same privileges, and attempts to reach the machine. The kernel must
//! refuse every attempt. As root, every test runs twice, the second time with an unprivileged user.
//!
//! The program is this test binary, started with `intruder` as its first argument. The binary is
//! loaded before it enters the namespaces, so it needs no file inside.

mod attempts;
mod beside;
mod host_ipvs;
mod identity;
mod intruder;
mod outside;
mod program;
mod programs;
mod tenants;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use nix::unistd::pause;

use outside::{Host, User};

/// Runs the role that the arguments name; `None` if they name no role.
fn run_role() -> Option<ExitCode> {
    let mut arguments = std::env::args();
    match arguments.nth(1).as_deref() {
        Some("intruder") => Some(intruder::main(arguments)),
        Some(tenants::RUN_ATTEMPTS) => Some(program::run_attempts()),
        Some(tenants::WAIT_FOREVER) => loop {
            pause();
        },
        Some(programs::START_AGENT) => Some(programs::run_agent(arguments)),
        _ => {
            let words: Vec<String> = std::env::args().collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            host_ipvs::run_role(&words)
        }
    }
}

fn main() -> ExitCode {
    if let Some(status) = run_role() {
        return status;
    }
    let mut trials: Vec<Trial> = outside::test_users()
        .into_iter()
        .map(|user| {
            Trial::test(format!("nothing_gets_out_{}", user.name()), move || {
                try_all(user)
            })
        })
        .collect();
    trials.extend(
        programs::available_privileges()
            .into_iter()
            .map(|standing| {
                let name = format!("program_of_a_lab_reaches_nothing_{}", standing.name());
                Trial::test(name, move || match programs::find_escapes(standing) {
                    reached if reached.is_empty() => Ok(()),
                    reached => Err(reached.into()),
                })
            }),
    );
    let trials_with_labs: [(&str, fn()); 5] = [
        (
            "labs_of_different_files_share_no_agent",
            beside::labs_of_different_files_share_no_agent,
        ),
        (
            "honest_lab_fails_beside_a_hostile_one",
            beside::honest_lab_fails_beside_a_hostile_one,
        ),
        (
            "command_answer_does_not_count_as_server_answer",
            beside::command_answer_does_not_count_as_server_answer,
        ),
        (
            "commands_beyond_their_limits_are_errors",
            beside::commands_beyond_their_limits_are_errors,
        ),
        (
            "limits_out_of_bounds_are_refused",
            beside::limits_out_of_bounds_are_refused,
        ),
    ];
    trials.extend(trials_with_labs.into_iter().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    }));
    trials.extend(host_ipvs::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Checks the agent, runs all attempts once, and returns all unexpected results.
fn try_all(user: User) -> Result<(), Failed> {
    let outside = Host::prepare(user);
    let outcomes = outside.intrude();
    let mut wrong: Vec<String> = outcomes
        .iter()
        .filter_map(outside::Outcome::complaint)
        .collect();
    let tried: Vec<&str> = outcomes
        .iter()
        .map(|outcome| outcome.name.as_str())
        .collect();
    for attempt in attempts::ATTEMPTS {
        if !tried.contains(&attempt.name) {
            wrong.push(format!("{} did not run", attempt.name));
        }
    }
    wrong.extend(outside.check_agent(user));
    wrong.extend(outside.touched());
    if wrong.is_empty() {
        return Ok(());
    }
    Err(wrong.join("\n").into())
}
