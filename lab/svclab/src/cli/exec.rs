//! Implements `svclab exec` and `svclab shell`.

use super::args::{ExecArguments, ShellArguments};
use super::attach::{Outcome, attach, terminal};
use super::exit::Exit;
use super::interrupt::drive;
use super::output::refused;
use super::which::{uncalled, which};
use crate::live::{Ask, CallError, call};
use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{End, Exec};

/// Exit code if svclab fails before it can start the program.
const NOT_BROUGHT: Exit = Exit::Of(125);
/// Exit code if the program cannot be started.
const NOT_STARTED: Exit = Exit::Of(126);
/// Exit code if the program does not exist.
const NO_PROGRAM: Exit = Exit::Of(127);

/// Runs a program in a namespace of a running lab, and exits with its exit code.
pub fn exec(arguments: &ExecArguments) -> Exit {
    let Some((program, rest)) = arguments.command.split_first() else {
        return NOT_BROUGHT;
    };
    let wanted = Exec {
        namespace: arguments.namespace.clone(),
        program: program.clone(),
        arguments: rest.to_vec(),
        terminal: terminal(),
        environment: Vec::new(),
    };
    ends(drive(run(arguments.which.lab.as_deref(), wanted)))
}

/// Runs the user's shell, or `sh` if the lab does not have that shell.
pub fn shell(arguments: &ShellArguments) -> Exit {
    let Some(terminal) = terminal() else {
        eprintln!("error: a shell needs a terminal");
        eprintln!(
            "what to do: give its commands to `svclab exec {} -- sh -c '…'`",
            arguments.namespace
        );
        return NOT_BROUGHT;
    };
    let lab = arguments.which.lab.as_deref();
    let own = std::env::var("SHELL").ok().filter(|own| !own.is_empty());
    let prompt = format!("[{}] \\$ ", arguments.namespace);
    let wanted = |program: &str| Exec {
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
    let ran = drive(async {
        if let Some(own) = &own {
            match run(lab, wanted(own)).await {
                Ok(Outcome::Unstarted { absent: true, .. }) => {}
                other => return other,
            }
        }
        run(lab, wanted("sh")).await
    });
    ends(ran)
}

async fn run(lab: Option<&str>, wanted: Exec) -> Result<Outcome, Exit> {
    let (directory, lab) = which(lab, "--lab").await?;
    let on_terminal = wanted.terminal.is_some();
    let exec = Box::new(wanted);
    let attached = async {
        let line = call(&directory, &lab.case, &Ask::Exec { exec }).await?;
        attach(line, on_terminal).await
    };
    attached.await.map_err(|error: CallError| uncalled(&error))
}

fn ends(ran: std::io::Result<Result<Outcome, Exit>>) -> Exit {
    match ran {
        Ok(Ok(Outcome::Ended(End::Status { code }))) => {
            Exit::Of(u8::try_from(code).unwrap_or(u8::MAX))
        }
        Ok(Ok(Outcome::Ended(End::Signal { number }))) => {
            Exit::Of(u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX))
        }
        Ok(Ok(Outcome::Ended(End::Wish))) => {
            eprintln!("error: the lab was taken away");
            NOT_BROUGHT
        }
        Ok(Ok(Outcome::Unstarted { absent, failure })) => {
            let Failure {
                message, remedy, ..
            } = failure;
            eprintln!("error: {message}");
            if let Some(remedy) = remedy {
                eprintln!("what to do: {remedy}");
            }
            if absent { NO_PROGRAM } else { NOT_STARTED }
        }
        // `run` already printed the error.
        Ok(Err(_)) => NOT_BROUGHT,
        Err(error) => {
            refused(&error);
            NOT_BROUGHT
        }
    }
}
