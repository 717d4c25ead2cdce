//! Parses the arguments of `svclab-agent` and runs the requested task.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use svclab_diagnostic::exit_code;

use crate::HOST_OPTION;
use crate::INIT;
use crate::PROGRAM;
use crate::rules::restore;
use crate::sandbox::contain::AgentPrivilege;

/// Help text.
const USAGE: &str = "svclab starts this program to build labs.\n\n\
    Usage: svclab-agent [--init | [--machine] [--program PATH]...]";

/// Task that the arguments select.
enum Task {
    /// Run as the first process of a guest.
    Init,
    /// Serve labs.
    Serve(AgentPrivilege, Vec<PathBuf>),
    /// Print a text.
    Print(String),
}

/// Runs the program `svclab-agent`.
#[must_use]
pub fn run_from_args() -> ExitCode {
    if let Some(code) = restore::run_if_called() {
        return code;
    }
    match parse(std::env::args_os().skip(1)) {
        Some(Task::Init) => crate::run_as_init(),
        Some(Task::Serve(standing, programs)) => crate::run_contained(standing, &programs),
        Some(Task::Print(text)) => {
            crate::print(&text);
            ExitCode::SUCCESS
        }
        None => {
            crate::print_error(USAGE);
            exit_code::INVALID_INPUT.into()
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Task> {
    let mut standing = AgentPrivilege::Contained;
    let mut programs = Vec::new();
    let mut is_init = false;
    while let Some(argument) = arguments.next() {
        match argument.to_str()? {
            INIT => is_init = true,
            HOST_OPTION => standing = AgentPrivilege::Host,
            PROGRAM => programs.push(arguments.next()?.into()),
            "--version" => {
                let version = env!("CARGO_PKG_VERSION");
                return Some(Task::Print(format!("svclab-agent {version}")));
            }
            "--help" => return Some(Task::Print(USAGE.to_owned())),
            _ => return None,
        }
    }
    Some(if is_init {
        Task::Init
    } else {
        Task::Serve(standing, programs)
    })
}
