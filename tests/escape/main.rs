//! Trying to get out of where a lab runs. A run is started, and beside its agent,
//! in the same namespaces and with the same rights, a program that tries
//! whatever would reach the machine: nothing may come of it but the kernel's
//! refusal. As root everything is done twice, the second time as a user without
//! privileges.
//!
//! That program is this very test, started anew with `intruder` as its first
//! argument: it was loaded before it went inside, so nothing has to be shown to
//! it there.

mod attempts;
#[path = "../shared/copied.rs"]
mod copied;
mod identity;
mod intruder;
mod outside;
#[path = "../shared/rights.rs"]
mod rights;
#[path = "../shared/waiting.rs"]
mod waiting;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use outside::{Outside, User};

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    if arguments.nth(1).as_deref() == Some("intruder") {
        return intruder::main(arguments);
    }
    let trials = outside::users()
        .into_iter()
        .map(|user| {
            Trial::test(format!("nothing_gets_out_{}", user.word()), move || {
                try_all(user)
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Has everything tried, once, and says all that came of it.
fn try_all(user: User) -> Result<(), Failed> {
    let outside = Outside::prepare(user);
    let said = outside.intrude();
    let mut wrong: Vec<String> = said
        .iter()
        .filter_map(outside::Outcome::complaint)
        .collect();
    let tried: Vec<&str> = said.iter().map(|outcome| outcome.name.as_str()).collect();
    for attempt in attempts::ALL {
        if !tried.contains(&attempt.name) {
            wrong.push(format!("{} was not tried", attempt.name));
        }
    }
    wrong.extend(outside.touched());
    if wrong.is_empty() {
        return Ok(());
    }
    Err(wrong.join("\n").into())
}
