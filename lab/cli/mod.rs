//! The command: what users type, and the exit codes they get.

mod args;
mod exit;
mod interrupt;
mod labs;
mod plan;
mod run;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};
use exit::Exit;

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are not errors; all else is wrong input.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Input.into()
            } else {
                Exit::Success.into()
            };
        }
    };
    let exit = match &arguments.command {
        Command::Run(run) => run::run(&arguments.common, run),
        Command::Plan(plan) => plan::plan(&arguments.common, plan),
        Command::Completions { shell } => completions(*shell),
        Command::Agent => return crate::agent::main(),
    };
    exit.into()
}

fn completions(shell: clap_complete::Shell) -> Exit {
    use clap::CommandFactory as _;
    clap_complete::generate(
        shell,
        &mut Arguments::command(),
        "svclab",
        &mut std::io::stdout(),
    );
    Exit::Success
}
