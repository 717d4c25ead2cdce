//! Parses the output of `ip rule`: the rules that select a routing table.

use super::names;
use crate::Family;
use crate::text::attributes::{Attributes, Grammar, ValueKind};
use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Line, Text, fields, lines};
use crate::tool::Format;

/// Routing rule as `ip rule` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    /// Priority. The kernel evaluates rules with low numbers first.
    pub priority: u32,
    /// Whether the rule matches all packets that do *not* fulfil the conditions.
    pub inverted: bool,
    /// `from`, `to`, `fwmark`, `iif`, `lookup`, …
    pub attributes: Attributes,
    /// Text of the rule as printed.
    pub source_text: Text,
    /// Line number, from 1.
    pub line: u32,
}

/// Attributes of a rule (iproute2 6.1, `ip/iprule.c`).
const RULE: Grammar = &[
    ("from", ValueKind::Word),
    ("to", ValueKind::Word),
    ("tos", ValueKind::Word),
    ("dsfield", ValueKind::Word),
    ("fwmark", ValueKind::Word),
    ("iif", ValueKind::Word),
    ("oif", ValueKind::Word),
    ("uidrange", ValueKind::Word),
    ("ipproto", ValueKind::Word),
    ("sport", ValueKind::Word),
    ("dport", ValueKind::Word),
    ("tun_id", ValueKind::Word),
    ("lookup", ValueKind::Word),
    ("table", ValueKind::Word),
    ("suppress_prefixlength", ValueKind::Number),
    ("suppress_ifgroup", ValueKind::Word),
    ("realms", ValueKind::Word),
    ("goto", ValueKind::Word),
    ("map-to", ValueKind::Word),
    ("proto", ValueKind::Word),
    ("protocol", ValueKind::Word),
    ("masquerade", ValueKind::None),
    ("blackhole", ValueKind::None),
    ("unreachable", ValueKind::None),
    ("prohibit", ValueKind::None),
    // `ip -N` prints the numbers of the actions.
    ("6", ValueKind::None),
    ("7", ValueKind::None),
    ("8", ValueKind::None),
    ("nop", ValueKind::None),
    ("[detached]", ValueKind::None),
    ("[unresolved]", ValueKind::None),
    ("[l3mdev-table]", ValueKind::None),
];

/// Attributes that `ip` prints only with `-d`.
const DEFAULTS: [(&str, &str); 2] = [("proto", "kernel"), ("proto", "unspec")];

/// Parses the output of `ip rule`. Lines that cannot be parsed are skipped and added to `problems`.
#[must_use]
pub fn parse(text: &Text, ip: Family, problems: &mut Vec<Problem>) -> Vec<PolicyRule> {
    let mut rules = Vec::new();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        match parse_rule(text, ip, line) {
            Ok(rule) => rules.push(rule),
            Err(problem) => problems.push(problem),
        }
    }
    rules
}

fn parse_rule(text: &Text, ip: Family, line: Line<'_>) -> Result<PolicyRule, Problem> {
    let line_problem = || {
        Problem::new(
            ProblemKind::UnknownLine(Format::RoutingRules(ip)),
            line.start..line.end(),
        )
    };
    let mut words = fields(line).peekable();
    let first = words.next().ok_or_else(line_problem)?;
    let priority = first.text.strip_suffix(':').ok_or_else(line_problem)?;
    let priority = priority.parse().map_err(|_| line_problem())?;
    let not = words.next_if(|word| word.text == "not").is_some();
    let attributes = Attributes::parse(text, &mut words, RULE)?;
    Ok(PolicyRule {
        priority,
        inverted: not,
        attributes: names::normalise(attributes, &DEFAULTS),
        source_text: text.slice(line.start..line.end()),
        line: line.number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_iproute2_output_returns_rules() {
        // Output of iproute2 6.1.
        let text = "0:\tfrom all lookup local\n5:\tfrom all tos 0x10 lookup 100 realms 5\n\
                    7:\tfrom all goto 32766\n98:\tfrom all uidrange 0-5 ipproto tcp sport 1-5 dport 80 blackhole\n\
                    99:\tnot from all to 10.0.0.0/8 iif eth0 oif p0 lookup 200 suppress_prefixlength 0\n\
                    100:\tfrom 10.0.0.0/24 fwmark 0x4000/0x4000 lookup 100\n";
        let mut problems = Vec::new();
        let rules = parse(&Text::new(text), Family::V4, &mut problems);
        assert_eq!(problems, []);
        assert_eq!(rules.len(), 6);
        assert!(rules[4].inverted);
        assert_eq!(rules[5].priority, 100);
        assert_eq!(rules[5].attributes.get("fwmark"), Some("0x4000/0x4000"));
    }

    #[test]
    fn parse_invalid_lines_reports_positions() {
        let text = "from all lookup main\n5: from all lookup\n6: form all lookup main\n";
        let mut problems = Vec::new();
        let _ = parse(&Text::new(text), Family::V4, &mut problems);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.range.clone()]).collect();
        assert_eq!(places, ["from all lookup main", "lookup", "form"]);
    }
}
