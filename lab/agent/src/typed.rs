//! Runs the plan's commands on nodes (`byHand`) after all rules are loaded.

use super::lab::Lab;
use super::limited::{self, Exceeded};
use super::program;
use svclab_model::plan::Typed;
use svclab_model::protocol::{Failure, Fault};

/// Runs the plan's commands in sequence.
///
/// # Errors
///
/// When a command cannot be started, fails, or exceeds a limit.
pub async fn all(lab: &Lab) -> Result<(), Failure> {
    let Some(first) = lab.plan.typed.first() else {
        return Ok(());
    };
    // Other programs of the lab, such as kube-proxy, do not count against the commands' limits.
    let others = lab.namespace(&first.namespace)?.tenant().processes();
    for typed in &lab.plan.typed {
        let Some((program, words)) = typed.command.split_first() else {
            continue;
        };
        let (namespace, input) = (&typed.namespace, typed.input.as_str());
        let ns = lab.namespace(namespace)?;
        ns.tenant().runs();
        let finished = limited::run(ns, typed, program, words, others)
            .await?
            .map_err(|exceeded| beyond(typed, exceeded))?;
        if finished.success {
            continue;
        }
        let said = finished.stderr.trim();
        if !input.is_empty() {
            return Err(program::refused(namespace, program, said, input, 0));
        }
        let printed = end(&finished.stdout);
        let said = match (said, printed.as_str()) {
            ("", "") => "nothing".to_owned(),
            ("", one) | (one, "") => one.to_owned(),
            (said, printed) => format!("{said}\non standard output: {printed}"),
        };
        return Err(Failure {
            fault: Fault::Input,
            message: format!("`{typed}` failed on {namespace}; it said: {said}"),
            remedy: Some("see what `byHand` says of that node".to_owned()),
            rejected: None,
        });
    }
    Ok(())
}

/// Returns the end of a command's standard output, which may be long.
fn end(stdout: &str) -> String {
    const MAX: usize = 1000;
    let text = stdout.trim();
    let from = text.ceil_char_boundary(text.len().saturating_sub(MAX));
    let cut = if from > 0 { "…" } else { "" };
    format!("{cut}{}", &text[from..])
}

/// Returns the failure of a command that exceeded a limit.
fn beyond(typed: &Typed, exceeded: Exceeded) -> Failure {
    let limits = &typed.limits;
    let (what, field) = match exceeded {
        Exceeded::Time => (
            format!(
                "ran for longer than its time limit of {}",
                humantime::format_duration(limits.time)
            ),
            "timeLimit",
        ),
        Exceeded::Output => (
            format!(
                "printed more than its output limit of {} bytes",
                limits.output
            ),
            "outputLimit",
        ),
        Exceeded::Processes => (
            format!(
                "had more processes and threads at once than its limit of {}",
                limits.processes
            ),
            "processLimit",
        ),
    };
    Failure {
        fault: Fault::Input,
        message: format!("`{typed}` {what} on {}", typed.namespace),
        remedy: Some(format!(
            "raise `spec.nodes.{}.byHand.{field}`, or change the command",
            typed.namespace
        )),
        rejected: None,
    }
}
