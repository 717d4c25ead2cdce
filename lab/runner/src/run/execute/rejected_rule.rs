//! Finds a rule that a kernel rejected in the lab file.

use crate::kernel::KernelError;
use crate::results::{ErrorKind, RunError};
use crate::run::prepare::{Prepared, problems_to_diagnostics};
use svclab_diagnostic::Rendering;
use svclab_planner::cluster::{Problem, place};

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
