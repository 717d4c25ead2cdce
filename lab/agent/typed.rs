//! What is typed on nodes once everything is written.

use super::lab::Lab;
use super::program;
use crate::protocol::{Failure, Fault};

/// Runs the plan's commands, one after the other.
///
/// # Errors
///
/// When one cannot be started or says that it failed.
pub async fn all(lab: &Lab) -> Result<(), Failure> {
    for typed in &lab.plan.typed {
        let Some((program, words)) = typed.command.split_first() else {
            continue;
        };
        let (namespace, input) = (&typed.namespace, typed.input.as_str());
        let finished = lab.run(namespace, program, words, input).await?;
        if finished.success {
            continue;
        }
        let said = finished.stderr.trim();
        if !input.is_empty() {
            return Err(program::refused(namespace, program, said, input, 0));
        }
        let said = if said.is_empty() { "nothing" } else { said };
        return Err(Failure {
            fault: Fault::Input,
            message: format!("`{typed}` failed on {namespace}; it said: {said}"),
            remedy: Some("see what `byHand` says of that node".to_owned()),
            rejected: None,
        });
    }
    Ok(())
}
