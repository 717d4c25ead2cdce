//! Implements `svclab exec` and `svclab shell`.

use super::attach::{ProgramExit, attach, current_terminal};
use super::which::{find_running_lab, print_call_error};
use crate::cli::args::{ExecArguments, ShellArguments};
use crate::cli::exit::Exit;
use crate::cli::interrupt::block_on;
use crate::cli::output::print_start_error;
use crate::live::{CallError, ClientRequest, request_daemon};
use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{Exec, StreamEnd};

/// Exit code if svclab fails before it can start the program.
const SVCLAB_FAILED: Exit = Exit::Code(125);
/// Exit code if the program cannot be started.
const CANNOT_START: Exit = Exit::Code(126);
/// Exit code if the program does not exist.
const NOT_FOUND: Exit = Exit::Code(127);

/// Runs a program in a namespace of a running lab, and exits with its exit code.
pub fn exec(arguments: &ExecArguments) -> Exit {
    let Some((program, rest)) = arguments.command.split_first() else {
        return SVCLAB_FAILED;
    };
    let request = Exec {
        namespace: arguments.namespace.clone(),
        program: program.clone(),
        arguments: rest.to_vec(),
        terminal: current_terminal(),
        environment: Vec::new(),
    };
    exit_of(block_on(run_program(
        arguments.which.lab.as_deref(),
        request,
    )))
}

/// Runs the user's shell, or `sh` if the lab does not have that shell.
pub fn shell(arguments: &ShellArguments) -> Exit {
    let Some(terminal) = current_terminal() else {
        eprintln!("error: a shell needs a terminal");
        eprintln!(
            "help: run its commands with `svclab exec {} -- sh -c '…'`",
            arguments.namespace
        );
        return SVCLAB_FAILED;
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
    exit_of(ran)
}

async fn run_program(lab: Option<&str>, request: Exec) -> Result<ProgramExit, Exit> {
    let (directory, lab) = find_running_lab(lab, "--lab").await?;
    let on_terminal = request.terminal.is_some();
    let exec = Box::new(request);
    let attached = async {
        let line = request_daemon(&directory, &lab.case, &ClientRequest::Exec { exec }).await?;
        attach(line, on_terminal).await
    };
    attached
        .await
        .map_err(|error: CallError| print_call_error(&error))
}

fn exit_of(ran: std::io::Result<Result<ProgramExit, Exit>>) -> Exit {
    match ran {
        Ok(Ok(ProgramExit::Ended(StreamEnd::Status { code }))) => {
            Exit::Code(u8::try_from(code).unwrap_or(u8::MAX))
        }
        Ok(Ok(ProgramExit::Ended(StreamEnd::Signal { number }))) => {
            Exit::Code(u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX))
        }
        Ok(Ok(ProgramExit::Ended(StreamEnd::CaptureEnded))) => {
            eprintln!("error: the lab was stopped");
            SVCLAB_FAILED
        }
        Ok(Ok(ProgramExit::NotStarted {
            is_missing: absent,
            failure,
        })) => {
            let Failure {
                message, remedy, ..
            } = failure;
            eprintln!("error: {message}");
            if let Some(remedy) = remedy {
                eprintln!("help: {remedy}");
            }
            if absent { NOT_FOUND } else { CANNOT_START }
        }
        // `run` already printed the error.
        Ok(Err(_)) => SVCLAB_FAILED,
        Err(error) => {
            print_start_error(&error);
            SVCLAB_FAILED
        }
    }
}
