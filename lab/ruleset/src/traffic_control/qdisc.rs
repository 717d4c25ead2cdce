//! Parses the output of `tc qdisc`.

use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Text, fields, lines};
use crate::tool::Format;

/// Queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// Kind as the kernel names it: `fq_codel`, `netem`.
    pub kind: Text,
    /// Handle: `8001:`. It is `0:` for a default queue.
    pub handle: Text,
    /// Name of the interface.
    pub dev: Text,
    /// Position: `root`, `ingress`, or `parent` with a class.
    pub parent: Text,
    /// Text after the position: `refcnt 2 limit 1000 loss 10%`.
    pub options: Text,
    /// Line number, from 1.
    pub line: u32,
}

/// Options whose values count, identify or are random, and their values.
const VOLATILE_OPTIONS: [&str; 5] = [
    "refcnt",
    "direct_packets_stat",
    "direct_qlen",
    "ver",
    "seed",
];

/// First major number of handles that the kernel allocates itself (Linux v6.12,
/// `net/sched/sch_api.c`, `qdisc_alloc_handle`).
const FIRST_ALLOCATED: u32 = 0x8000;

impl Qdisc {
    /// Whether the queue belongs to the interface itself, and not to a class of another queue.
    #[must_use]
    pub fn is_root(&self) -> bool {
        &*self.parent == "root"
    }

    /// Whether the queue holds filters for received or sent packets, and queues nothing.
    #[must_use]
    pub fn is_filter_hook(&self) -> bool {
        matches!(&*self.kind, "ingress" | "clsact")
    }

    /// Returns the words of the options without those that count or identify.
    #[must_use]
    pub fn option_words(&self) -> Vec<&str> {
        let mut words = Vec::new();
        let mut all = self.options.split_ascii_whitespace();
        while let Some(word) = all.next() {
            if VOLATILE_OPTIONS.contains(&word) {
                all.next();
            } else {
                words.push(word);
            }
        }
        words
    }

    /// Renders the queue without its interface. Queues with the same effect give equal texts.
    #[must_use]
    pub fn canonical(&self) -> String {
        let major = self.handle.trim_end_matches(':');
        let is_allocated =
            u32::from_str_radix(major, 16).is_ok_and(|major| major >= FIRST_ALLOCATED);
        let handle = if is_allocated && !self.is_filter_hook() {
            ""
        } else {
            &*self.handle
        };
        let words = [&*self.kind, handle, &*self.parent].into_iter();
        let words = words.filter(|word| !word.is_empty());
        words
            .chain(self.option_words())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Parses the output of `tc qdisc`, with or without `-d`. Lines that cannot be parsed are added to
/// `problems`. Indented lines are statistics of `-s`, or tables of the queue.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Vec<Qdisc> {
    let mut qdiscs = Vec::new();
    for line in lines(text).filter(|line| !line.indented && !line.text.starts_with('#')) {
        let mut words = fields(line);
        let mut next = || words.next();
        let (Some(object), Some(kind), Some(handle)) = (next(), next(), next()) else {
            problems.push(unknown_line(line.start..line.end()));
            continue;
        };
        let (Some(keyword), Some(dev)) = (next(), next()) else {
            problems.push(unknown_line(line.start..line.end()));
            continue;
        };
        let is_qdisc =
            object.text == "qdisc" && handle.text.ends_with(':') && keyword.text == "dev";
        if !is_qdisc {
            problems.push(unknown_line(line.start..line.end()));
            continue;
        }
        // `tc` marks queues in hardware.
        let mut position = next();
        if position.is_some_and(|word| word.text == "offloaded") {
            position = next();
        }
        let mut parent = position.map_or(line.end()..line.end(), |word| word.range());
        if &text[parent.clone()] == "parent"
            && let Some(class) = next()
        {
            parent.end = class.range().end;
        }
        qdiscs.push(Qdisc {
            kind: text.slice(kind.range()),
            handle: text.slice(handle.range()),
            dev: text.slice(dev.range()),
            options: text.slice(parent.end..line.end()),
            parent: text.slice(parent),
            line: line.number,
        });
    }
    qdiscs
}

fn unknown_line(range: std::ops::Range<usize>) -> Problem {
    Problem::new(ProblemKind::UnknownLine(Format::Qdiscs), range)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `tc -s -d qdisc` of iproute2 6.1.
    const TEXT: &str = "\
qdisc noqueue 0: dev lo root refcnt 2 
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) 
qdisc htb 1: dev d1 root refcnt 3 r2q 10 default 0x10 direct_packets_stat 0 ver 3.17 direct_qlen 1000
qdisc tbf 8002: dev d0 root refcnt 3 rate 1Mbit burst 4Kb/1 mpu 0b lat 400ms linklayer ethernet 
qdisc clsact ffff: dev d0 parent ffff:fff1 
qdisc fq_codel 0: dev eth0 parent :1 limit 10240p flows 1024 
qdisc netem 8003: dev eth1 root refcnt 2 limit 1000 loss 10% seed 123
";

    #[test]
    fn parse_tc_output_returns_queues() {
        let mut problems = Vec::new();
        let qdiscs = parse(&Text::new(TEXT), &mut problems);
        assert_eq!(problems, []);
        let texts: Vec<String> = qdiscs
            .iter()
            .map(|qdisc| format!("{}: {}", qdisc.dev, qdisc.canonical()))
            .collect();
        insta::assert_snapshot!(texts.join("\n"), @r"
        lo: noqueue 0: root
        d1: htb 1: root r2q 10 default 0x10
        d0: tbf root rate 1Mbit burst 4Kb/1 mpu 0b lat 400ms linklayer ethernet
        d0: clsact ffff: parent ffff:fff1
        eth0: fq_codel 0: parent :1 limit 10240p flows 1024
        eth1: netem root limit 1000 loss 10%
        ");
        assert!(qdiscs[0].is_root() && !qdiscs[4].is_root());
        assert!(qdiscs[3].is_filter_hook());
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let text =
            "qdisc noqueue 0: dev lo root\nqdisc noqueue 0 dev lo root\nclass htb 1: dev\nqdisc\n";
        let mut problems = Vec::new();
        assert_eq!(parse(&Text::new(text), &mut problems).len(), 1);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(
            places,
            ["qdisc noqueue 0 dev lo root", "class htb 1: dev", "qdisc"]
        );
    }
}
