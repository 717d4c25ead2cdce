//! Rules as `nft -a -s list ruleset` prints them.

use std::collections::HashMap;

/// The chains of all tables, by family, table and name, each with its rules in order.
#[derive(Debug, Default)]
pub struct Listing<'t>(HashMap<(&'t str, &'t str, &'t str), Vec<&'t str>>);

impl<'t> Listing<'t> {
    /// Reads a listing. A rule is a line of a chain that ends with its handle.
    pub fn read(text: &'t str) -> Self {
        let mut listing = Self::default();
        let (mut table, mut chain) = (None, None);
        for line in text.lines() {
            let line = line.trim();
            let (words, handle) = line
                .rsplit_once(" # handle ")
                .map_or((line, false), |(words, _)| (words, true));
            let opened = words.strip_suffix(" {");
            if let Some(opened) = opened.and_then(|opened| opened.strip_prefix("table ")) {
                table = opened.split_once(' ');
            } else if let Some(opened) = opened.and_then(|opened| opened.strip_prefix("chain ")) {
                chain = Some(opened);
            } else if line == "}" {
                // The end of the chain, or of what is no chain, or of the table.
                chain = None;
            } else if let (Some((family, table)), Some(chain), true) = (table, chain, handle) {
                let rules = listing.0.entry((family, table, chain)).or_default();
                rules.push(words);
            }
        }
        listing
    }

    /// A rule by its number, from 1.
    pub fn rule(&self, family: &str, table: &str, chain: &str, number: u32) -> Option<&'t str> {
        let rules = self.0.get(&(family, table, chain))?;
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        rules.get(at).copied()
    }
}

/// What a rule does, in the word that iptables has for it.
pub fn target(rule: &str) -> Option<&'static str> {
    let rule = rule.split(" comment \"").next()?;
    let words: Vec<&str> = rule.split_whitespace().collect();
    words.iter().enumerate().find_map(|(at, word)| {
        Some(match *word {
            "drop" => "DROP",
            "reject" => "REJECT",
            "accept" => "ACCEPT",
            "return" => "RETURN",
            "dnat" => "DNAT",
            "snat" => "SNAT",
            "masquerade" => "MASQUERADE",
            "redirect" => "REDIRECT",
            "mark" if words.get(at + 1) == Some(&"set") => "MARK",
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn rules_are_found_by_their_numbers() {
        let listing = Listing::read(TEXT);
        let found = |family, chain, number| listing.rule(family, "fw", chain, number);
        assert_eq!(
            found("inet", "forward", 1),
            Some("ip saddr @some counter packets 3 bytes 180 drop")
        );
        assert_eq!(found("inet", "forward", 3), None);
        assert_eq!(found("inet", "forward", 0), None);
        assert_eq!(
            found("inet", "other", 1),
            Some("return comment \"drop # handle 3\"")
        );
        assert_eq!(found("ip", "forward", 1), Some("accept"));
        assert_eq!(found("ip", "some", 1), None);
    }

    #[test]
    fn what_a_rule_does_has_a_word() {
        for (rule, word) in [
            (
                "ip saddr 10.0.0.1 counter packets 0 bytes 0 drop",
                Some("DROP"),
            ),
            ("return comment \"drop\"", Some("RETURN")),
            ("meta mark 0x00000001 accept", Some("ACCEPT")),
            ("tcp dport 80 meta mark set 0x00000001", Some("MARK")),
            ("tcp dport 80 dnat to 10.0.0.1", Some("DNAT")),
            ("jump other", None),
        ] {
            assert_eq!(target(rule), word, "{rule}");
        }
    }
}
