//! Converts errors of kernels to errors for the user.

use crate::kernel::{KernelError, agent_program};
use crate::results::{ErrorKind, RunError};
use crate::run::prepare::{Prepared, problems_to_diagnostics};
use svclab_diagnostic::{Rendering, bug, shortage};
use svclab_model::protocol::FailureKind;
use svclab_planner::cluster::{Problem, place};

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

/// Returns an error that shows a rejected rule at its location in the lab file. `None` if the lab
/// file does not contain the rule.
pub(super) fn locate_in_lab(prepared: &Prepared, error: &KernelError) -> Option<RunError> {
    let KernelError::RequestFailed(failure) = error else {
        return None;
    };
    let rejected = failure.rejected.as_ref()?;
    let node = prepared
        .cluster
        .nodes
        .iter()
        .find(|node| node.name == rejected.namespace)?;
    let (list, field) = if rejected.program == "ipset" {
        (&node.leftovers.ipset, "ipset")
    } else {
        (&node.leftovers.iptables, "iptables")
    };
    let index = list.iter().position(|line| line.trim() == rejected.line)?;
    let problem = Problem::in_lab(
        place!["spec", "nodes", &node.name, "leftovers", field, index],
        format!(
            "{} rejects this line on node `{}`",
            rejected.program, node.name
        ),
    )
    .with_help(format!("it printed: {}", rejected.message));
    let diagnostics = problems_to_diagnostics(&prepared.case, &[problem]);
    let message = prepared
        .sources
        .redact(diagnostics)
        .iter()
        .map(|diagnostic| diagnostic.render(&prepared.sources, Rendering::default()))
        .collect::<String>();
    Some(RunError {
        kind: ErrorKind::Input,
        message: message.trim_end().to_owned(),
        remedy: None,
    })
}
