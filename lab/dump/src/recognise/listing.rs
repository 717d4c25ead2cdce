//! Summarizes the output of `iptables -L` and `iptables -S`. Replay does not build listed rules,
//! because `-L` does not show all matches, and `-S` shows only one table.

use std::collections::BTreeMap;

use svclab_ruleset::Family;

/// Rules and chains that a listing shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Address family.
    pub(crate) family: Family,
    /// Whether the rules are printed as options (`-S`).
    has_options: bool,
    rules: usize,
    chains: usize,
    proxy_chains: usize,
    /// Numbers of rules with the target DROP or REJECT, by chain.
    blocking_rules: BTreeMap<String, usize>,
    /// Hooks with the policy DROP, in printed order.
    dropping_hooks: Vec<String>,
}

/// Names in the column `prot` (iptables 1.8.9, `libxtables/xtables.c`, `xtables_chain_protos`, and
/// common names of `/etc/protocols`). Other protocols are numbers.
const PROTOCOLS: [&str; 18] = [
    "all",
    "tcp",
    "sctp",
    "udp",
    "udplite",
    "icmp",
    "icmpv6",
    "ipv6-icmp",
    "esp",
    "ah",
    "ipv6-mh",
    "mh",
    "dccp",
    "gre",
    "igmp",
    "ipencap",
    "ospf",
    "vrrp",
];

/// Columns before the target, with options of the command.
const FIRST_COLUMNS: [&str; 3] = ["num", "pkts", "bytes"];

/// Whether a line can only be a line of a listing.
pub(super) fn is_first_line(line: &str) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words.as_slice() {
        ["Chain", ..] => {
            line.ends_with(')') && (line.contains("references)") || line.contains("(policy"))
        }
        ["-P", _, "ACCEPT" | "DROP", ..] => true,
        ["-N", chain] => !chain.starts_with('-'),
        _ => false,
    }
}

/// Whether a line belongs to a listing.
pub(super) fn is_line(line: &str) -> bool {
    let is_rule = line
        .strip_prefix("-A ")
        .is_some_and(|rest| !rest.starts_with('-'));
    is_rule || is_first_line(line)
}

/// Returns the column of the target in the heading of a chain. `None` for other lines.
fn heading_target(words: &[&str]) -> Option<usize> {
    let column = words.iter().position(|word| *word == "target")?;
    let is_heading = words[..column]
        .iter()
        .all(|word| FIRST_COLUMNS.contains(word))
        && words.get(column + 1) == Some(&"prot");
    is_heading.then_some(column)
}

fn is_protocol(word: &str) -> bool {
    let name = word.trim_start_matches('!');
    PROTOCOLS.contains(&name) || name.parse::<u8>().is_ok()
}

impl Listing {
    /// Parses a listing of one or several tables.
    pub(super) fn parse(text: &str, family: Family) -> Self {
        let mut listing = Self {
            family,
            has_options: false,
            rules: 0,
            chains: 0,
            proxy_chains: 0,
            blocking_rules: BTreeMap::new(),
            dropping_hooks: Vec::new(),
        };
        let mut chain = "";
        let mut target_column = 0;
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words.as_slice() {
                ["Chain", name, rest @ ..] => {
                    chain = name;
                    let policy = rest.get(1).filter(|_| rest.first() == Some(&"(policy"));
                    let policy = policy.map(|policy| policy.trim_end_matches(')'));
                    listing.add_chain(name, policy);
                }
                ["-P", name, policy, ..] => listing.add_option_chain(name, Some(policy)),
                ["-N", name] => listing.add_option_chain(name, None),
                ["-A", name, rest @ ..] => {
                    let mut options = rest.iter();
                    let jump = options.find(|option| matches!(**option, "-j" | "--jump"));
                    let target = jump.and_then(|_| options.next());
                    listing.add_rule(name, target.copied());
                }
                words => match heading_target(words) {
                    Some(column) => target_column = column,
                    None => listing.add_row(chain, words.get(target_column..).unwrap_or_default()),
                },
            }
        }
        listing
    }

    fn add_chain(&mut self, name: &str, policy: Option<&str>) {
        self.chains += 1;
        self.proxy_chains += usize::from(name.starts_with("KUBE-"));
        if policy == Some("DROP") {
            self.dropping_hooks.push(name.to_owned());
        }
    }

    fn add_option_chain(&mut self, name: &str, policy: Option<&str>) {
        self.has_options = true;
        self.add_chain(name, policy);
    }

    /// Adds a rule from its columns, beginning with the target, which may be empty. Other lines have
    /// no protocol.
    fn add_row(&mut self, chain: &str, columns: &[&str]) {
        match columns {
            [target, protocol, _, _, ..] if is_protocol(protocol) => {
                self.add_rule(chain, Some(target));
            }
            [protocol, _, _, ..] if is_protocol(protocol) => self.add_rule(chain, None),
            _ => {}
        }
    }

    fn add_rule(&mut self, chain: &str, target: Option<&str>) {
        self.rules += 1;
        if matches!(target, Some("DROP" | "REJECT")) {
            *self.blocking_rules.entry(chain.to_owned()).or_default() += 1;
        }
    }

    /// Returns the name of the program.
    fn program(&self) -> &'static str {
        match self.family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        }
    }

    /// Returns the reason for not reading the listing. `complete` is the command whose output in the
    /// dump has the complete rules.
    pub(crate) fn reason(&self, complete: Option<&str>) -> String {
        let program = self.program();
        match (complete, self.has_options) {
            (Some(command), _) => {
                format!("not used, because the dump has the output of `{command}`")
            }
            (None, true) => {
                format!("not read as rules, because `{program} -S` shows only one table")
            }
            (None, false) => {
                format!("not read as rules, because `{program} -L` does not show all matches")
            }
        }
    }

    /// Returns the possible effect of the rules. Empty if no rule is listed.
    pub(crate) fn effect(&self) -> String {
        if self.rules == 0 && self.dropping_hooks.is_empty() {
            return String::new();
        }
        let mut parts = vec![format!(
            "{} in {}",
            counted(self.rules, "rule"),
            counted(self.chains, "chain")
        )];
        if self.proxy_chains > 0 {
            parts.push(format!(
                "{} of kube-proxy",
                counted(self.proxy_chains, "chain")
            ));
        }
        if !self.blocking_rules.is_empty() {
            let rules = counted(self.blocking_rules.values().sum(), "rule");
            let chains: Vec<&str> = self.blocking_rules.keys().map(String::as_str).collect();
            let chains = chains.join(", ");
            parts.push(format!("{rules} with the target DROP or REJECT ({chains})"));
        }
        if !self.dropping_hooks.is_empty() {
            parts.push(format!("policy DROP of {}", self.dropping_hooks.join(", ")));
        }
        format!(
            "replay does not build the listed rules and chains: {}; add the output of `{}-save`",
            parts.join(", "),
            self.program()
        )
    }
}

fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of iptables 1.8.9: `-L`, `-nvL --line-numbers` and `-S`.
    const LISTED: &str = "\
Chain INPUT (policy ACCEPT)
target     prot opt source               destination         
KUBE-FIREWALL  all  --  anywhere             anywhere            
DROP       tcp  --  anywhere             anywhere             tcp dpt:http /* a target prot b */

Chain FORWARD (policy DROP)
target     prot opt source               destination         
           all  --  anywhere             anywhere            

Chain KUBE-FIREWALL (1 references)
target     prot opt source               destination         
REJECT     udp  -f  10.0.0.0/8           anywhere             reject-with icmp-port-unreachable
=======
Total Number of Rules: 4
";
    const NUMBERED: &str = "\
Chain OUTPUT (policy DROP 3 packets, 180 bytes)
num   pkts bytes target     prot opt in     out     source               destination         
1      12K 1000K            0    --  *      lo      0.0.0.0/0            0.0.0.0/0           
2        0     0 DROP       6    --  *      *       0.0.0.0/0            10.96.0.10           tcp dpt:53
Total Number of Rules: 2
";
    /// Output of ip6tables 1.8.7, whose column `opt` is empty.
    const SIX: &str = "\
Chain INPUT (policy ACCEPT 0 packets, 0 bytes)
 pkts bytes target     prot opt in     out     source               destination         
    0     0            all      lo     *       ::/0                 ::/0                
    0     0 REJECT     !tcp     *      *       ::/0                 ::/0                 reject-with icmp6-port-unreachable
";
    const OPTIONS: &str = "\
-P PREROUTING ACCEPT
-P OUTPUT DROP -c 0 0
-N KUBE-SVC-A
-A PREROUTING -m comment --comment \"a -j DROP\" -j KUBE-SVC-A
-A KUBE-SVC-A -p tcp -c 1 60 -j REJECT --reject-with tcp-reset
";

    #[test]
    fn listings_are_summarized() {
        let described = [
            (LISTED, Family::V4),
            (NUMBERED, Family::V4),
            (SIX, Family::V6),
            (OPTIONS, Family::V4),
            ("Chain INPUT (policy ACCEPT)\n", Family::V4),
        ]
        .map(|(text, family)| {
            let listing = Listing::parse(text, family);
            let reasons = [listing.reason(None), listing.reason(Some("iptables-save"))];
            format!("{}\n{}", reasons.join("\n"), listing.effect())
        });
        insta::assert_snapshot!(described.join("\n\n"));
    }

    #[test]
    fn lines_of_other_programs_are_no_listing() {
        for line in [
            "-N",
            "-P FORWARD",
            "-A -t 10.0.0.1:80 -s rr",
            "-N -x",
            "Chain of events",
        ] {
            assert!(!is_line(line), "{line}");
        }
    }
}
