//! Converts errors of kernels to errors for the user.

use crate::kernel::{KernelError, agent_program};
use crate::results::{ErrorKind, RunError};
use svclab_diagnostic::{bug, shortage};
use svclab_model::protocol::FailureKind;

/// Converts a kernel error to an error for the user, with its help.
#[must_use]
pub fn to_run_error(error: &KernelError) -> RunError {
    let (kind, remedy) = match error {
        KernelError::AgentSpawn { source, .. } => {
            let missing = || {
                let is_missing = source.kind() == std::io::ErrorKind::NotFound;
                is_missing.then(|| {
                    format!(
                        "install {} in the directory of svclab, or set {} to its path",
                        agent_program::NAME,
                        agent_program::PATH_VARIABLE
                    )
                })
            };
            let remedy = shortage::remedy(source).map(str::to_owned);
            (ErrorKind::Machine, remedy.or_else(missing))
        }
        KernelError::AgentSetup(failure) | KernelError::RequestFailed(failure) => {
            let trouble = match failure.kind {
                FailureKind::Input => ErrorKind::Input,
                FailureKind::KubeProxy => ErrorKind::KubeProxy,
                FailureKind::Machine | FailureKind::TooBusy => ErrorKind::Machine,
                FailureKind::Bug => ErrorKind::Bug,
            };
            (trouble, failure.remedy.clone())
        }
        KernelError::Missing(missing) | KernelError::GuestMissing { missing, .. } => {
            (ErrorKind::Machine, missing.remedy())
        }
        KernelError::HostMissing(missing) => {
            let guest = "or omit --kernel host to run the lab in a guest kernel";
            let remedies = missing.remedy().into_iter().chain([guest.to_owned()]);
            let remedy = remedies.collect::<Vec<_>>().join("\n");
            (ErrorKind::Machine, Some(remedy))
        }
        KernelError::NoGuest(error) if error.is_loss() => (ErrorKind::Lost, error.remedy()),
        KernelError::NoGuest(error) => (ErrorKind::Machine, error.remedy()),
        KernelError::NoKernel { host, guest } => {
            let remedies: Vec<String> = [to_run_error(host).remedy, guest.remedy()]
                .into_iter()
                .flatten()
                .collect();
            let remedy = (!remedies.is_empty()).then(|| remedies.join("\nor "));
            (ErrorKind::Machine, remedy)
        }
        KernelError::NotEnoughMemory(error) => {
            (ErrorKind::Machine, Some(error.remedy().to_owned()))
        }
        KernelError::ProtocolVersion { .. } => (
            ErrorKind::Machine,
            Some(format!(
                "install svclab and {} of the same release",
                agent_program::NAME
            )),
        ),
        KernelError::Lost(lost) if bug::is_agent_panic(&lost.stderr) => {
            (ErrorKind::Bug, Some(bug::REMEDY.to_owned()))
        }
        KernelError::Lost(lost) if lost.is_out_of_memory => {
            (ErrorKind::Machine, Some(shortage::MEMORY_REMEDY.to_owned()))
        }
        KernelError::Lost(lost) if lost.is_silent() => (
            ErrorKind::Lost,
            Some(
                "run the command again, with `--jobs 1` if the machine is busy; if the error \
                 repeats, report it with the lab file"
                    .to_owned(),
            ),
        ),
        KernelError::Lost(_) => (
            ErrorKind::Lost,
            Some(
                "run the command again; if the error repeats, report it with the lab file"
                    .to_owned(),
            ),
        ),
    };
    RunError {
        kind,
        message: error.to_string(),
        remedy,
    }
}
