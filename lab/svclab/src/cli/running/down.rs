//! Implements `svclab down`.

use super::which::{print_call_error, print_pick_error, print_socket_dir_error};
use crate::cli::args::DownArguments;
use crate::cli::exit::Exit;
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{print, print_start_error};
use crate::live::{
    CallError, ClientRequest, DaemonReply, LabInfo, PickError, SocketDir, pick_lab, request_daemon,
    running_labs,
};

/// Stops running labs, and returns after all their resources are removed.
pub fn down(arguments: &DownArguments) -> Exit {
    match run_interruptible(stop_labs(arguments)) {
        Ok(Some(exit)) => exit,
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => print_start_error(&error),
    }
}

async fn stop_labs(arguments: &DownArguments) -> Exit {
    let directory = match SocketDir::from_env() {
        Ok(directory) => directory,
        Err(error) => return print_socket_dir_error(&error),
    };
    let labs = match running_labs(&directory).await {
        Ok(labs) => labs,
        Err(error) => return print_call_error(&error),
    };
    let chosen: Vec<LabInfo> = if arguments.all {
        labs
    } else {
        match pick_lab(&labs, arguments.lab.as_deref(), "`svclab down LAB/CASE`") {
            Ok(at) => vec![labs[at].clone()],
            Err(error) => return print_pick_error(&error),
        }
    };
    if chosen.is_empty() {
        return print_pick_error(&PickError::None);
    }
    for lab in &chosen {
        match stop_lab(&directory, &lab.case).await {
            Ok(()) => drop(print(&format!("stopped {}\n", lab.case))),
            Err(error) => return print_call_error(&error),
        }
    }
    Exit::Success
}

/// Stops a lab and waits for the end of its daemon. Returns `Ok` if the daemon has already ended.
async fn stop_lab(directory: &SocketDir, case: &str) -> Result<(), CallError> {
    let mut line = match request_daemon(directory, case, &ClientRequest::Down).await {
        Err(CallError::DaemonEnded) => return Ok(()),
        line => line?,
    };
    loop {
        match line.recv().await {
            Ok(DaemonReply::Removed) => {}
            Err(CallError::DaemonEnded) => return Ok(()),
            Ok(_) => return Err(CallError::UnexpectedReply),
            Err(error) => return Err(error),
        }
    }
}
