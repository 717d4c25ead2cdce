//! What a run says of a write-up's claims, all cases taken together.

mod cover;
pub(super) use cover::cover;
mod differ;
mod natural;
mod print;
mod which;

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_diagnostic::exit_code;
use svclab_judge::{ClaimOutcome, ClaimVerdict};
use svclab_runner::results::Results;

pub use differ::{Differing, differing};
pub use print::{Layout, print};

/// The name and version of the document that [`document`] makes.
pub const SCHEMA: &str = "svclab/claims/v1";

/// A claim as a lab declares it. Several labs may declare the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared<'a> {
    /// The lab.
    pub lab: &'a str,
    /// Its identifier: `S1-18`.
    pub id: &'a str,
    /// What it says.
    pub says: &'a str,
    /// Why no packet can confirm or refute it, where none can.
    pub not_checkable: Option<&'a str>,
}

/// One claim and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimLine {
    /// Its identifier.
    pub id: String,
    /// What it says, in the words of the first lab that declares it; nothing if
    /// none of them does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// What became of it.
    #[serde(flatten)]
    pub standing: Standing,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "camelCase")]
pub enum Standing {
    /// Every case that speaks of it bears it out.
    Confirmed {
        /// Those cases.
        cases: Vec<String>,
    },
    /// No case that speaks of it bears it out.
    Refuted {
        /// Those cases.
        cases: Vec<String>,
        /// What the first of them saw instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<String>,
    },
    /// Some of it is borne out.
    Partly {
        /// What cases say of the claim as a whole, and of each part in the order in
        /// which they first do.
        parts: Vec<Part>,
    },
    /// No packet can tell.
    NotCheckable {
        /// Why not.
        reason: String,
    },
    /// Nothing can be said of it.
    Unsettled {
        /// The cases that should have told and did not come out as expected. None:
        /// no case speaks of it at all.
        cases: Vec<String>,
    },
}

/// What cases say of a part of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Its label in the labs; none for the claim as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The cases that bear it out.
    pub confirmed: Vec<String>,
    /// The cases that do not.
    pub refuted: Vec<Refutation>,
}

/// A case that does not bear something out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refutation {
    /// The case.
    pub case: String,
    /// What is claimed and what was seen instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

/// All claims, as `svclab claims --format json` prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    /// `svclab/claims/v1`.
    pub schema: String,
    /// Each claim, in the natural order of the identifiers.
    pub claims: Vec<ClaimLine>,
}

/// What cases say of one claim, by case.
type Said<'a> = Vec<(&'a str, &'a ClaimOutcome)>;

/// What results say of claims, in the natural order of the identifiers: `S0-2`,
/// `S0-10`, `S1-1`. A claim has a line if it is declared or spoken of.
///
/// A case that did not come out as expected settles nothing, and whatever it
/// speaks of stays unsettled, however many other cases agree. Outcomes go before
/// a lab's word that a claim cannot be checked.
#[must_use]
pub fn tally(results: &Results, declared: &[Declared<'_>]) -> Vec<ClaimLine> {
    let mut all: BTreeMap<natural::Key<'_>, (Option<&Declared<'_>>, Said<'_>)> = BTreeMap::new();
    for claim in declared {
        let (known, _) = all.entry(natural::Key(claim.id)).or_default();
        // The first text, and a reason wherever it is given.
        if known.is_none_or(|known| known.not_checkable.is_none() && claim.not_checkable.is_some())
        {
            *known = Some(claim);
        }
    }
    for case in &results.cases {
        for outcome in &case.claims {
            let (_, said) = all.entry(natural::Key(&outcome.id)).or_default();
            said.push((&case.case, outcome));
        }
    }
    all.into_iter()
        .map(|(id, (claim, said))| ClaimLine {
            id: id.0.to_owned(),
            says: claim.map(|claim| claim.says.to_owned()),
            standing: standing(&said, claim.and_then(|claim| claim.not_checkable)),
        })
        .collect()
}

/// The document that holds these claims.
#[must_use]
pub fn document(claims: Vec<ClaimLine>) -> Claims {
    Claims {
        schema: SCHEMA.to_owned(),
        claims,
    }
}

/// The exit code of `svclab claims` when all cases came to a verdict: 1 if a claim
/// is unsettled, else 0; a claim that is refuted is a finding, no failure.
#[must_use]
pub fn exit_code(claims: &[ClaimLine]) -> u8 {
    let unsettled = |claim: &ClaimLine| matches!(claim.standing, Standing::Unsettled { .. });
    if claims.iter().any(unsettled) {
        exit_code::FAILED
    } else {
        exit_code::SUCCESS
    }
}

fn standing(said: &Said<'_>, not_checkable: Option<&str>) -> Standing {
    let cases = |verdict| -> Vec<String> {
        let cases: IndexSet<&str> = said
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
        _ if !unsettled.is_empty() => Standing::Unsettled { cases: unsettled },
        (Some(reason), true, true) => Standing::NotCheckable {
            reason: reason.to_owned(),
        },
        (None, true, true) => Standing::Unsettled { cases: Vec::new() },
        (_, false, true) => Standing::Confirmed { cases: confirmed },
        (_, true, false) => Standing::Refuted {
            cases: refuted,
            seen: said.iter().find_map(|(_, outcome)| outcome.seen.clone()),
        },
        (_, false, false) => partly(said),
    }
}

fn partly(said: &Said<'_>) -> Standing {
    let mut parts: IndexMap<Option<&str>, Part> = IndexMap::new();
    for (case, outcome) in said {
        let part = parts
            .entry(outcome.part.as_deref())
            .or_insert_with_key(|label| Part {
                part: label.map(str::to_owned),
                confirmed: Vec::new(),
                refuted: Vec::new(),
            });
        match outcome.verdict {
            ClaimVerdict::Refuted => part.refuted.push(Refutation {
                case: (*case).to_owned(),
                seen: outcome.seen.clone(),
            }),
            // Unsettled claims do not come here.
            ClaimVerdict::Confirmed | ClaimVerdict::Unsettled => {
                part.confirmed.push((*case).to_owned());
            }
        }
    }
    let mut parts: Vec<Part> = parts.into_values().collect();
    parts.sort_by_key(|part| part.part.is_some());
    Standing::Partly { parts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use svclab_runner::results::CaseResult;

    fn outcome(id: &str, verdict: ClaimVerdict, part: &str, seen: &str) -> ClaimOutcome {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ClaimOutcome {
            id: id.to_owned(),
            verdict,
            part: some(part),
            seen: some(seen),
        }
    }

    fn case(name: &str, claims: Vec<ClaimOutcome>) -> CaseResult {
        CaseResult {
            claims,
            ..fixture::passed(name)
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

    fn one(cases: Vec<CaseResult>, not_checkable: Option<&str>) -> Standing {
        let results = Results::new(BTreeMap::new(), cases);
        let lines = tally(&results, &[declared("S1-1", not_checkable)]);
        assert_eq!(lines.len(), 1);
        lines.into_iter().next().unwrap().standing
    }

    use ClaimVerdict::{Confirmed, Refuted, Unsettled};

    fn said(of: &[(&str, ClaimVerdict, &str)]) -> Vec<CaseResult> {
        of.iter()
            .map(|(name, verdict, part)| {
                let seen = if *verdict == Refuted { *name } else { "" };
                case(name, vec![outcome("S1-1", *verdict, part, seen)])
            })
            .collect()
    }

    #[test]
    fn one_case_that_went_astray_unsettles_a_claim() {
        let cases = said(&[
            ("l/a", Confirmed, ""),
            ("l/b", Unsettled, ""),
            ("l/c", Refuted, ""),
        ]);
        let cases_unsettled = vec!["l/b".to_owned()];
        assert_eq!(
            one(cases, Some("why")),
            Standing::Unsettled {
                cases: cases_unsettled
            }
        );
    }

    #[test]
    fn agreement_confirms_or_refutes() {
        let cases = said(&[("l/a", Confirmed, ""), ("l/b", Confirmed, "p")]);
        let both = || vec!["l/a".to_owned(), "l/b".to_owned()];
        assert_eq!(one(cases, None), Standing::Confirmed { cases: both() });
        let cases = said(&[("l/a", Refuted, ""), ("l/b", Refuted, "p")]);
        assert_eq!(
            one(cases, None),
            Standing::Refuted {
                cases: both(),
                seen: Some("l/a".to_owned())
            }
        );
    }

    #[test]
    fn what_no_case_speaks_of_is_unsettled_unless_there_is_a_reason() {
        assert_eq!(
            one(Vec::new(), None),
            Standing::Unsettled { cases: Vec::new() }
        );
        let reason = "a matter of taste".to_owned();
        assert_eq!(
            one(Vec::new(), Some(&reason)),
            Standing::NotCheckable { reason }
        );
    }

    #[test]
    fn what_cases_say_of_a_part_stands_together() {
        let part = |label: Option<&str>, confirmed: &[&str], refuted: &[&str]| Part {
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
        let cases = said(&[
            ("l/a", Confirmed, "the source"),
            ("l/b", Confirmed, "the source"),
            ("l/c", Refuted, "the port"),
            ("l/d", Refuted, "the pod"),
            ("l/e", Confirmed, "the pod"),
            ("l/f", Refuted, ""),
        ]);
        assert_eq!(
            one(cases, None),
            Standing::Partly {
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
    fn a_claim_of_several_labs_has_one_line_in_its_natural_place() {
        let ids = |declared: &[Declared<'_>], cases| -> Vec<String> {
            let results = Results::new(BTreeMap::new(), cases);
            let lines = tally(&results, declared);
            lines.into_iter().map(|line| line.id).collect()
        };
        let all = ["S1-18", "S0-10", "S0-2", "S1-18"].map(|id| declared(id, None));
        let stray = case("l/a", vec![outcome("S0-3", Confirmed, "", "")]);
        assert_eq!(ids(&all, vec![stray]), ["S0-2", "S0-3", "S0-10", "S1-18"]);
    }

    #[test]
    fn only_an_unsettled_claim_fails_a_run() {
        let line = |standing| ClaimLine {
            id: "S1-1".to_owned(),
            says: None,
            standing,
        };
        let refuted = line(one(said(&[("l/a", Refuted, "")]), None));
        assert_eq!(exit_code(std::slice::from_ref(&refuted)), 0);
        let unsettled = line(Standing::Unsettled { cases: Vec::new() });
        assert_eq!(exit_code(&[refuted, unsettled]), 1);
    }

    #[test]
    fn the_document_reads_back() {
        let document = document(fixture::claims());
        let json = serde_json::to_string(&document).unwrap();
        assert_eq!(serde_json::from_str::<Claims>(&json).unwrap(), document);
        insta::assert_json_snapshot!(document);
    }
}
