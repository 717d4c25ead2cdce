//! Reads native nftables rules, which iptables cannot print, from the output of
//! `nft -a list ruleset`.

mod lookup;
mod service;

use std::collections::HashMap;

use svclab_model::evidence::TraceEvent;
use svclab_model::evidence::trace::RuleVerdict;
use svclab_model::plan::Backend;
use svclab_ruleset::nft;
use svclab_ruleset::nft::{Chain, Rule, Table};
use svclab_ruleset::text::Text;

pub(super) use lookup::{Packet, entry_by_destination, matching_entries};
pub(super) use service::service;

/// Native tables of one namespace, by family and name.
#[derive(Debug, Default)]
pub(super) struct NftTables(HashMap<(String, String), Table>);

impl NftTables {
    /// Parses the output of nft and ignores lines that cannot be parsed.
    pub(super) fn parse(text: &str) -> Self {
        let ruleset = nft::parse_ruleset(&Text::new(text), &mut Vec::new());
        let tables = ruleset.tables.into_iter();
        Self(
            tables
                .map(|table| ((table.family.clone(), table.name.clone()), table))
                .collect(),
        )
    }

    /// Returns the table of a trace event.
    pub(super) fn table(&self, event: &TraceEvent) -> Option<&Table> {
        let key = (family(event)?.to_owned(), event.table.clone());
        self.0.get(&key)
    }

    /// Returns the chain of a trace event.
    pub(super) fn chain(&self, event: &TraceEvent) -> Option<&Chain> {
        self.table(event)?.chain(&event.chain)
    }
}

/// Returns the nft name of the table family of a trace event; `None` for legacy iptables.
pub(super) fn family(event: &TraceEvent) -> Option<&'static str> {
    Some(match (event.backend, event.inet, event.ip_version) {
        (Backend::Legacy, ..) => return None,
        (Backend::Nft, true, _) => "inet",
        (Backend::Nft, false, 6) => "ip6",
        (Backend::Nft, false, _) => "ip",
    })
}

/// Returns a rule of a chain by its number, from 1.
pub(super) fn rule(chain: &Chain, number: u32) -> Option<&Rule> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    chain.rules.get(index)
}

/// Returns the target of a rule as iptables names it. If the rule itself has none, the verdict that
/// an entry led to supplies the target.
pub(super) fn target(rule: Option<&Rule>, verdict: Option<&RuleVerdict>) -> Option<String> {
    let statement = rule.and_then(|rule| statement_target(&rule.text));
    let verdict_target = || {
        Some(match verdict? {
            RuleVerdict::Jump(chain) | RuleVerdict::Goto(chain) => chain.clone(),
            RuleVerdict::Drop => "DROP".to_owned(),
            RuleVerdict::Accept => "ACCEPT".to_owned(),
            RuleVerdict::Return => "RETURN".to_owned(),
            RuleVerdict::Continue | RuleVerdict::Stolen => return None,
        })
    };
    statement.map(str::to_owned).or_else(verdict_target)
}

/// Returns the iptables name of the statement by which a rule acts. A terminal statement takes
/// precedence over a mark. Statements inside braces are ignored, because they apply only to some
/// map entries.
fn statement_target(rule: &str) -> Option<&'static str> {
    let words = nft::tokenize(rule).ok()?;
    let mut depth = 0_usize;
    let (mut before, mut marks) = ("", None);
    for word in words {
        match word.text {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            // `ct status dnat` is a match on an earlier rewrite.
            _ if before == "status" => {}
            "drop" => return Some("DROP"),
            "reject" => return Some("REJECT"),
            "accept" => return Some("ACCEPT"),
            "return" => return Some("RETURN"),
            "dnat" => return Some("DNAT"),
            "snat" => return Some("SNAT"),
            "masquerade" => return Some("MASQUERADE"),
            "redirect" => return Some("REDIRECT"),
            "set" if before == "mark" => marks = Some("MARK"),
            _ => {}
        }
        before = word.text;
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::evidence::trace::TracePoint;

    const TEXT: &str = "\
table inet fw { # handle 3
	set some { # handle 4
		type ipv4_addr
		elements = { 10.0.0.1, 10.0.0.2 }
	}

	chain forward { # handle 1
		type filter hook forward priority filter; policy accept;
		ip saddr @some counter packets 3 bytes 180 drop # handle 5
		tcp dport { 80, 443 } meta mark set 0x00000001 # handle 6
	}

	chain other { # handle 2
		return comment \"drop # handle 3\" # handle 7
	}
}
table ip fw { # handle 4
	chain forward { # handle 1
		accept # handle 2
	}
}
";

    fn trace_event(inet: bool, chain: &str) -> TraceEvent {
        TraceEvent {
            namespace: "node-1".to_owned(),
            backend: Backend::Nft,
            trace_id: 0,
            packet: None,
            ip_version: 4,
            input: None,
            output: None,
            mark: 0,
            table: "fw".to_owned(),
            inet,
            chain: chain.to_owned(),
            point: TracePoint::Policy,
            verdict: None,
        }
    }

    #[test]
    fn rule_by_number_returns_rule_of_chain() {
        let listing = NftTables::parse(TEXT);
        let found = |inet, chain, number| {
            let chain = listing.chain(&trace_event(inet, chain))?;
            rule(chain, number).map(ToString::to_string)
        };
        assert_eq!(
            found(true, "forward", 1).as_deref(),
            Some("ip saddr @some counter packets 3 bytes 180 drop")
        );
        assert_eq!(found(true, "forward", 3), None);
        assert_eq!(found(true, "forward", 0), None);
        assert_eq!(
            found(true, "other", 1).as_deref(),
            Some("return comment \"drop # handle 3\"")
        );
        assert_eq!(found(false, "forward", 1).as_deref(), Some("accept"));
        assert_eq!(found(false, "some", 1), None);
    }

    #[test]
    fn target_statement_returns_iptables_name() {
        for (rule, word) in [
            (
                "ip saddr 10.0.0.1 counter packets 0 bytes 0 drop",
                Some("DROP"),
            ),
            ("meta mark 0x00000001 accept", Some("ACCEPT")),
            ("tcp dport 80 meta mark set 0x00000001", Some("MARK")),
            ("tcp dport 80 dnat to 10.0.0.1", Some("DNAT")),
            (
                "meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random",
                Some("MASQUERADE"),
            ),
            (
                "ct status dnat ip saddr . ip daddr @hairpin-connections masquerade fully-random",
                Some("MASQUERADE"),
            ),
            ("ct status dnat counter", None),
            ("tcp dport vmap { 80 : drop }", None),
            ("tcp dport { 80, 443 } drop", Some("DROP")),
            ("jump other", None),
        ] {
            let target_of = |rule: &str| target(Some(&Rule::new(rule)), None);
            assert_eq!(target_of(rule).as_deref(), word, "{rule}");
        }
        let jump_target = target(
            Some(&Rule::new("tcp dport vmap @a")),
            Some(&RuleVerdict::Goto("b".to_owned())),
        );
        assert_eq!(jump_target.as_deref(), Some("b"));
    }
}
