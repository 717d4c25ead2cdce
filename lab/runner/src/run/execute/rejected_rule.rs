//! Finds a rule or a counter that a kernel rejected in the lab file.

use crate::kernel::KernelError;
use crate::results::{ErrorKind, RunError};
use crate::run::prepare::{Prepared, problems_to_diagnostics};
use svclab_diagnostic::Rendering;
use svclab_model::protocol::NSTAT;
use svclab_planner::cluster::{Problem, place};

/// Returns an error that shows a rejected rule or counter at its location in the lab file. `None` if the lab
/// file contains neither.
pub(super) fn locate_in_lab(prepared: &Prepared, error: &KernelError) -> Option<RunError> {
    let KernelError::RequestFailed(failure) = error else {
        return None;
    };
    let rejected = failure.rejected.as_ref()?;
    if rejected.program == NSTAT {
        let row = &prepared.case.expected().expected.counters;
        let index = row
            .iter()
            .position(|counter| counter.counter == rejected.line)?;
        let place = place![
            "spec",
            "expect",
            prepared.case.row,
            "counters",
            index,
            "counter"
        ];
        let problem = Problem::in_lab(place, failure.message.clone());
        return Some(render(
            prepared,
            problem.with_help(rejected.message.clone()),
        ));
    }
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
    Some(render(prepared, problem))
}

/// Returns the error of a problem in the lab file.
fn render(prepared: &Prepared, problem: Problem) -> RunError {
    let diagnostics = problems_to_diagnostics(&prepared.case, &[problem]);
    let message = prepared
        .sources
        .redact(diagnostics)
        .iter()
        .map(|diagnostic| diagnostic.render(&prepared.sources, Rendering::default()))
        .collect::<String>();
    RunError {
        kind: ErrorKind::Input,
        message: message.trim_end().to_owned(),
        remedy: None,
    }
}
