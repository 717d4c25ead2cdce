//! Combines the claim results of all cases of a run.

mod differ;
mod natural;
mod print;
mod which;

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::results::{CaseDocument, ClaimDocument};
use svclab_diagnostic::exit_code;
use svclab_judge::ClaimVerdict;

pub use differ::{DifferingClaim, find_differing};
pub use print::{Layout, print_claims};

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/claims/v1";

/// Claim that a lab declares. Several labs may declare the same claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared<'a> {
    /// Lab name.
    pub lab: &'a str,
    /// Claim identifier: `S1-18`.
    pub id: &'a str,
    /// Text of the claim.
    pub says: &'a str,
    /// Reason why no packet can confirm or refute the claim; `None` if packets can.
    pub not_checkable: Option<&'a str>,
}

/// Claim with its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimLine {
    /// Claim identifier: `S1-18`.
    pub id: String,
    /// Text from the first lab that declares the claim; absent if no lab does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// Status of the claim.
    #[serde(flatten)]
    pub status: ClaimStatus,
}

/// Status of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "verdict",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ClaimStatus {
    /// All cases with this claim confirm it.
    Confirmed {
        /// Cases that confirm the claim.
        cases: Vec<String>,
        /// Claimed and observed values, if no case observed everything that is claimed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        incomplete: Option<String>,
    },
    /// All cases with this claim refute it.
    Refuted {
        /// Cases that refute the claim.
        cases: Vec<String>,
        /// Observation of the first of these cases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<String>,
    },
    /// Cases confirm only some parts, or disagree.
    Partly {
        /// Results for the claim as a whole, then for each part in the order of first occurrence.
        parts: Vec<Part>,
    },
    /// No packet can confirm or refute the claim.
    NotCheckable {
        /// Reason.
        reason: String,
    },
    /// Undecided.
    Unsettled {
        /// Cases with this claim that did not have the expected result; empty if no case has the
        /// claim.
        cases: Vec<String>,
    },
}

/// Case results for a part of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Label of the part in the labs; absent for the claim as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Cases that confirm the part.
    pub confirmed: Vec<String>,
    /// Claimed and observed values, if no case observed everything that the part claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Cases that refute the part.
    pub refuted: Vec<Refutation>,
}

/// Case that refutes a claim or part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refutation {
    /// Case name: `LAB/CASE`.
    pub case: String,
    /// Claimed and observed values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

/// All claims, as `svclab claims --format json` prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    /// Always `svclab/claims/v1`.
    pub schema: String,
    /// Claims in natural order of their identifiers: `S0-2`, `S0-10`, `S1-1`.
    pub claims: Vec<ClaimLine>,
}

/// Results for one claim, with their case names.
type ClaimResults<'a> = Vec<(&'a str, &'a ClaimDocument)>;

/// Determines the status of each claim that is declared or has results, in natural order of the
/// identifiers: `S0-2`, `S0-10`, `S1-1`.
///
/// A case without the expected result decides nothing. Its claims stay unsettled, even if other
/// cases agree. Results have priority over a declaration that a claim cannot be checked.
#[must_use]
pub fn determine_statuses(cases: &[CaseDocument], declared: &[Declared<'_>]) -> Vec<ClaimLine> {
    let mut results_by_claim: BTreeMap<
        natural::NaturalKey<'_>,
        (Option<&Declared<'_>>, ClaimResults<'_>),
    > = BTreeMap::new();
    for claim in declared {
        let (declaration, _) = results_by_claim
            .entry(natural::NaturalKey(claim.id))
            .or_default();
        // Uses the first declaration, or the first with a reason.
        if declaration
            .is_none_or(|known| known.not_checkable.is_none() && claim.not_checkable.is_some())
        {
            *declaration = Some(claim);
        }
    }
    for case in cases {
        for outcome in &case.claims {
            let (_, claim_results) = results_by_claim
                .entry(natural::NaturalKey(&outcome.id))
                .or_default();
            claim_results.push((&case.case, outcome));
        }
    }
    results_by_claim
        .into_iter()
        .map(|(id, (claim, claim_results))| ClaimLine {
            id: id.0.to_owned(),
            says: claim.map(|claim| claim.says.to_owned()),
            status: claim_status(&claim_results, claim.and_then(|claim| claim.not_checkable)),
        })
        .collect()
}

/// Builds the JSON document.
#[must_use]
pub fn document(claims: Vec<ClaimLine>) -> Claims {
    Claims {
        schema: SCHEMA.to_owned(),
        claims,
    }
}

/// Returns the exit code of the claims: 1 if a claim is unsettled, else 0. A refuted claim is a finding and not a failure.
#[must_use]
pub fn exit_code(claims: &[ClaimLine]) -> u8 {
    let unsettled = |claim: &ClaimLine| matches!(claim.status, ClaimStatus::Unsettled { .. });
    if claims.iter().any(unsettled) {
        exit_code::FAILED
    } else {
        exit_code::SUCCESS
    }
}

fn claim_status(results: &ClaimResults<'_>, not_checkable: Option<&str>) -> ClaimStatus {
    let cases = |verdict| -> Vec<String> {
        let cases: IndexSet<&str> = results
            .iter()
            .filter(|(_, outcome)| outcome.verdict == verdict)
            .map(|(case, _)| *case)
            .collect();
        cases.into_iter().map(str::to_owned).collect()
    };
    let [confirmed, refuted, unsettled] = [
        ClaimVerdict::Confirmed,
        ClaimVerdict::Refuted,
        ClaimVerdict::Unsettled,
    ]
    .map(cases);
    match (not_checkable, confirmed.is_empty(), refuted.is_empty()) {
        _ if !unsettled.is_empty() => ClaimStatus::Unsettled { cases: unsettled },
        (Some(reason), true, true) => ClaimStatus::NotCheckable {
            reason: reason.to_owned(),
        },
        (None, true, true) => ClaimStatus::Unsettled { cases: Vec::new() },
        (_, false, true) => ClaimStatus::Confirmed {
            cases: confirmed,
            incomplete: incomplete(results.iter().map(|(_, outcome)| *outcome)),
        },
        (_, true, false) => ClaimStatus::Refuted {
            cases: refuted,
            seen: results
                .iter()
                .find_map(|(_, outcome)| outcome.difference.clone()),
        },
        (_, false, false) => partly(results),
    }
}

/// Returns the claimed and observed values of the first confirmation, if each is incomplete.
fn incomplete<'c>(results: impl Iterator<Item = &'c ClaimDocument>) -> Option<String> {
    let confirmed = results.filter(|outcome| outcome.verdict == ClaimVerdict::Confirmed);
    let each: Option<Vec<&String>> = confirmed
        .map(|outcome| outcome.difference.as_ref())
        .collect();
    each?.first().map(|first| (*first).clone())
}

fn partly(results: &ClaimResults<'_>) -> ClaimStatus {
    let of_part = |label: Option<&str>| {
        let label = label.map(str::to_owned);
        let outcomes = results.iter().map(|(_, outcome)| *outcome);
        outcomes.filter(move |outcome| outcome.part == label)
    };
    let mut parts: IndexMap<Option<&str>, Part> = IndexMap::new();
    for (case, outcome) in results {
        let part = parts
            .entry(outcome.part.as_deref())
            .or_insert_with_key(|label| Part {
                part: label.map(str::to_owned),
                confirmed: Vec::new(),
                incomplete: incomplete(of_part(outcome.part.as_deref())),
                refuted: Vec::new(),
            });
        match outcome.verdict {
            ClaimVerdict::Refuted => part.refuted.push(Refutation {
                case: (*case).to_owned(),
                seen: outcome.difference.clone(),
            }),
            // Unsettled results are handled by the caller.
            ClaimVerdict::Confirmed | ClaimVerdict::Unsettled => {
                part.confirmed.push((*case).to_owned());
            }
        }
    }
    let mut parts: Vec<Part> = parts.into_values().collect();
    parts.sort_by_key(|part| part.part.is_some());
    ClaimStatus::Partly { parts }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::results::Document;
    use svclab_runner::results::fixture;

    fn outcome(id: &str, verdict: ClaimVerdict, part: &str, seen: &str) -> ClaimDocument {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ClaimDocument {
            id: id.to_owned(),
            verdict,
            part: some(part),
            difference: some(seen),
        }
    }

    fn case(name: &str, claims: Vec<ClaimDocument>) -> CaseDocument {
        CaseDocument {
            claims,
            ..CaseDocument::from(&fixture::passed(name))
        }
    }

    fn declared<'a>(id: &'a str, not_checkable: Option<&'a str>) -> Declared<'a> {
        Declared {
            lab: "l",
            id,
            says: "packets fly",
            not_checkable,
        }
    }

    /// Returns claims with every status.
    pub(crate) fn all_statuses() -> Vec<ClaimLine> {
        let declare = |id, says, not_checkable| Declared {
            lab: "clb-hairpin",
            id,
            says,
            not_checkable,
        };
        let declared = [
            declare(
                "S2-10",
                "A closed port of the load balancer refuses every connection at once, with \
                 either policy.",
                None,
            ),
            declare("S2-3", "A stale rule drops the reply.", None),
            declare("S1-18", "Every second connection times out.", None),
            declare(
                "S1-2",
                "Most clusters have this problem.",
                Some("packets do not show how common a problem is"),
            ),
            declare("S1-3", "No lab checks this claim.", None),
            declare("S2-11", "The reply comes from the node itself.", None),
        ];
        let mut cases = Document::from(&fixture::results()).cases;
        for name in ["away/a", "away/b"] {
            let seen = format!("call: claimed source node-1; seen source {name}");
            let claims = vec![
                outcome("S2-11", Refuted, "", &seen),
                outcome("S1-18", Unsettled, "", ""),
                outcome("S0-9", Confirmed, "", ""),
            ];
            cases.push(case(name, claims));
        }
        for name in ["more/a", "more/b"] {
            cases.push(case(name, vec![outcome("S1-18", Unsettled, "", "")]));
        }
        determine_statuses(&cases, &declared)
    }

    fn single_status(cases: &[CaseDocument], not_checkable: Option<&str>) -> ClaimStatus {
        let lines = determine_statuses(cases, &[declared("S1-1", not_checkable)]);
        assert_eq!(lines.len(), 1);
        lines.into_iter().next().unwrap().status
    }

    use ClaimVerdict::{Confirmed, Refuted, Unsettled};

    fn cases_with(results: &[(&str, ClaimVerdict, &str)]) -> Vec<CaseDocument> {
        results
            .iter()
            .map(|(name, verdict, part)| {
                let seen = if *verdict == Refuted { *name } else { "" };
                case(name, vec![outcome("S1-1", *verdict, part, seen)])
            })
            .collect()
    }

    #[test]
    fn tally_unexpected_case_unsettles_claim() {
        let cases = cases_with(&[
            ("l/a", Confirmed, ""),
            ("l/b", Unsettled, ""),
            ("l/c", Refuted, ""),
        ]);
        let cases_unsettled = vec!["l/b".to_owned()];
        assert_eq!(
            single_status(&cases, Some("why")),
            ClaimStatus::Unsettled {
                cases: cases_unsettled
            }
        );
    }

    #[test]
    fn tally_agreeing_cases_confirm_or_refute() {
        let cases = cases_with(&[("l/a", Confirmed, ""), ("l/b", Confirmed, "p")]);
        let both = || vec!["l/a".to_owned(), "l/b".to_owned()];
        assert_eq!(
            single_status(&cases, None),
            ClaimStatus::Confirmed {
                cases: both(),
                incomplete: None
            }
        );
        let cases = cases_with(&[("l/a", Refuted, ""), ("l/b", Refuted, "p")]);
        assert_eq!(
            single_status(&cases, None),
            ClaimStatus::Refuted {
                cases: both(),
                seen: Some("l/a".to_owned())
            }
        );
    }

    #[test]
    fn tally_claim_without_cases_is_unsettled() {
        assert_eq!(
            single_status(&[], None),
            ClaimStatus::Unsettled { cases: Vec::new() }
        );
        let reason = "a matter of taste".to_owned();
        assert_eq!(
            single_status(&[], Some(&reason)),
            ClaimStatus::NotCheckable { reason }
        );
    }

    #[test]
    fn tally_incomplete_confirmations_are_shown() {
        let confirmed = |seen| outcome("S1-1", ClaimVerdict::Confirmed, "", seen);
        let incomplete = |cases: Vec<CaseDocument>| {
            let lines = determine_statuses(&cases, &[declared("S1-1", None)]);
            match &lines[0].status {
                ClaimStatus::Confirmed { incomplete, .. } => incomplete.clone(),
                other => panic!("{other:?}"),
            }
        };
        let part = case("l/a", vec![confirmed("claimed 4 s; seen 1 s")]);
        assert_eq!(
            incomplete(vec![part.clone()]),
            Some("claimed 4 s; seen 1 s".to_owned())
        );
        // Another case observed all.
        assert_eq!(
            incomplete(vec![part, case("l/b", vec![confirmed("")])]),
            None
        );
    }

    #[test]
    fn tally_disagreeing_parts_are_grouped() {
        let part = |label: Option<&str>, confirmed: &[&str], refuted: &[&str]| Part {
            incomplete: None,
            part: label.map(str::to_owned),
            confirmed: confirmed.iter().map(|&case| case.to_owned()).collect(),
            refuted: refuted
                .iter()
                .map(|&case| Refutation {
                    case: case.to_owned(),
                    seen: Some(case.to_owned()),
                })
                .collect(),
        };
        let cases = cases_with(&[
            ("l/a", Confirmed, "the source"),
            ("l/b", Confirmed, "the source"),
            ("l/c", Refuted, "the port"),
            ("l/d", Refuted, "the pod"),
            ("l/e", Confirmed, "the pod"),
            ("l/f", Refuted, ""),
        ]);
        assert_eq!(
            single_status(&cases, None),
            ClaimStatus::Partly {
                parts: vec![
                    part(None, &[], &["l/f"]),
                    part(Some("the source"), &["l/a", "l/b"], &[]),
                    part(Some("the port"), &[], &["l/c"]),
                    part(Some("the pod"), &["l/e"], &["l/d"]),
                ],
            }
        );
    }

    #[test]
    fn tally_claims_are_unique_and_in_natural_order() {
        let ids = |declared: &[Declared<'_>], cases: &[CaseDocument]| -> Vec<String> {
            let lines = determine_statuses(cases, declared);
            lines.into_iter().map(|line| line.id).collect()
        };
        let declared_claims = ["S1-18", "S0-10", "S0-2", "S1-18"].map(|id| declared(id, None));
        let stray = case("l/a", vec![outcome("S0-3", Confirmed, "", "")]);
        assert_eq!(
            ids(&declared_claims, &[stray]),
            ["S0-2", "S0-3", "S0-10", "S1-18"]
        );
    }

    #[test]
    fn exit_code_unsettled_claim_is_one() {
        let line = |standing| ClaimLine {
            id: "S1-1".to_owned(),
            says: None,
            status: standing,
        };
        let refuted = line(single_status(&cases_with(&[("l/a", Refuted, "")]), None));
        assert_eq!(exit_code(std::slice::from_ref(&refuted)), 0);
        let unsettled = line(ClaimStatus::Unsettled { cases: Vec::new() });
        assert_eq!(exit_code(&[refuted, unsettled]), 1);
    }

    #[test]
    fn document_json_roundtrip_is_equal() {
        let document = document(all_statuses());
        let json = serde_json::to_string(&document).unwrap();
        assert_eq!(serde_json::from_str::<Claims>(&json).unwrap(), document);
        insta::assert_json_snapshot!(document);
    }
}
