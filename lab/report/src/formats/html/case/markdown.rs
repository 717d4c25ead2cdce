//! Renders the answer of a case as Markdown, for an issue.

use super::answer::Answer;
use super::fixes::group_by_fixes;
use crate::commands::why::{is_lasting, join_descriptions, side_effects};
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
    let is_several = answer.probes.len() > 1;
    for probe in &answer.probes {
        if is_several {
            lines.push(format!("- **{}**", escape_text(&probe.title)));
        }
        let sentences = probe
            .route
            .iter()
            .chain(&probe.events)
            .chain(&probe.reasons);
        lines.extend(sentences.map(|sentence| format!("- {}", escape_text(sentence))));
        let succeeded = probe.succeeded.iter();
        lines.extend(
            succeeded.map(|sentence| format!("- Other connections: {}", escape_text(sentence))),
        );
        let decisions = probe.decided_by.iter();
        lines.extend(decisions.map(|decision| {
            format!(
                "- Decided by {} ({})",
                code_span(&decision.rule),
                decision.test
            )
        }));
    }
    let fixes = details.additions.fixes.as_deref().unwrap_or_default();
    for (names, fixes) in group_by_fixes(fixes, answer.first_probe()) {
        let names = if is_several {
            format!(" of {}", escape_text(&names.join(", ")))
        } else {
            String::new()
        };
        for fix in fixes {
            let description = escape_text(&join_descriptions(&fix.changes));
            let again = if is_lasting(fix) {
                ""
            } else {
                " (until the component writes it again)"
            };
            lines.push(format!("- Fix{names}: {description}{again}"));
            let effects = side_effects(fix).into_iter();
            lines.extend(effects.map(|effect| format!("  - Side effect: {effect}")));
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
