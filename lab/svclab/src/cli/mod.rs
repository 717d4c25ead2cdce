//! Implements the `svclab` command: arguments, subcommands and exit codes.

mod args;
mod cases;
pub(crate) mod complete;
mod drafts;
mod dumps;
mod error;
mod input;
mod interrupt;
mod machine;
mod output;
mod progress;
mod report_output;
mod running;

use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind as UsageErrorKind;

use args::{Arguments, Command};
use cases::{claims, explain, graph, list, plan, run, verify, why};
use dumps::{bisect, diff, redact, replay, rules};
use error::{CliError, CommandResult, Outcome};
use machine::{collect_node, doctor, kernel, merge, report, schema, shell};
use running::{capture, down, exec, probe, ps, up};

use svclab_diagnostic::{bug, exit_code};

/// Runs the command from the arguments of the process, and prints its error.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = complete::answer() {
        return code.into();
    }
    if is_read_by_runner() {
        output::disable_runner_commands();
    }
    bug::install_panic_hook(output::print_message);
    run_catching_panics(|| match Arguments::parse_process() {
        Ok(arguments) => {
            output::set_color(arguments.color);
            init_logging();
            dispatch(&arguments)
        }
        Err(error) => {
            let arguments: Vec<OsString> = std::env::args_os().collect();
            output::set_color_of_unparsed(&arguments);
            if error.use_stderr() {
                return Err(usage_error(error, &arguments));
            }
            // Help and version are not errors.
            output::print_usage(&error.render())?;
            Ok(Outcome::SUCCESS)
        }
    })
    .into()
}

/// Runs a command, prints its error and returns its exit code. If a panic occurred in any thread or
/// task, the exit code is that of a bug.
fn run_catching_panics(command: impl FnOnce() -> CommandResult) -> u8 {
    let code = panic::catch_unwind(AssertUnwindSafe(|| match command() {
        Ok(outcome) => outcome.code(),
        Err(error) => {
            output::print_error(&error);
            error.exit_code()
        }
    }));
    match code {
        Ok(code) if !bug::has_panicked() => code,
        _ => exit_code::BUG,
    }
}

/// Returns the description of the command line: its commands, arguments and help.
#[must_use]
pub fn command() -> clap::Command {
    args::command()
}

/// Names the argument that is not UTF-8, which clap does not.
fn usage_error(error: clap::Error, arguments: &[OsString]) -> CliError {
    let ends_parsing = |index: &usize| {
        let (parsed, rest) = arguments.split_at(index + 1);
        let rest = rest
            .iter()
            .map(|argument| argument.to_string_lossy().into_owned().into());
        let again = Arguments::try_parse_from(parsed.iter().cloned().chain(rest));
        again.is_err_and(|error| error.kind() == UsageErrorKind::InvalidUtf8)
    };
    let refused = match error.kind() {
        // A path may be any bytes, so that the first argument that is not UTF-8 may be valid.
        UsageErrorKind::InvalidUtf8 => (0..arguments.len())
            .filter(|index| arguments[*index].to_str().is_none())
            .find(ends_parsing),
        _ => None,
    };
    match refused {
        Some(index) => CliError::refused(
            format!("argument `{}` is not UTF-8", arguments[index].display()),
            "rename the file, or select the directory that contains it",
        ),
        None => CliError::Usage(error),
    }
}

fn dispatch(arguments: &Arguments) -> CommandResult {
    match &arguments.command {
        Command::Run(run) => run::run(run),
        Command::Explain(asked) => explain::explain(asked),
        Command::Why(asked) => why::find_fixes(asked),
        Command::Plan(plan) => plan::plan(plan),
        Command::Graph(graph) => graph::graph(graph),
        Command::Up(up) => up::up(up),
        Command::Ps(ps) => ps::ps(ps),
        Command::Exec(exec) => exec::exec(exec),
        Command::Shell(shell) => exec::shell(shell),
        Command::Probe(probe) => probe::probe(probe),
        Command::Capture(capture) => capture::capture(capture),
        Command::Down(down) => down::down(down),
        Command::Rules(arguments) => rules::rules(arguments),
        Command::Verify(asked) => verify::verify_proxies(asked),
        Command::Claims(claims) => claims::claims(claims),
        Command::Bisect(asked) => bisect::bisect(asked),
        Command::Diff(diff) => diff::diff(diff),
        Command::Replay(asked) => replay::replay(asked),
        Command::Redact(asked) => redact::redact(asked),
        Command::CollectNode => collect_node::collect_node(),
        Command::Report(asked) => report::report(asked),
        Command::Merge(asked) => merge::merge(asked),
        Command::Doctor(doctor) => doctor::doctor(doctor),
        Command::Kernel { command } => kernel::kernel(command),
        Command::New(asked) => drafts::new(asked),
        Command::Import(asked) => drafts::import(asked),
        Command::List(asked) => list::list(asked),
        Command::Labs(asked) => list::labs(asked),
        Command::Schema { format } => schema::schema(*format),
        Command::Completions { shell } => shell::completions(*shell),
        Command::Man { directory } => shell::man(directory),
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

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn argument_not_utf8_is_named() {
        let with_invalid_byte = |byte| if byte == b'?' { 0xff } else { byte };
        for line in [
            "svclab run lab?",
            "svclab run --report valid-path? lab? later?",
        ] {
            let words = line
                .split(' ')
                .map(|word| word.bytes().map(with_invalid_byte));
            let arguments: Vec<OsString> = words
                .map(|word| OsString::from_vec(word.collect()))
                .collect();
            let error = Arguments::try_parse_from(arguments.clone()).expect_err("not UTF-8");
            let error = usage_error(error, &arguments);
            assert_eq!(error.to_string(), "argument `lab\u{fffd}` is not UTF-8");
            assert_eq!(error.exit_code(), exit_code::INVALID_INPUT);
        }
    }

    #[test]
    fn command_that_panics_exits_with_bug() {
        assert_eq!(run_catching_panics(|| Ok(Outcome::FAILED)), 1);
        assert_eq!(run_catching_panics(|| Err(CliError::Interrupted)), 130);
        assert_eq!(run_catching_panics(|| panic!("expected")), exit_code::BUG);
    }
}
