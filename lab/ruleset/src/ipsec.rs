//! Parses the output of `ip xfrm policy` (iproute2 6.1, `ip/ipxfrm.c`, `xfrm_policy_info_print`).

use crate::text::problem::{Problem, ProblemKind};
use crate::text::{Text, lines};
use crate::tool::Format;

/// `IPsec` policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpsecPolicy {
    /// Packets of the policy: `src 10.0.0.0/24 dst 10.0.1.0/24 proto tcp`.
    pub selector: String,
    /// Direction and other settings, without counters: `dir out action block priority 0 ptype
    /// main`.
    pub settings: String,
    /// Line number of the first line, from 1.
    pub line: u32,
}

/// Words that only `ip -s` prints, with their next word. `None` stands for any next word.
const STATISTICS_WORDS: [(&str, Option<&str>); 7] = [
    ("uid", None),
    ("index", None),
    ("share", None),
    ("action", Some("allow")),
    ("level", Some("required")),
    ("spi", Some("0x00000000(0)")),
    ("flag", Some("(0x00000000)")),
];

/// Beginnings of lines that only `ip -s` prints.
const STATISTICS_LINES: [&str; 5] = ["lifetime ", "limit: ", "expire ", "add ", "enc-mask "];

impl IpsecPolicy {
    /// Whether the policy only applies to the socket that set it.
    #[must_use]
    pub fn is_of_socket(&self) -> bool {
        self.settings.starts_with("socket ")
    }

    /// Whether the policy drops packets instead of encrypting them.
    #[must_use]
    pub fn drops_packets(&self) -> bool {
        self.settings.contains(" action block ")
    }
}

/// Parses the output of `ip xfrm policy`, also with `-s` and `-o`. Lines that belong to no policy
/// are added to `problems`.
#[must_use]
pub fn parse(text: &Text, problems: &mut Vec<Problem>) -> Vec<IpsecPolicy> {
    let mut policies: Vec<IpsecPolicy> = Vec::new();
    for line in lines(text) {
        // With `-o`, backslashes separate the lines.
        for part in line.text.split('\\').map(str::trim) {
            if part.starts_with("src ") {
                policies.push(IpsecPolicy {
                    selector: without_statistics(part),
                    settings: String::new(),
                    line: line.number,
                });
            } else if let Some(policy) = policies.last_mut() {
                let words = without_statistics(part);
                if !policy.settings.is_empty() && !words.is_empty() {
                    policy.settings.push(' ');
                }
                policy.settings.push_str(&words);
            } else if !part.is_empty() {
                let kind = ProblemKind::UnknownLine(Format::IpsecPolicies);
                problems.push(Problem::new(kind, line.start..line.end()));
            }
        }
    }
    policies
}

/// Returns a line as `ip` prints it without `-s`, with single spaces.
fn without_statistics(line: &str) -> String {
    let is_statistic =
        line.contains("(bytes)") || STATISTICS_LINES.iter().any(|start| line.starts_with(start));
    if is_statistic {
        return String::new();
    }
    let mut words = line.split_ascii_whitespace().peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let next = words.peek().copied();
        let has_statistic = |(name, value): &(&str, Option<&str>)| {
            *name == word && (value.is_none() || *value == next)
        };
        if STATISTICS_WORDS.iter().any(has_statistic) {
            words.next();
            continue;
        }
        // `-s` prints numbers a second time: `reqid 1(0x00000001)`.
        let word = word.split('(').next().unwrap_or_default();
        if !word.is_empty() {
            kept.push(word);
        }
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of iproute2 6.1 for policies of all directions.
    const PLAIN: &str = include_str!("recorded/ip-xfrm-policy");

    fn parse_text(text: &str) -> Vec<IpsecPolicy> {
        let mut problems = Vec::new();
        let policies = parse(&Text::new(text), &mut problems);
        assert_eq!(problems, [], "{text}");
        policies
    }

    #[test]
    fn parse_policies_have_selector_and_settings() {
        let policies = parse_text(PLAIN);
        let lines = policies.iter().map(|policy| {
            let IpsecPolicy {
                selector,
                settings,
                line,
            } = policy;
            format!("{line}: {selector}: {settings}")
        });
        let lines: Vec<String> = lines.collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        1: src ::/0 dst fd00::/64: dir in priority 0 ptype main mark 0x4/0xff tmpl src :: dst :: proto ah reqid 0 mode transport level use if_id 0x7
        8: src 10.0.2.0/24 dst 10.0.1.0/24 proto tcp dport 80: dir fwd priority 5 ptype main tmpl src 1.2.3.4 dst 5.6.7.8 proto esp reqid 1 mode tunnel
        12: src 10.0.0.0/24 dst 10.0.1.0/24: dir out action block priority 0 ptype main
        ");
        let drops: Vec<bool> = policies.iter().map(IpsecPolicy::drops_packets).collect();
        assert_eq!(drops, [false, false, true]);
    }

    #[test]
    fn parse_statistics_and_single_lines_are_same_policies() {
        let contents = |text: &str| {
            let policies = parse_text(text).into_iter();
            let contents: Vec<(String, String)> = policies
                .map(|policy| (policy.selector, policy.settings))
                .collect();
            contents
        };
        let plain = contents(PLAIN);
        assert_eq!(contents(include_str!("recorded/ip-s-xfrm-policy")), plain);
        assert_eq!(contents(include_str!("recorded/ip-o-xfrm-policy")), plain);
    }

    #[test]
    fn parse_socket_policy_is_of_socket() {
        let text = "src 0.0.0.0/0 dst 0.0.0.0/0 \n\tsocket in priority 0 ptype main \n";
        assert!(parse_text(text)[0].is_of_socket());
    }

    #[test]
    fn parse_line_before_first_policy_is_problem() {
        let mut problems = Vec::new();
        let policies = parse(&Text::new("\tdir in priority 0\n"), &mut problems);
        assert_eq!((policies, problems.len()), (Vec::new(), 1));
    }
}
