//! Implements `svclab exec` and `svclab shell`.

use super::attach::{ProgramExit, attach, current_terminal};
use crate::cli::args::{ExecArguments, ShellArguments};
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::input::running_lab::find_running_lab;
use crate::cli::interrupt::block_on;
use crate::live::{ClientRequest, request_daemon};
use svclab_model::protocol::stream::{Exec, StreamEnd};
use svclab_runner::kernel::KernelError;

/// Exit code if svclab fails before it can start the program.
const SVCLAB_FAILED: u8 = 125;
/// Exit code if the program cannot be started.
const CANNOT_START: u8 = 126;
/// Exit code if the program does not exist.
const NOT_FOUND: u8 = 127;

/// Runs a program in a namespace of a running lab, and exits with its exit code.
pub(crate) fn exec(arguments: &ExecArguments) -> CommandResult {
    // clap requires at least one word.
    let mut words = arguments.command.iter().cloned();
    let request = Exec {
        namespace: arguments.namespace.clone(),
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        terminal: current_terminal(),
        environment: Vec::new(),
    };
    outcome(block_on(run_program(
        arguments.which.lab.as_deref(),
        request,
    )))
}

/// Runs the user's shell, or `sh` if the lab does not have that shell.
pub(crate) fn shell(arguments: &ShellArguments) -> CommandResult {
    let Some(terminal) = current_terminal() else {
        let help = format!(
            "run its commands with `svclab exec {} -- sh -c '…'`",
            arguments.namespace
        );
        let error = CliError::refused("a shell needs a terminal", help);
        return Err(error.with_exit_code(SVCLAB_FAILED));
    };
    let lab = arguments.which.lab.as_deref();
    let user_shell = std::env::var("SHELL").ok().filter(|own| !own.is_empty());
    let prompt = format!("[{}] \\$ ", arguments.namespace);
    let shell_request = |program: &str| Exec {
        namespace: arguments.namespace.clone(),
        program: program.to_owned(),
        arguments: Vec::new(),
        terminal: Some(terminal.clone()),
        environment: vec![
            (
                "PS1".to_owned(),
                // Only bash supports `\$`.
                if program.ends_with("bash") {
                    prompt.clone()
                } else {
                    prompt.replace("\\$", "$")
                },
            ),
            ("SHELL".to_owned(), program.to_owned()),
        ],
    };
    let ran = block_on(async {
        if let Some(own) = &user_shell {
            match run_program(lab, shell_request(own)).await {
                Ok(ProgramExit::NotStarted {
                    is_missing: true, ..
                }) => {}
                other => return other,
            }
        }
        run_program(lab, shell_request("sh")).await
    });
    outcome(ran)
}

async fn run_program(lab: Option<&str>, request: Exec) -> Result<ProgramExit, CliError> {
    let (directory, lab) = find_running_lab(lab, "--lab").await?;
    let on_terminal = request.terminal.is_some();
    let exec = Box::new(request);
    let line = request_daemon(&directory, &lab.case, &ClientRequest::Exec { exec }).await?;
    Ok(attach(line, on_terminal).await?)
}

fn outcome(ran: Result<Result<ProgramExit, CliError>, CliError>) -> CommandResult {
    let failed = |error: CliError| error.with_exit_code(SVCLAB_FAILED);
    match ran.flatten().map_err(failed)? {
        ProgramExit::Ended(StreamEnd::Status { code }) => {
            Ok(Outcome::from_code(u8::try_from(code).unwrap_or(u8::MAX)))
        }
        ProgramExit::Ended(StreamEnd::Signal { number }) => Ok(Outcome::from_code(
            u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX),
        )),
        ProgramExit::Ended(StreamEnd::CaptureEnded) => Err(failed(CliError::LabStopped)),
        ProgramExit::NotStarted {
            is_missing,
            failure,
        } => {
            let code = if is_missing { NOT_FOUND } else { CANNOT_START };
            Err(CliError::from(KernelError::RequestFailed(failure)).with_exit_code(code))
        }
    }
}
