//! Renders the answer of a case as Markdown, for an issue.

use super::answer::Answer;
use crate::commands::why::join_descriptions;
use crate::formats::markdown::{code_span, escape_text};
use svclab_diagnostic::printable::printable;

/// Renders the answer.
pub(super) fn render(answer: &Answer<'_>) -> String {
    let details = answer.details;
    let result = &details.result;
    let status = details.status_name();
    let mut lines = vec![
        format!("**{}**: {status}", escape_text(&result.case)),
        String::new(),
        escape_text(&answer.headline),
        String::new(),
    ];
    if let Some(error) = &result.error {
        lines.push(format!("- Error: {}", escape_text(&error.message)));
    }
    lines.extend(
        answer
            .sentences
            .iter()
            .map(|sentence| format!("- {}", escape_text(sentence))),
    );
    if let Some(rule) = &answer.decided_by {
        lines.push(format!("- Decided by {}", code_span(rule)));
    }
    for probe in details.additions.fixes.iter().flatten() {
        for fix in &probe.fixes {
            let description = escape_text(&join_descriptions(&fix.changes));
            lines.push(format!("- Fix: {description}"));
            let commands = fix.changes.iter().flat_map(|change| &change.commands);
            lines.extend(commands.map(|command| {
                let line = format!("{}# {}", command.namespace, command.command);
                format!("  - {}", code_span(&line))
            }));
        }
    }
    for (title, values) in &answer.basis {
        lines.push(format!("- {title}: {}", escape_text(&values.join("; "))));
    }
    lines.push(format!("- Again: {}", code_span(&details.rerun)));
    printable(&(lines.join("\n") + "\n")).into_owned()
}
