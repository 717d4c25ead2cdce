//! Renders the expectations of a case with what was seen.

use maud::{Markup, html};

use crate::text::expectation::{describe_check, describe_probe, describe_shifts};
use svclab_diagnostic::printable::printable;
use svclab_runner::results::CaseResult;

/// Renders probes, other checks, steps and claims.
pub(super) fn render(result: &CaseResult) -> Markup {
    let probes = result.probes.iter().map(|probe| {
        let (expected, seen) = describe_probe(probe);
        let name = format!("{}: {} to {}", probe.name, probe.from, probe.to);
        (name, expected, seen, probe.holds)
    });
    let checks = result.checks().map(|check| {
        let (expected, seen) = describe_check(check);
        (check.target().clone(), expected, seen, check.holds())
    });
    let rows: Vec<(String, String, String, bool)> = probes.chain(checks).collect();
    html! {
        @if !rows.is_empty() {
            h3 { "Expectations" }
            div.scroll tabindex="0" role="region" aria-label="Expectations" {
                table {
                    thead { tr { th scope="col" { "" } th scope="col" { "What" } th scope="col" { "Expected" } th scope="col" { "Seen" } } }
                    tbody {
                        @for (name, expected, seen, holds) in &rows {
                            tr.fail[!holds] {
                                td { (if *holds { "✓" } else { "✕" }) }
                                td { (printable(name)) }
                                td { (printable(expected)) }
                                td { (printable(seen)) }
                            }
                        }
                    }
                }
            }
        }
        @if !result.steps.is_empty() {
            h3 { "Steps" }
            ul { @for step in &result.steps { li { (printable(&step.name)) ": " (printable(&describe_shifts(step))) } } }
        }
        @if !result.claims.is_empty() {
            h3 { "Claims" }
            ul {
                @for claim in &result.claims {
                    li {
                        (printable(&claim.id)) ": "
                        (claim.verdict.label())
                    }
                }
            }
        }
    }
}
