//! Measures the memory of processes. One trial runs at a time: `flat` measures its own process, and
//! the trials of `bounded` together need more memory than a small machine has.

mod bounded;
mod flat;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let Some(status) = bounded::run_role(&words) {
        return status;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let mut trials = bounded::trials();
    trials.push(flat::trial());
    libtest_mimic::run(&arguments, trials).exit_code()
}
