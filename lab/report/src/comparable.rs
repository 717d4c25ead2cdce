//! Selects the case of a run with which a case is compared: the most similar one in which the same
//! probe succeeded, or the other side of a comparison.

use std::collections::BTreeMap;

use crate::alignment::ConnectionWay;
use crate::case_details::CaseDetails;
use crate::commands::explain::ExplainedJourney;
use svclab_model::evidence::Verdict;

/// Maximum number of connections that are kept of a case.
const MAX_WAYS: usize = 16;

/// Name of the axis that a kernel, or the side of a comparison, stands for.
const KERNEL: &str = "kernel";
const SIDE: &str = "side";

/// Part of a case that comparisons need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comparable {
    /// Name of the lab on the command line.
    lab: String,
    /// Values of the case by axis, with its kernel and its side.
    axes: BTreeMap<String, String>,
    /// First failing and first succeeding connection of each probe and step.
    ways: Vec<StepWay>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct StepWay {
    step: Option<String>,
    is_failing: bool,
    way: ConnectionWay,
}

/// Comparison of a case with another of the same run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pairing<'c> {
    /// Index of the other case.
    pub other: usize,
    /// Axes with different values: the name, the value of the other case, and that of this case.
    pub axes: Vec<(&'c str, &'c str, &'c str)>,
    /// Connection of the other case, and of this case.
    pub ways: [&'c ConnectionWay; 2],
}

impl Comparable {
    /// Extracts what is needed to compare a case.
    pub(crate) fn new(details: &CaseDetails) -> Self {
        let result = &details.result;
        let side = details.additions.side.as_deref();
        let name = result.short_name();
        let own = side.and_then(|side| name.strip_suffix(&format!(" ({side})")));
        let lab = result.cli_name();
        let mut axes: BTreeMap<String, String> = if name == result.lab {
            BTreeMap::new()
        } else {
            parse_axes(own.unwrap_or(name))
        };
        axes.insert(KERNEL.to_owned(), result.kernel.clone());
        axes.extend(side.map(|side| (SIDE.to_owned(), side.to_owned())));
        Self {
            lab: lab.strip_suffix(name).unwrap_or(lab).to_owned(),
            axes,
            ways: ways(details),
        }
    }

    /// Returns the comparison of the case at an index.
    pub(crate) fn pair<'c>(all: &[&'c Self], index: usize) -> Option<Pairing<'c>> {
        let own = *all.get(index)?;
        let others = all.iter().enumerate();
        let others = others.filter(|(other, case)| *other != index && case.lab == own.lab);
        let pairings = others.filter_map(|(other, case)| {
            let axes = own.different_axes(case);
            let ways = own.comparable_ways(case, &axes)?;
            Some(Pairing { other, axes, ways })
        });
        pairings.min_by_key(|pairing| (pairing.axes.len(), pairing.other))
    }

    fn different_axes<'c>(&'c self, other: &'c Self) -> Vec<(&'c str, &'c str, &'c str)> {
        let value = |axes: &'c BTreeMap<String, String>, name: &str| {
            axes.get(name).map_or("none", String::as_str)
        };
        let mut names: Vec<&str> = self.axes.keys().map(String::as_str).collect();
        let added = other
            .axes
            .keys()
            .filter(|name| !self.axes.contains_key(*name));
        names.extend(added.map(String::as_str));
        let values = names
            .into_iter()
            .map(|name| (name, value(&other.axes, name), value(&self.axes, name)));
        values.filter(|(_, other, own)| other != own).collect()
    }

    /// Returns a connection of the other case, and one of this case: of the same probe and step, one
    /// failing and the other not. The sides of a comparison need not differ in that.
    fn comparable_ways<'c>(
        &'c self,
        other: &'c Self,
        axes: &[(&str, &str, &str)],
    ) -> Option<[&'c ConnectionWay; 2]> {
        let is_other_side = axes.iter().any(|(axis, ..)| *axis == SIDE);
        let pair = |own: &'c StepWay| {
            let mut same = other
                .ways
                .iter()
                .filter(|other| (&other.step, &other.way.probe) == (&own.step, &own.way.probe));
            let other = if own.is_failing {
                same.clone().find(|other| other.way.verdict.is_success())
            } else {
                None
            };
            let other = other.or_else(|| same.find(|_| is_other_side))?;
            Some([&other.way, &own.way])
        };
        self.ways.iter().find_map(pair)
    }
}

/// Parses the name of a case: `policy=Local,rpFilter=0`.
fn parse_axes(name: &str) -> BTreeMap<String, String> {
    let parts = name.split(',');
    let axes = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    axes.map(|(axis, value)| (axis.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the first failing and the first succeeding connection of each probe and step. The failing
/// ones come first.
fn ways(details: &CaseDetails) -> Vec<StepWay> {
    let mut known: Vec<(Option<&str>, &str, Verdict)> = Vec::new();
    let mut ways = Vec::new();
    for stage in &details.stages {
        for explained in &stage.connections {
            let ExplainedJourney {
                journey, failing, ..
            } = explained;
            let key = (stage.step.as_deref(), &*journey.probe, journey.verdict);
            if ways.len() == MAX_WAYS || known.contains(&key) {
                continue;
            }
            known.push(key);
            ways.push(StepWay {
                step: stage.step.clone(),
                is_failing: *failing,
                way: ConnectionWay::from(journey),
            });
        }
    }
    ways.sort_by_key(|way| !way.is_failing);
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_journey::journey::Journey;
    use svclab_runner::results::fixture;

    fn case(name: &str, kernel: &str, side: Option<&str>, verdict: Verdict) -> Comparable {
        let result = fixture::results().cases.swap_remove(0);
        let mut details = CaseDetails::new(&result, None, "svclab run");
        details.result.lab = "lab".to_owned();
        details.result.case = format!("lab/{name}");
        details.result.kernel = kernel.to_owned();
        details.additions.side = side.map(str::to_owned);
        let journey = Journey {
            probe: "call".to_owned(),
            number: 0,
            verdict,
            error: None,
            progress: None,
            addresses: None,
            from: "client".to_owned(),
            packets: Vec::new(),
        };
        details.stages = vec![crate::commands::explain::StageJourneys {
            step: None,
            connections: vec![ExplainedJourney {
                failing: !verdict.is_success(),
                conclusion: Vec::new(),
                facts: Vec::new(),
                journey,
            }],
            unmet: Vec::new(),
        }];
        Comparable::new(&details)
    }

    #[test]
    fn pair_selects_succeeding_case_with_fewest_different_axes() {
        let cases = [
            case("policy=Local,mode=ipvs", "6.12", None, Verdict::Timeout),
            case(
                "policy=Cluster,mode=iptables",
                "6.12",
                None,
                Verdict::Connected,
            ),
            case("policy=Cluster,mode=ipvs", "6.12", None, Verdict::Connected),
            case("policy=Local,mode=iptables", "6.12", None, Verdict::Reset),
        ];
        let all: Vec<&Comparable> = cases.iter().collect();
        let pairing = Comparable::pair(&all, 0).unwrap();
        assert_eq!(pairing.other, 2);
        assert_eq!(pairing.axes, [("policy", "Cluster", "Local")]);
        assert_eq!(pairing.ways[0].verdict, Verdict::Connected);
        assert_eq!(pairing.ways[1].verdict, Verdict::Timeout);
        // A case that succeeds is compared with no other.
        assert_eq!(Comparable::pair(&all, 1), None);
        assert_eq!(Comparable::pair(&all, 3).unwrap().other, 1);
    }

    #[test]
    fn pair_other_kernel_is_one_difference() {
        let cases = [
            case("mode=ipvs", "6.1", None, Verdict::Connected),
            case("mode=ipvs", "6.12", None, Verdict::Timeout),
        ];
        let all: Vec<&Comparable> = cases.iter().collect();
        let pairing = Comparable::pair(&all, 1).unwrap();
        assert_eq!(pairing.axes, [("kernel", "6.1", "6.12")]);
    }

    #[test]
    fn pair_sides_need_not_fail() {
        let case = |side: &str| {
            let name = format!("mode=ipvs ({side})");
            case(&name, "6.12", Some(side), Verdict::Connected)
        };
        let cases = [case("good"), case("bad")];
        let all: Vec<&Comparable> = cases.iter().collect();
        for (own, other) in [(0, 1), (1, 0)] {
            let pairing = Comparable::pair(&all, own).unwrap();
            assert_eq!(pairing.other, other);
            assert_eq!(pairing.axes.len(), 1, "{pairing:?}");
        }
    }

    #[test]
    fn pair_other_lab_is_not_compared() {
        let mut other = case("mode=ipvs", "6.1", None, Verdict::Connected);
        other.lab = "other/".to_owned();
        let own = case("mode=ipvs", "6.12", None, Verdict::Timeout);
        assert_eq!(Comparable::pair(&[&own, &other], 0), None);
    }
}
