//! In what the rules differ that were written on both sides, by what they mean.

use crate::dump::node::File;
use crate::dump::{Difference, Format, NodeDump, compare};
use crate::evidence::Evidence;
use crate::report::node_rules::read_back;

/// What differs on a node; nothing where one side's cannot be read.
#[must_use]
pub fn differing_rules(node: &str, against: &Evidence, new: &Evidence) -> Vec<Difference> {
    compare(&dump(node, against), &dump(node, new))
}

fn dump(node: &str, evidence: &Evidence) -> NodeDump {
    let files = read_back(evidence, node);
    let files = files.into_iter().map(|(name, text)| File {
        name: name.to_owned(),
        format: Format::of_name(name),
        text,
    });
    NodeDump::read(files.collect()).dump
}
