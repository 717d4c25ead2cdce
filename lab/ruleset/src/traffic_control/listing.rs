//! Parses the outputs of `tc class` and `tc filter`. A comment with the command precedes the output
//! for each interface, because the output does not name the interface.

use std::ops::Range;

use indexmap::IndexMap;

use super::lines::{Item as Part, Object, Syntax, split};
use super::words;
use crate::text::Text;
use crate::text::problem::{Problem, ProblemKind};
use crate::tool::Format;

/// Classes or filters by place, in printed order. A place is an interface with a hook or a parent:
/// `eth0 ingress`, `eth0 parent 1:`. It is empty for output without a comment.
pub type Listings = IndexMap<String, Vec<Item>>;

/// Class or filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Lines of the item, joined by spaces, without statistics.
    pub text: String,
    /// Lines of the item, without statistics.
    lines: Vec<String>,
    /// Line number of the first line, from 1.
    pub line: u32,
}

/// Words whose next word counts or identifies, or is a time of an eBPF program (iproute2 6.1,
/// `lib/bpf_legacy.c`, `bpf_dump_prog_info`).
const VOLATILE_WORDS: [&str; 7] = [
    "fh",
    "index",
    "ref",
    "bind",
    "load_time",
    "created_by_uid",
    "btf_id",
];

/// Words before a number of seconds since an event of an action (iproute2 6.1, `tc/tc_util.c`,
/// `print_tm`).
const TIMES: [&str; 4] = ["installed", "used", "firstused", "expires"];

/// Protocols of filters, with the numbers that `tc -N` prints (iproute2 6.1, `lib/ll_proto.c`).
const PROTOCOLS: [(&str, &str); 8] = [
    ("[3]", "all"),
    ("[2048]", "ip"),
    ("[2054]", "arp"),
    ("[33024]", "802.1Q"),
    ("[34525]", "ipv6"),
    ("[34887]", "mpls_uc"),
    ("[34888]", "mpls_mc"),
    ("[34984]", "802.1ad"),
];

/// Start of a line with a match of a u32 filter.
const MATCH: &str = "match ";

impl Item {
    /// Renders the item without its handle and counters.
    #[must_use]
    pub fn canonical(&self) -> String {
        self.render(|_| true)
    }

    /// Renders the item like [`Item::canonical`], without the matches of u32 filters.
    #[must_use]
    pub fn canonical_without_matches(&self) -> String {
        self.render(|line| !line.starts_with(MATCH))
    }

    /// Renders the item like [`Item::canonical`], without the options that `tc` prints only with
    /// `-d`.
    #[must_use]
    pub fn canonical_without_details(&self) -> String {
        let text = self.canonical();
        let words: Vec<&str> = text.split(' ').collect();
        words::separate(self.kind(), &words).plain.join(" ")
    }

    /// Whether `tc -d` printed the class: options are present that `tc` prints only with `-d`.
    #[must_use]
    pub fn has_details(&self) -> bool {
        let words: Vec<&str> = self.text.split(' ').collect();
        words::separate(self.kind(), &words).has_details
    }

    /// Whether `tc -p` printed matches of a u32 filter by the names of their fields. It prints only
    /// some of the matches (iproute2 6.1, `tc/f_u32.c`, `print_ipv4` and `print_ipv6`).
    #[must_use]
    pub fn has_named_matches(&self) -> bool {
        let mut matches = self
            .lines
            .iter()
            .filter_map(|line| line.strip_prefix(MATCH));
        matches.any(|rest| {
            let value = rest.split_once('/').map(|(value, _)| value);
            value.is_none_or(|value| u32::from_str_radix(value, 16).is_err())
        })
    }

    /// Returns the kind of a class: `htb`.
    fn kind(&self) -> &str {
        self.text.split(' ').nth(1).unwrap_or_default()
    }

    fn render(&self, is_wanted: fn(&str) -> bool) -> String {
        let lines = self.lines.iter().filter(|line| is_wanted(line));
        let words: Vec<&str> = lines.flat_map(|line| line.split(' ')).collect();
        let mut rest = words.as_slice();
        let mut kept = Vec::new();
        while let [word, after @ ..] = rest {
            rest = match after {
                [_, after @ ..] if VOLATILE_WORDS.contains(word) => after,
                [_, "sec", after @ ..] if TIMES.contains(word) => after,
                // Identifier of an eBPF program.
                [_, "name" | "tag" | "jited", ..] if *word == "id" => &after[1..],
                [_, ..] if matches!(*word, "(rule" | "(success") => {
                    let end = after.iter().position(|word| word.ends_with(')'));
                    end.map_or(&[][..], |end| &after[end + 1..])
                }
                // Index of a policer.
                [index, after @ ..] if *word == "police" && index.starts_with("0x") => {
                    kept.push(*word);
                    after
                }
                [number, after @ ..] if *word == "protocol" && number.starts_with('[') => {
                    let name = PROTOCOLS.iter().find(|(known, _)| known == number);
                    kept.extend([*word, name.map_or(*number, |(_, name)| *name)]);
                    after
                }
                _ => {
                    kept.push(*word);
                    after
                }
            };
        }
        kept.join(" ")
    }
}

/// Parses the output of `tc class` for several interfaces. Lines that cannot be parsed are added to
/// `problems`.
#[must_use]
pub fn parse_classes(text: &Text, problems: &mut Vec<Problem>) -> Listings {
    let syntax = Syntax {
        is_head: |words| matches!(words, ["class", _, id, ..] if id.contains(':')),
        has_kind_statistics: true,
    };
    let listings = parse(text, syntax, Format::TrafficClasses, problems);
    let lacks_details = |item: &&Item| words::has_more_details(item.kind()) && !item.has_details();
    let warning = ProblemKind::NotPrinted {
        source_name: "tc class",
        properties: "all options of this class without `-d`",
        command: "tc -d class show dev DEVICE",
    };
    problems.extend(warn_about(text, &listings, lacks_details, warning));
    listings
}

/// Parses the output of `tc filter` for several interfaces. Kinds of filters print different texts,
/// so each indented line is part of a filter. Other lines are added to `problems`.
#[must_use]
pub fn parse_filters(text: &Text, problems: &mut Vec<Problem>) -> Listings {
    let syntax = Syntax {
        is_head: |words| matches!(words, ["filter" | "chain", _, ..]),
        has_kind_statistics: false,
    };
    let listings = parse(text, syntax, Format::TrafficFilters, problems);
    let warning = ProblemKind::NotPrinted {
        source_name: "tc -p filter",
        properties: "all matches of u32 filters",
        command: "tc filter show dev DEVICE",
    };
    let has_named = |item: &&Item| item.has_named_matches();
    problems.extend(warn_about(text, &listings, has_named, warning));
    listings
}

/// Returns a warning about the first item with a property.
fn warn_about(
    text: &Text,
    listings: &Listings,
    has_property: impl Fn(&&Item) -> bool,
    warning: ProblemKind,
) -> Option<Problem> {
    let item = listings.values().flatten().find(has_property)?;
    let line = crate::text::lines(text).find(|line| line.number == item.line)?;
    Some(Problem::new(warning, line.start..line.end()))
}

fn parse(text: &Text, syntax: Syntax, format: Format, problems: &mut Vec<Problem>) -> Listings {
    let unknown_line = |range: Range<usize>| Problem::new(ProblemKind::UnknownLine(format), range);
    let mut listings = Listings::new();
    let mut place = String::new();
    for part in split(text, syntax) {
        match part {
            Part::Comment(comment) => {
                if comment.starts_with("# tc ") {
                    let words = comment.split(' ').skip_while(|word| *word != "dev").skip(1);
                    place = words.collect::<Vec<_>>().join(" ");
                }
            }
            Part::Object(object) => {
                let items: &mut Vec<Item> = listings.entry(place.clone()).or_default();
                items.push(item(text, &object));
            }
            Part::Unknown(range) => problems.push(unknown_line(range)),
        }
    }
    listings
}

fn item(text: &Text, object: &Object) -> Item {
    let lines = object.lines(text);
    Item {
        text: lines.join(" "),
        lines,
        line: object.line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_filters_joins_lines_of_each_place() {
        // Output of `tc -d filter` of iproute2 6.1, as `scripts/collect-node` writes it.
        let text = "\
# tc filter show dev d0 egress
filter protocol ip pref 1 u32 chain 0 
filter protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 terminal flowid not_in_hw 
  match 0a000001/ffffffff at 16
	action order 1: mirred (Egress Redirect to device d1) stolen
	index 1 ref 1 bind 1

# tc filter show dev d1 parent 1:
filter protocol ip pref 1 u32 chain 0 fh 800: ht divisor 1 
";
        let mut problems = Vec::new();
        let listings = parse_filters(&Text::new(text), &mut problems);
        assert_eq!(problems, []);
        let lines = listings.iter().flat_map(|(place, items)| {
            items
                .iter()
                .map(move |item| format!("{place}, line {}: {}", item.line, item.canonical()))
        });
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
        d0 egress, line 2: filter protocol ip pref 1 u32 chain 0
        d0 egress, line 3: filter protocol ip pref 1 u32 chain 0 order 2048 key ht 800 bkt 0 terminal flowid not_in_hw match 0a000001/ffffffff at 16 action order 1: mirred (Egress Redirect to device d1) stolen
        d1 parent 1:, line 9: filter protocol ip pref 1 u32 chain 0 ht divisor 1
        ");
    }

    type Parser = fn(&Text, &mut Vec<Problem>) -> Listings;

    /// Parses a text. Returns its items, and whether it has a warning.
    fn parse_valid(parser: Parser, text: &str) -> (Vec<Item>, bool) {
        let mut problems = Vec::new();
        let listings = parser(&Text::new(text), &mut problems);
        let is_warning = |problem: &Problem| matches!(problem.kind, ProblemKind::NotPrinted { .. });
        assert!(problems.iter().all(is_warning), "{problems:?}");
        (
            listings.into_values().flatten().collect(),
            !problems.is_empty(),
        )
    }

    #[test]
    fn parse_classes_with_all_options_is_equal() {
        // Outputs of iproute2 6.1 for one state.
        let plain = "\
class htb 1:10 root prio 3 rate 1Mbit ceil 2Mbit burst 1600b cburst 1600b 
class htb 1:20 root prio 0 rate 3Mbit overhead 10 ceil 3Mbit burst 1599b cburst 1599b 
";
        let details = "\
class htb 1:10 root prio 3 quantum 12500 rate 1Mbit ceil 2Mbit linklayer ethernet burst 1600b/1 mpu 0b cburst 1600b/1 mpu 0b level 0 
 Sent 340 bytes 4 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
 lended: 4 borrowed: 0 giants: 0
 tokens: 188750 ctokens: 94375

class htb 1:20 root prio 0 quantum 37500 rate 3Mbit overhead 10 ceil 3Mbit linklayer ethernet burst 1599b/1 mpu 64b cburst 1599b/1 mpu 64b level 0 
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
 lended: 0 borrowed: 0 giants: 0
 tokens: 66000 ctokens: 66000

";
        let texts = |text: &str| -> Vec<String> {
            let (items, _) = parse_valid(parse_classes, text);
            items.iter().map(Item::canonical_without_details).collect()
        };
        assert_eq!(texts(plain).len(), 2);
        assert_eq!(texts(plain), texts(details));
        let one_line = details.replace("requeues 0) \n", "requeues 0) \\");
        assert_eq!(texts(plain), texts(&one_line));
        assert!(parse_valid(parse_classes, plain).1);
        let (items, has_warning) = parse_valid(parse_classes, details);
        assert!(items[0].has_details() && !has_warning);
        let later = details.replace("340", "990").replace("188750", "1");
        assert_eq!(
            parse_valid(parse_classes, &later).0[0].canonical(),
            items[0].canonical()
        );
        assert_ne!(texts(&details.replace("prio 3", "prio 4")), texts(details));
    }

    #[test]
    fn parse_filters_with_all_options_is_equal() {
        // Outputs of iproute2 6.1, and formats of `tc/f_u32.c`, `tc/m_action.c` and `tc/f_bpf.c`.
        let plain = "\
filter protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:20 not_in_hw 
  match 0a000001/ffffffff at 12
  match 00000050/0000ffff at 20
\taction order 1:  police 0x1 rate 1Mbit burst 10Kb mtu 2Kb action drop overhead 0b 
\tref 1 bind 1 

\taction order 2: gact action pass
\t random type none pass val 0
\t index 1 ref 1 bind 1
filter protocol all pref 2 bpf chain 0 handle 0x1 from-netdev:[12] direct-action not_in_hw id 44 name cil tag 0011223344556677 jited 
";
        let statistics = "\
filter protocol [2048] pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:20 not_in_hw  (rule hit 7 success 5)
  match 0a000001/ffffffff at 12 (success 6 ) 
  match 00000050/0000ffff at 20 (success 5 ) 
\taction order 1:  police 0x5 rate 1Mbit burst 10Kb mtu 2Kb action drop overhead 0b 
\tref 1 bind 1  installed 9 sec used 3 sec firstused 5 sec
\tAction statistics:
\tSent 50 bytes 5 pkt (dropped 0, overlimits 0 requeues 0) 
\tbacklog 0b 0p requeues 0

\taction order 2: gact action pass
\t random type none pass val 0
\t index 7 ref 2 bind 1 installed 9 sec used 9 sec
\tAction statistics:
\tSent 50 bytes 5 pkt (dropped 0, overlimits 0 requeues 0) 
\tbacklog 0b 0p requeues 0
filter protocol [3] pref 2 bpf chain 0 handle 0x1 from-netdev:[12] direct-action not_in_hw id 55 name cil tag 0011223344556677 jited load_time 123 created_by_uid 0 btf_id 9 
 Sent 50 bytes 5 pkt (dropped 0, overlimits 0 requeues 0) 
 backlog 0b 0p requeues 0
";
        let texts = |text: &str| -> Vec<String> {
            let (items, has_warning) = parse_valid(parse_filters, text);
            assert!(!has_warning);
            items.iter().map(Item::canonical).collect()
        };
        assert_eq!(texts(plain), texts(statistics));
        assert_eq!(texts(plain), texts(&plain.replace('\n', "\\")));
        for (from, to) in [
            ("0a000001/", "0a000002/"),
            ("rate 1Mbit", "rate 2Mbit"),
            ("gact action pass", "gact action drop"),
            ("tag 00", "tag 01"),
            ("protocol ip", "protocol ipv6"),
        ] {
            assert_ne!(texts(&plain.replace(from, to)), texts(statistics), "{to}");
        }
    }

    #[test]
    fn parse_filters_named_matches_are_reported() {
        let head = "filter protocol ip pref 1 u32 chain 0 fh 800::800 *flowid 1:20 not_in_hw";
        let raw = format!("{head}\n  match 0a000001/ffffffff at 12\n");
        let named = format!("{head}\n  match IP src 10.0.0.1/32match dport 80\n");
        let [(raw, raw_warning), (named, named_warning)] =
            [&raw, &named].map(|text| parse_valid(parse_filters, text));
        assert!(!raw_warning && named_warning && named[0].has_named_matches());
        assert_eq!(
            raw[0].canonical_without_matches(),
            named[0].canonical_without_matches()
        );
    }

    #[test]
    fn parse_listings_lines_of_other_programs_are_problems() {
        let text = "class htb 1:10 root\n Sent 0 bytes 0 pkt\n lended: 4\n--More--\ncommand exited 1\n+---(1:)\n";
        let mut problems = Vec::new();
        let _ = parse_classes(&Text::new(text), &mut problems);
        let places: Vec<&str> = problems
            .iter()
            .filter(|problem| matches!(problem.kind, ProblemKind::UnknownLine(_)))
            .map(|p| &text[p.range.clone()])
            .collect();
        assert_eq!(places, ["--More--", "command exited 1", "+---(1:)"]);
    }
}
