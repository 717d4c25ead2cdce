//! Compares by meaning the rules that were read back from a node on both sides.

use std::collections::BTreeSet;

use svclab_dump::node::File;
use svclab_dump::{Difference, NodeDump, compare};
use svclab_model::evidence::StageEvidence;
use svclab_planner::node_rules::read_back;
use svclab_ruleset::tool::Format;

/// Returns the differences on a node. A side whose rules cannot be parsed yields none.
pub(super) fn differing_rules(
    node: &str,
    against: &StageEvidence,
    new: &StageEvidence,
) -> Vec<Difference> {
    compare(&dump(node, against), &dump(node, new))
}

/// Returns the differences of `now` that are not in `before`, regardless of their line numbers.
pub(super) fn new_differences(before: &[Difference], now: Vec<Difference>) -> Vec<Difference> {
    let earlier: BTreeSet<String> = before.iter().map(ToString::to_string).collect();
    let mut now = now;
    now.retain(|difference| !earlier.contains(&difference.to_string()));
    now
}

fn dump(node: &str, evidence: &StageEvidence) -> NodeDump {
    let files = read_back(evidence, node);
    let files = files.into_iter().map(|(name, text)| File {
        name: name.to_owned(),
        format: Format::from_file_name(name),
        text,
    });
    NodeDump::parse(files.collect()).dump
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_dump::{DumpChange, DumpLocation, Side};

    fn only(item: &str, line: u32) -> Difference {
        Difference {
            location: DumpLocation::Sysctls,
            change: DumpChange::Item {
                only: Side::First,
                item: item.to_owned(),
                line,
            },
            owner: None,
            repeated_in: None,
        }
    }

    #[test]
    fn new_differences_excludes_earlier_ones() {
        let found = new_differences(&[only("a", 3)], vec![only("a", 5), only("b", 6)]);
        assert_eq!(found, [only("b", 6)]);
        assert_eq!(new_differences(&[only("a", 3)], Vec::new()), []);
    }
}
