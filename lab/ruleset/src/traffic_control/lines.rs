//! Groups the lines of `tc` into objects, and removes the statistics that `tc -s` prints.

use std::ops::Range;

use crate::text::{Line, Text, lines, one_line_parts};

/// Object with its lines.
pub(super) struct Object {
    /// Range of the first line.
    pub(super) head: Range<usize>,
    /// Ranges of the lines that continue the object.
    pub(super) continued: Vec<Range<usize>>,
    /// Number of the first line, from 1.
    pub(super) line: u32,
}

impl Object {
    /// Returns the lines, with single spaces between words.
    pub(super) fn lines(&self, text: &Text) -> Vec<String> {
        let ranges = std::iter::once(&self.head).chain(&self.continued);
        let lines = ranges.map(|range| {
            let words = text[range.clone()].split_ascii_whitespace();
            words.collect::<Vec<_>>().join(" ")
        });
        lines.collect()
    }
}

/// Line of an output of `tc`.
pub(super) enum Item {
    /// Object with the lines that continue it.
    Object(Object),
    /// Words of a comment.
    Comment(String),
    /// Line that is not output of `tc`.
    Unknown(Range<usize>),
}

/// First words of statistics that are not indented (iproute2 6.19, `tc/q_dualpi2.c`,
/// `dualpi2_print_xstats`).
const STATISTICS: [&str; 5] = ["prob", "pkts_in_c", "ecn_mark", "credit", "memory_used"];

/// First words of options that are not indented (iproute2 6.1, `tc/q_taprio.c`,
/// `taprio_print_opt`).
const OPTIONS: [&str; 4] = ["queues", "clockid", "flags", "base-time"];

/// Starts of lines with statistics among the lines of the options (iproute2 6.1, `tc/q_gred.c`,
/// `gred_print_stats`; `tc/q_sfq.c`, `sfq_print_opt`; `tc/m_action.c`, `tc_print_one_action`).
const INNER_STATISTICS: [&str; 7] = [
    "Queue size: ",
    "Dropped packets: ",
    "Marked packets: ",
    "Total packets: ",
    "prob_mark ",
    "forced_mark ",
    "Action statistics:",
];

/// Lines of one kind of objects.
#[derive(Clone, Copy)]
pub(super) struct Syntax {
    /// Whether the words of a line start an object.
    pub(super) is_head: fn(&[&str]) -> bool,
    /// Whether statistics of the kind of the object follow the number of sent bytes, up to the next
    /// object.
    pub(super) has_kind_statistics: bool,
}

/// Splits an output of `tc` into objects. `tc -o` prints several objects in one line.
pub(super) fn split(text: &Text, syntax: Syntax) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut has_statistics = false;
    for line in lines(text).flat_map(split_line) {
        let words: Vec<&str> = line.text.split_ascii_whitespace().collect();
        let Some(first) = words.first() else {
            continue;
        };
        let range = line.start..line.end();
        if first.starts_with('#') {
            items.push(Item::Comment(words.join(" ")));
            continue;
        }
        if (syntax.is_head)(&words) {
            has_statistics = false;
            items.push(Item::Object(Object {
                head: range,
                continued: Vec::new(),
                line: line.number,
            }));
            continue;
        }
        let Some(Item::Object(object)) = items.last_mut() else {
            items.push(Item::Unknown(range));
            continue;
        };
        if is_sent(&words) {
            has_statistics = syntax.has_kind_statistics;
        } else if has_statistics && (line.indented || STATISTICS.contains(first)) {
            // Statistics of the kind.
        } else if is_counted(&line, &words) {
            // Statistics of an action.
        } else if line.indented || OPTIONS.contains(first) {
            object.continued.push(range);
        } else {
            items.push(Item::Unknown(range));
        }
    }
    items
}

/// Splits a line of `tc -o`, except for a comment.
fn split_line(line: Line<'_>) -> Vec<Line<'_>> {
    if line.text.starts_with('#') {
        vec![line]
    } else {
        one_line_parts(line).collect()
    }
}

/// Whether a line starts the statistics: `Sent 0 bytes 0 pkt …` (iproute2 6.1, `tc/tc_util.c`,
/// `print_tcstats2_attr`).
fn is_sent(words: &[&str]) -> bool {
    matches!(
        words,
        ["Sent", "software" | "hardware", ..] | ["Sent", _, "bytes", ..]
    )
}

/// Whether a line has only statistics.
fn is_counted(line: &Line<'_>, words: &[&str]) -> bool {
    let is_rate = |first: &&str| *first == "rate" && words.iter().any(|word| word.ends_with("pps"));
    INNER_STATISTICS
        .iter()
        .any(|start| line.text.starts_with(start))
        || matches!(words, ["backlog", _, _, "requeues", _])
        || words.first().is_some_and(is_rate)
}
