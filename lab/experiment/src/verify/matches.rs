//! Compares the rules that matched packets of a flow on both sides.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_journey::journey::{Journey, Rewrite};

/// Rules and IPVS choices that applied to packets of only one side, as text. A rule is given with
/// its chain and number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OneSidedMatches {
    /// Only on the reference side.
    pub against: Vec<String>,
    /// Only on the new side.
    pub new: Vec<String>,
}

/// Compares the rule matches of one probe's packets on both sides.
pub(super) fn compare_matches(
    probe: &str,
    against: &[Journey],
    new: &[Journey],
) -> OneSidedMatches {
    let [against, new] = [against, new].map(|journeys| collect_matches(probe, journeys));
    OneSidedMatches {
        against: against.difference(&new).cloned().collect(),
        new: new.difference(&against).cloned().collect(),
    }
}

fn collect_matches(probe: &str, journeys: &[Journey]) -> BTreeSet<String> {
    let probe_journeys = journeys.iter().filter(|journey| journey.probe == probe);
    let packets = probe_journeys.flat_map(|journey| &journey.packets);
    let mut matches = BTreeSet::new();
    for hop in packets.flat_map(|packet| &packet.hops) {
        for step in &hop.matches {
            // The ends of chains follow from the rules.
            let Some(rule) = &step.rule else { continue };
            let mut text = format!("{}: {} {}: {rule}", hop.namespace, step.table, step.chain);
            if !step.entries.is_empty() {
                let _ = write!(text, " (matching {})", step.entries.join(", "));
            }
            matches.insert(text);
        }
        if let Some(Rewrite::ByIpvs { server, real, .. }) = &hop.rewritten {
            matches.insert(format!("{}: IPVS {server} -> {real}", hop.namespace));
        }
    }
    matches
}
