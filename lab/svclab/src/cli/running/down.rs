//! Implements `svclab down`.

use crate::cli::args::DownArguments;
use crate::cli::error::{CommandResult, Outcome};
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::print;
use crate::live::{
    CallError, ClientRequest, DaemonReply, LabInfo, PickError, SocketDir, pick_lab, request_daemon,
    running_labs,
};

/// Stops running labs, and returns after all their resources are removed.
pub(crate) fn down(arguments: &DownArguments) -> CommandResult {
    run_interruptible(stop_labs(arguments))?
}

async fn stop_labs(arguments: &DownArguments) -> CommandResult {
    let directory = SocketDir::from_env()?;
    let labs = running_labs(&directory).await?;
    let chosen: Vec<LabInfo> = if arguments.all {
        labs
    } else {
        let index = pick_lab(&labs, arguments.lab.as_deref(), "`svclab down LAB/CASE`")?;
        vec![labs[index].clone()]
    };
    if chosen.is_empty() {
        return Err(PickError::None.into());
    }
    for lab in &chosen {
        stop_lab(&directory, &lab.case).await?;
        // The other labs are also stopped if the user's output is closed.
        let _ = print(&format!("stopped {}\n", lab.case));
    }
    Ok(Outcome::SUCCESS)
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
