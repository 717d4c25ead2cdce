//! Renders the run of [`svclab_runner::results::fixture`], for tests.

use svclab_judge::ClaimVerdict;
use svclab_runner::results::CaseResult;
pub use svclab_runner::results::fixture::*;

use crate::commands::claims::{ClaimLine, Declared, determine_statuses};
use crate::{Format, Options};

/// Renders the run in a format.
pub fn render(format: Format, options: Options<'_>) -> String {
    let mut out = Vec::new();
    let mut writer = format.writer(&mut out, options);
    for event in events() {
        writer.event(&event).expect("writing to a vector succeeds");
    }
    drop(writer);
    String::from_utf8(out).expect("text")
}

/// Returns claims with every status.
pub fn claims() -> Vec<ClaimLine> {
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
    let mut results = results();
    for name in ["away/a", "away/b"] {
        let seen = format!("call: claimed source node-1; seen source {name}");
        results.cases.push(CaseResult {
            claims: vec![
                claim("S2-11", ClaimVerdict::Refuted, None, Some(&seen)),
                claim("S1-18", ClaimVerdict::Unsettled, None, None),
                claim("S0-9", ClaimVerdict::Confirmed, None, None),
            ],
            ..passed(name)
        });
    }
    for name in ["more/a", "more/b"] {
        results.cases.push(CaseResult {
            claims: vec![claim("S1-18", ClaimVerdict::Unsettled, None, None)],
            ..passed(name)
        });
    }
    determine_statuses(&results, &declared)
}
