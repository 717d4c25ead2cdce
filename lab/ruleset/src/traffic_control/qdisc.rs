//! Parses the output of `tc qdisc`.

use super::lines::{Item, Object, Syntax, split};
use super::words::{self, Options};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Line, Text, fields};
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
    /// Lines with more options: `queues:(0:1) (2:3)`.
    pub continued_options: Vec<Text>,
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
        let lines = std::iter::once(&self.options).chain(&self.continued_options);
        let lines = lines.filter(|line| !is_size_table(line));
        let mut all = lines.flat_map(|line| line.split_ascii_whitespace());
        while let Some(word) = all.next() {
            if VOLATILE_OPTIONS.contains(&word) {
                all.next();
            } else {
                words.push(word);
            }
        }
        words
    }

    /// Whether `tc -d` printed the queue: options are present that `tc` prints only with `-d`.
    #[must_use]
    pub fn has_details(&self) -> bool {
        self.size_table().is_some() || self.separated_options().has_details
    }

    fn separated_options(&self) -> Options {
        words::separate(&self.kind, &self.option_words())
    }

    /// Returns the line with the size table, which only `tc -d` prints.
    fn size_table(&self) -> Option<&Text> {
        let mut lines = self.continued_options.iter();
        lines.find(|line| is_size_table(line))
    }

    /// Renders the queue without its interface. Queues with the same effect give equal texts.
    #[must_use]
    pub fn canonical(&self) -> String {
        let table = self.size_table().into_iter();
        let table = table.flat_map(|line| line.split_ascii_whitespace());
        self.render(self.option_words().into_iter().chain(table))
    }

    /// Renders the queue like [`Qdisc::canonical`], without the options that `tc` prints only with
    /// `-d`.
    #[must_use]
    pub fn canonical_without_details(&self) -> String {
        let options = self.separated_options().plain;
        self.render(options.iter().map(String::as_str))
    }

    fn render<'w>(&'w self, options: impl Iterator<Item = &'w str>) -> String {
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
        words.chain(options).collect::<Vec<_>>().join(" ")
    }
}

/// Whether a line is the size table of a queue (iproute2 6.1, `tc/tc_stab.c`, `print_size_table`).
fn is_size_table(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.any(|word| word == "tsize")
}

/// Parses the output of `tc qdisc`, with or without `-d`, `-s` and `-o`. Lines that cannot be parsed
/// are added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Vec<Qdisc> {
    let mut qdiscs = Vec::new();
    let syntax = Syntax {
        is_head: |words| matches!(words, ["qdisc", ..]),
        has_kind_statistics: true,
    };
    for item in split(text, syntax) {
        match item {
            Item::Object(object) => match parse_qdisc(text, &object) {
                Some(qdisc) => qdiscs.push(qdisc),
                None => problems.push(unknown_line(object.head)),
            },
            Item::Unknown(range) => problems.push(unknown_line(range)),
            Item::Comment(_) => {}
        }
    }
    let has_more = |qdisc: &&Qdisc| {
        words::has_more_details(&qdisc.kind) && !qdisc.has_details() && &*qdisc.kind != "htb"
    };
    if let Some(qdisc) = qdiscs.iter().find(has_more) {
        problems.push(Problem::new(
            ProblemKind::NotPrinted {
                source_name: "tc qdisc",
                properties: "all options of this queue without `-d`",
                command: "tc -d qdisc",
            },
            qdisc.kind.range(),
        ));
    }
    qdiscs
}

fn parse_qdisc(text: &Text, object: &Object) -> Option<Qdisc> {
    let line = Line {
        text: &text[object.head.clone()],
        number: object.line,
        start: object.head.start,
        indented: false,
    };
    let mut words = fields(line);
    let mut next = || words.next();
    let (_, kind, handle) = (next()?, next()?, next()?);
    let (keyword, dev) = (next()?, next()?);
    if !handle.text.ends_with(':') || keyword.text != "dev" {
        return None;
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
    let continued = object.continued.iter();
    Some(Qdisc {
        kind: text.slice(kind.range()),
        handle: text.slice(handle.range()),
        dev: text.slice(dev.range()),
        options: text.slice(parent.end..line.end()),
        parent: text.slice(parent),
        continued_options: continued.map(|range| text.slice(range.clone())).collect(),
        line: line.number,
    })
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
        assert!(qdiscs[2].has_details() && !qdiscs[4].has_details());
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

    fn canonical_texts(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let qdiscs = parse(&Text::new(text), &mut problems);
        problems.retain(|problem| !matches!(problem.kind, ProblemKind::NotPrinted { .. }));
        assert_eq!(problems, []);
        qdiscs
            .iter()
            .map(Qdisc::canonical_without_details)
            .collect()
    }

    #[test]
    fn parse_tc_output_with_all_options_is_equal() {
        // Outputs of iproute2 6.1 for one state.
        let plain = "\
qdisc htb 1: dev d1 root refcnt 5 r2q 10 default 0x10 direct_packets_stat 0 direct_qlen 1000
qdisc clsact ffff: dev d1 parent ffff:fff1 
qdisc tbf 9: dev e1 root refcnt 3 rate 10Mbit burst 10Kb peakrate 20Mbit minburst 2007b lat 50ms overhead 10 
";
        let details = "\
qdisc htb 1: dev d1 root refcnt 5 r2q 10 default 0x10 direct_packets_stat 0 ver 3.17 direct_qlen 1000
 Sent 340 bytes 4 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
qdisc clsact ffff: dev d1 parent ffff:fff1 
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
qdisc tbf 9: dev e1 root refcnt 3 rate 10Mbit burst 10Kb/1 mpu 64b peakrate 20Mbit mtu 2007b/1 mpu 64b lat 50ms overhead 10 linklayer ethernet 
 Sent 90 bytes 1 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
";
        let one_line = |text: &str| text.replace('\n', "\\");
        let expected = canonical_texts(plain);
        assert_eq!(expected.len(), 3);
        for text in [details, &one_line(plain), &one_line(details)] {
            assert_eq!(canonical_texts(text), expected, "{text}");
        }
    }

    #[test]
    fn parse_options_on_several_lines_are_compared() {
        // Formats of iproute2 6.1: `tc/q_mqprio.c`, `tc/q_taprio.c`, `tc/q_gred.c`, `tc/tc_stab.c`.
        let text = "\
qdisc mqprio 8001: dev v root tc 2 map 0 1 1 1 
             queues:(0:1) (2:3) 
             mode:channel
             shaper:bw_rlimit   min_rate:1Gbit 2Gbit   max_rate:3Gbit 4Gbit 
qdisc taprio 100: dev w root refcnt 9 tc 2 map 0 1 1 1
queues offset 0 count 1 offset 1 count 1
clockid TAI\tbase-time 0 cycle-time 600000 cycle-time-extension 0
\tindex 0 cmd S gatemask 0x1 interval 300000
\tindex 1 cmd S gatemask 0x2 interval 300000
qdisc gred 8002: dev x root refcnt 2 vqs 2 default 1 
 vq 0 prio 1 limit 60Kb min 15Kb max 45Kb 
  Queue size: average 5b current 6b 
  Dropped packets: forced 1 early 2 pdrop 3 other 4 
  Total packets: 7 (8b) 
 Sent 10 bytes 1 pkt (dropped 0, overlimits 0 requeues 0) 
";
        let expected = canonical_texts(text);
        insta::assert_snapshot!(expected.join("\n"), @r"
        mqprio root tc 2 map 0 1 1 1 queues:(0:1) (2:3) mode:channel shaper:bw_rlimit min_rate:1Gbit 2Gbit max_rate:3Gbit 4Gbit
        taprio 100: root tc 2 map 0 1 1 1 queues offset 0 count 1 offset 1 count 1 clockid TAI base-time 0 cycle-time 600000 cycle-time-extension 0 index 0 cmd S gatemask 0x1 interval 300000 index 1 cmd S gatemask 0x2 interval 300000
        gred root vqs 2 default 1 vq 0 prio 1 limit 60Kb min 15Kb max 45Kb
        ");
        for (from, to) in [
            ("(0:1)", "(0:3)"),
            ("max_rate:3", "max_rate:1"),
            ("count 1 offset", "count 2 offset"),
            ("base-time 0", "base-time 1"),
            ("gatemask 0x2", "gatemask 0x3"),
            ("limit 60Kb", "limit 50Kb"),
        ] {
            assert_ne!(canonical_texts(&text.replace(from, to)), expected, "{to}");
        }
        for (from, to) in [("current 6b", "current 7b"), ("Sent 10", "Sent 11")] {
            assert_eq!(canonical_texts(&text.replace(from, to)), expected, "{to}");
        }
    }

    #[test]
    fn parse_lines_of_other_programs_reports_positions() {
        let text = "  limit 5\nqdisc noqueue 0: dev lo root\n Sent 0 bytes 0 pkt\n--More--\n";
        let mut problems = Vec::new();
        assert_eq!(parse(&Text::new(text), &mut problems).len(), 1);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(places, ["limit 5", "--More--"]);
    }
}
