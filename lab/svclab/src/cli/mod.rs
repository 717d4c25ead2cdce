//! Implements the `svclab` command: arguments, subcommands and exit codes.

/// Prints a line to standard error without control characters. In this module, the macro replaces
/// that of the standard library.
macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::cli::output::print_message(format_args!($($text)*))
    };
}

mod args;
mod cases;
mod dumps;
mod exit;
mod interrupt;
mod machine;
mod output;
mod progress;
mod running;

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};
use cases::{claims, explain, plan, run, verify, why};
use dumps::{bisect, diff, replay, rules};
use exit::Exit;
use machine::{doctor, kernel, schema};
use running::{capture, down, exec, probe, ps, up};

use svclab_diagnostic::bug;

/// Runs the command from the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    if is_read_by_runner() {
        output::disable_runner_commands();
    }
    bug::install_panic_hook(output::print_message);
    let arguments = match panic::catch_unwind(Arguments::try_parse) {
        Ok(Ok(arguments)) => arguments,
        Ok(Err(error)) => {
            // Help and version are not errors; all other results are invalid input.
            return output::print_usage(&error).into();
        }
        Err(_) => return Exit::Bug.into(),
    };
    init_logging();
    run_catching_panics(|| dispatch(&arguments)).into()
}

/// Returns the exit code of a command. If a panic occurred in any thread or task, the exit code is
/// that of a bug.
fn run_catching_panics(command: impl FnOnce() -> Exit) -> Exit {
    let exit = panic::catch_unwind(AssertUnwindSafe(command));
    match exit {
        Ok(exit) if !bug::has_panicked() => exit,
        _ => Exit::Bug,
    }
}

fn dispatch(arguments: &Arguments) -> Exit {
    match &arguments.command {
        Command::Run(run) => run::run(&arguments.common, run),
        Command::Explain(asked) => explain::explain(&arguments.common, asked),
        Command::Why(asked) => why::find_fixes(&arguments.common, asked),
        Command::Plan(plan) => plan::plan(&arguments.common, plan),
        Command::Up(up) => up::up(&arguments.common, up),
        Command::Ps(ps) => ps::ps(ps),
        Command::Exec(exec) => exec::exec(exec),
        Command::Shell(shell) => exec::shell(shell),
        Command::Probe(probe) => probe::probe(probe),
        Command::Capture(capture) => capture::capture(capture),
        Command::Down(down) => down::down(down),
        Command::Rules(arguments) => rules::rules(arguments),
        Command::Verify(asked) => verify::verify_proxies(&arguments.common, asked),
        Command::Claims(claims) => claims::claims(&arguments.common, claims),
        Command::Bisect(asked) => bisect::bisect(&arguments.common, asked),
        Command::Diff(diff) => diff::diff(diff),
        Command::Replay(asked) => replay::replay(&arguments.common, asked),
        Command::Doctor(doctor) => doctor::doctor(doctor),
        Command::Kernel { command } => kernel::kernel(command),
        Command::Schema { format: of } => schema::schema(*of),
        Command::Completions { shell } => completions(*shell),
    }
}

/// Enables logging to standard error if `SVCLAB_LOG` is set.
fn init_logging() {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_env("SVCLAB_LOG") {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(|| output::Messages)
            .without_time()
            // With internal errors, a closed standard error would cause a panic.
            .log_internal_errors(false)
            .init();
    }
}

/// Whether GitHub's runner reads the output, according to its environment variable or to
/// `--format`. The result is needed before the arguments are parsed, because parse errors repeat
/// arguments.
fn is_read_by_runner() -> bool {
    std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true")
        || std::env::args_os().any(|argument| argument == "github" || argument == "--format=github")
}

fn completions(shell: clap_complete::Shell) -> Exit {
    use clap::CommandFactory as _;
    // The generator panics if a write fails, so the script is written to memory first.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "svclab", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
