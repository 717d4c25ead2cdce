//! Renders the expectations of a case with what was seen.

use maud::{Markup, html};

use crate::case_details::CaseDetails;
use crate::text::expectation::{describe_observed, describe_shifts};
use svclab_diagnostic::printable::printable;

/// Renders probes, other checks, steps and claims.
pub(super) fn render(details: &CaseDetails) -> Markup {
    let result = &details.result;
    let probes = result.probes.iter().map(|probe| {
        let name = format!("{}: {} to {}", probe.name, probe.from, probe.to);
        let expected = probe.expected.clone().unwrap_or_default();
        (
            name,
            expected,
            describe_observed(&probe.observed),
            probe.holds,
        )
    });
    let checks = result.checks().map(|check| {
        let (expected, observed) = (check.expected.clone(), check.observed.clone());
        (check.target.clone(), expected, observed, check.holds)
    });
    let rows: Vec<(String, String, String, bool)> = probes.chain(checks).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "Expectations" }
            div.scroll tabindex="0" role="region" aria-label="Expectations" {
                table.checks {
                    thead { tr { th scope="col" { "Result" } th scope="col" { "What" } th scope="col" { "Expected" } th scope="col" { "Seen" } } }
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
            h2 { "Steps" }
            ul { @for step in &result.steps { li { (printable(&step.name)) ": " (printable(&describe_shifts(&step.shifts))) } } }
        }
        @if !result.claims.is_empty() {
            h2 { "Claims" }
            ul {
                @for claim in &result.claims {
                    li {
                        (printable(&claim.id)) ", " strong { (claim.verdict.label()) }
                        @if let Some(part) = &claim.part { " in part (" (printable(part)) ")" }
                        @if let Some(text) = details.claim_texts.get(&claim.id) { ": " (printable(text)) }
                        @if let Some(difference) = &claim.difference { p.note { (printable(difference)) } }
                    }
                }
            }
        }
    }
}
