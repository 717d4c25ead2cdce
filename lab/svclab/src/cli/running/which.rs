//! Selects a running lab, and reports errors of the selection and of requests to daemons.

use crate::cli::exit::Exit;
use crate::cli::output::print_error;
use crate::live::{
    CallError, LabInfo, PickError, SocketDir, SocketDirError, pick_lab, running_labs,
};
use svclab_runner::results::{ErrorKind, RunError};

/// Returns the socket directory and the selected lab.
///
/// # Errors
///
/// Returns the exit code if there is no such lab. The error is printed to standard error.
pub async fn find_running_lab(
    name: Option<&str>,
    selector: &'static str,
) -> Result<(SocketDir, LabInfo), Exit> {
    let directory = SocketDir::from_env().map_err(|error| print_socket_dir_error(&error))?;
    let mut labs = running_labs(&directory)
        .await
        .map_err(|error| print_call_error(&error))?;
    let index = pick_lab(&labs, name, selector).map_err(|error| print_pick_error(&error))?;
    Ok((directory, labs.swap_remove(index)))
}

/// Reports an error of the socket directory.
pub fn print_socket_dir_error(error: &SocketDirError) -> Exit {
    let trouble = match error {
        SocketDirError::AlreadyRunning { .. } => ErrorKind::Input,
        _ => ErrorKind::Machine,
    };
    print_error(&RunError {
        kind: trouble,
        message: error.to_string(),
        remedy: Some(error.remedy()),
    })
}

/// Reports that no lab or several labs match.
pub fn print_pick_error(error: &PickError) -> Exit {
    eprintln!("error: {error}");
    match error {
        PickError::None | PickError::Unknown { .. } => Exit::Nothing,
        PickError::Ambiguous { .. } => Exit::Input,
    }
}

/// Reports a failed request to a daemon.
pub fn print_call_error(error: &CallError) -> Exit {
    match error {
        CallError::SocketDir(error) => print_socket_dir_error(error),
        CallError::Refused(error) => print_error(error),
        CallError::Io(_) | CallError::UnexpectedReply => print_error(&RunError {
            kind: ErrorKind::Machine,
            message: error.to_string(),
            remedy: Some("list running labs with `svclab ps`".to_owned()),
        }),
        CallError::DaemonEnded => {
            eprintln!("error: {error}");
            Exit::Code(ErrorKind::Lost.exit_code())
        }
    }
}
