//! Compares the rules that matched packets of a flow on both sides.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_journey::journey::{Journey, Rewritten};

/// Rules and IPVS choices that applied to packets of only one side, as text. A rule is given with
/// its chain and number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnlyMet {
    /// Only on the reference side.
    pub against: Vec<String>,
    /// Only on the new side.
    pub new: Vec<String>,
}

/// Compares the rule matches of one probe's packets on both sides.
#[must_use]
pub fn only_met(probe: &str, against: &[Journey], new: &[Journey]) -> OnlyMet {
    let (mut first, mut second) = (met(probe, against), met(probe, new));
    let both: BTreeSet<String> = first.intersection(&second).cloned().collect();
    first.retain(|step| !both.contains(step));
    second.retain(|step| !both.contains(step));
    OnlyMet {
        against: first.into_iter().collect(),
        new: second.into_iter().collect(),
    }
}

fn met(probe: &str, journeys: &[Journey]) -> BTreeSet<String> {
    let own = journeys.iter().filter(|journey| journey.probe == probe);
    let hops = own
        .flat_map(|journey| &journey.flights)
        .flat_map(|flight| &flight.hops);
    let mut all = BTreeSet::new();
    for hop in hops {
        for step in &hop.met {
            // The ends of chains follow from the rules.
            let Some(rule) = &step.rule else { continue };
            let mut words = format!("{}: {} {}: {rule}", hop.namespace, step.table, step.chain);
            if !step.entries.is_empty() {
                let _ = write!(words, " (by {})", step.entries.join(", "));
            }
            all.insert(words);
        }
        if let Some(Rewritten::ByIpvs { server, real, .. }) = &hop.rewritten {
            all.insert(format!("{}: IPVS {server} -> {real}", hop.namespace));
        }
    }
    all
}
