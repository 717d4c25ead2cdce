//! Tests with one trial for each case: every case of every lab, settled timeouts, and recordings of
//! kube-proxies. The trials share guests and run in parallel.

mod labs;
mod recorded;
mod settled;

use std::process::ExitCode;

use libtest_mimic::Arguments;

/// Number of parallel trials, which mostly wait for timeouts.
const PARALLEL_TRIALS: usize = 16;

fn main() -> ExitCode {
    let is_child = std::env::args().any(|argument| argument == recorded::AS_ROOT);
    let arguments = std::env::args().filter(|argument| argument != recorded::AS_ROOT);
    let mut arguments = Arguments::from_iter(arguments);
    arguments.test_threads.get_or_insert(PARALLEL_TRIALS);
    // The comparisons need the processors, the others wait: the comparisons come first.
    let mut trials = recorded::trials();
    if !is_child {
        trials.extend(settled::trials());
        trials.extend(labs::trials());
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    labs::stop_guests();
    conclusion.exit_code()
}
