//! Parses the output of `ip rule`: the rules that select a routing table.

use crate::text::attributes::{Attributes, Grammar, Takes};
use crate::text::problem::{Problem, Wrong};
use crate::text::{Line, Text, fields, lines};
use crate::tool::{Format, Ip};

/// Routing rule as `ip rule` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    /// Priority. The kernel evaluates rules with low numbers first.
    pub priority: u32,
    /// Whether the rule matches all packets that do *not* fulfil the conditions.
    pub not: bool,
    /// `from`, `to`, `fwmark`, `iif`, `lookup`, …
    pub attributes: Attributes,
    /// Text of the rule as printed.
    pub written: Text,
    /// Line number, from 1.
    pub line: u32,
}

/// Attributes of a rule (iproute2 6.1, `ip/iprule.c`).
const RULE: Grammar = &[
    ("from", Takes::Word),
    ("to", Takes::Word),
    ("tos", Takes::Word),
    ("dsfield", Takes::Word),
    ("fwmark", Takes::Word),
    ("iif", Takes::Word),
    ("oif", Takes::Word),
    ("uidrange", Takes::Word),
    ("ipproto", Takes::Word),
    ("sport", Takes::Word),
    ("dport", Takes::Word),
    ("tun_id", Takes::Word),
    ("lookup", Takes::Word),
    ("table", Takes::Word),
    ("suppress_prefixlength", Takes::Number),
    ("suppress_ifgroup", Takes::Word),
    ("realms", Takes::Word),
    ("goto", Takes::Word),
    ("map-to", Takes::Word),
    ("proto", Takes::Word),
    ("protocol", Takes::Word),
    ("masquerade", Takes::Nothing),
    ("blackhole", Takes::Nothing),
    ("unreachable", Takes::Nothing),
    ("prohibit", Takes::Nothing),
    ("nop", Takes::Nothing),
    ("[detached]", Takes::Nothing),
    ("[unresolved]", Takes::Nothing),
    ("[l3mdev-table]", Takes::Nothing),
];

/// Parses the output of `ip rule`. Lines that cannot be parsed are skipped and added to `problems`.
#[must_use]
pub fn read(text: &Text, ip: Ip, problems: &mut Vec<Problem>) -> Vec<PolicyRule> {
    let mut rules = Vec::new();
    for line in lines(text).filter(|line| !line.text.starts_with('#')) {
        match rule(text, ip, line) {
            Ok(rule) => rules.push(rule),
            Err(problem) => problems.push(problem),
        }
    }
    rules
}

fn rule(text: &Text, ip: Ip, line: Line<'_>) -> Result<PolicyRule, Problem> {
    let whole = || Problem::new(Wrong::Line(Format::Policy(ip)), line.start..line.end());
    let mut words = fields(line).peekable();
    let first = words.next().ok_or_else(whole)?;
    let priority = first.text.strip_suffix(':').ok_or_else(whole)?;
    let priority = priority.parse().map_err(|_| whole())?;
    let not = words.next_if(|word| word.text == "not").is_some();
    Ok(PolicyRule {
        priority,
        not,
        attributes: Attributes::read(text, &mut words, RULE)?,
        written: text.piece(line.start..line.end()),
        line: line.number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        // Output of iproute2 6.1.
        let text = "0:\tfrom all lookup local\n5:\tfrom all tos 0x10 lookup 100 realms 5\n\
                    7:\tfrom all goto 32766\n98:\tfrom all uidrange 0-5 ipproto tcp sport 1-5 dport 80 blackhole\n\
                    99:\tnot from all to 10.0.0.0/8 iif eth0 oif p0 lookup 200 suppress_prefixlength 0\n\
                    100:\tfrom 10.0.0.0/24 fwmark 0x4000/0x4000 lookup 100\n";
        let mut problems = Vec::new();
        let rules = read(&Text::new(text), Ip::V4, &mut problems);
        assert_eq!(problems, []);
        assert_eq!(rules.len(), 6);
        assert!(rules[4].not);
        assert_eq!(rules[5].priority, 100);
        assert_eq!(rules[5].attributes.get("fwmark"), Some("0x4000/0x4000"));
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let text = "from all lookup main\n5: from all lookup\n6: form all lookup main\n";
        let mut problems = Vec::new();
        let _ = read(&Text::new(text), Ip::V4, &mut problems);
        let places: Vec<&str> = problems.iter().map(|p| &text[p.at.clone()]).collect();
        assert_eq!(places, ["from all lookup main", "lookup", "form"]);
    }
}
