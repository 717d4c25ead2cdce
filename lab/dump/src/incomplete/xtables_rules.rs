//! Reports rules of nftables whose text lacks the options of extensions of iptables.
//!
//! nft prints rules of iptables-nft in its own language where it can. Of other matches and targets
//! it prints only the name (nftables v1.0.6, `src/xt.c`, `xt_stmt_xlate` and `xt_stmt_json`), so
//! that different rules have equal texts.

use crate::gap::Gap;
use crate::node::NodeDump;
use svclab_ruleset::nft::Table;
use svclab_ruleset::tool::{DumpedBackend, Format};

impl NodeDump {
    /// Returns the tables with such rules, except those that `iptables-save` printed, too.
    pub(crate) fn incomplete_rules(&self) -> Vec<Gap> {
        let tables = self.nft.iter().flat_map(|nft| &nft.tables);
        let gaps = tables.filter_map(|table| {
            let rules = table.chains.iter().flat_map(|chain| &chain.rules);
            let count = rules.filter(|rule| rule.lacks_options()).count();
            if count == 0 || self.has_saved(table) {
                return None;
            }
            let rules = if count == 1 { "rule" } else { "rules" };
            Some(Gap {
                name: format!(
                    "{} table {}",
                    self.files.get(&Format::Nft).map_or("nft", String::as_str),
                    table.full_name()
                ),
                reason: format!(
                    "nft does not print the options of iptables extensions, which {count} {rules} \
                     use; run `iptables-save` on the node and add its output to the dump"
                ),
                affects: "the effect of these rules is unknown".to_owned(),
                is_uncompared: true,
            })
        });
        gaps.collect()
    }

    /// Whether `iptables-save` printed the table.
    #[must_use]
    pub fn has_saved(&self, table: &Table) -> bool {
        table.of_iptables().is_some_and(|(family, name)| {
            let saved = self.rules.get(&(family, DumpedBackend::Default));
            let mut tables = saved.into_iter().flat_map(|rules| &rules.tables);
            tables.any(|saved| saved.table == name)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::node::NodeDump;

    const LISTED: &str = "\
table ip filter {
	chain FORWARD {
		type filter hook forward priority filter; policy accept;
		# xt_conntrack counter packets 0 bytes 0 drop
		counter packets 0 bytes 0 # xt_REJECT
		xt match recent counter packets 0 bytes 0 drop
		xt target \"DNAT\"
		xt match \"comment\" counter packets 0 bytes 0 drop
	}
}
";

    #[test]
    fn rules_without_options_are_reported_unless_saved() {
        let listed = NodeDump::from_texts(&[("nft", LISTED)]);
        let gaps = listed.incomplete_rules();
        let gaps: Vec<String> = gaps.iter().map(super::Gap::describe).collect();
        insta::assert_snapshot!(gaps.join("\n"), @"nft table ip filter: nft does not print the options of iptables extensions, which 4 rules use; run `iptables-save` on the node and add its output to the dump; the effect of these rules is unknown");
        let saved = "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n";
        let both = NodeDump::from_texts(&[("nft", LISTED), ("iptables-save", saved)]);
        assert_eq!(both.incomplete_rules(), []);
    }
}
