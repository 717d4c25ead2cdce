//! Renders the expectations of a case with what was seen.

use indexmap::IndexMap;
use maud::{Markup, html};

use crate::case_details::CaseDetails;
use crate::results::ClaimDocument;
use crate::text::expectation::{describe_observed, describe_shifts};
use svclab_diagnostic::printable::printable;
use svclab_judge::ClaimVerdict;

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
            ul { @for step in &result.steps { li { (printable(&step.name)) ": " (printable(&describe_shifts(&step.shifts, &step.unmoved, step.packets_missed))) } } }
        }
        @if !result.claims.is_empty() {
            h2 { "Claims" }
            ul {
                @for (id, claims) in &claims_by_id(&result.claims) {
                    li {
                        (printable(id))
                        @if let Some(text) = details.claim_texts.get(*id) { ": " (printable(text)) }
                        ul { @for claim in claims { li { (render_claim(claim)) } } }
                    }
                }
            }
        }
    }
}

/// Groups the results of a case for claims: those for the parts of a claim come together.
fn claims_by_id(claims: &[ClaimDocument]) -> IndexMap<&str, Vec<&ClaimDocument>> {
    let mut by_id: IndexMap<&str, Vec<&ClaimDocument>> = IndexMap::new();
    for claim in claims {
        by_id.entry(&claim.id).or_default().push(claim);
    }
    by_id
}

fn render_claim(claim: &ClaimDocument) -> Markup {
    html! {
        strong { (claim.verdict.label()) }
        @if let Some(part) = &claim.part { ": " (printable(part)) }
        @if let Some(difference) = &claim.difference {
            p.note {
                @if claim.verdict == ClaimVerdict::Confirmed { "Only a part was observed: " }
                (printable(difference))
            }
        }
    }
}
