//! Reports rules that decide by state that no dump contains: remembered addresses, used limits, and
//! the time.

use super::super::report::{ReplayReport, count_noun};
use svclab_dump::NodeDump;

/// Kind of rules with such state.
struct Kind {
    /// Matches of iptables.
    modules: &'static [&'static str],
    /// Statements and expressions of nftables.
    expressions: &'static [&'static str],
    description: &'static str,
    reason: &'static str,
    affects: &'static str,
}

const KINDS: [Kind; 3] = [
    Kind {
        modules: &["-m recent"],
        expressions: &["xt match recent", "xt match \"recent\""],
        description: "with remembered addresses (`recent`)",
        reason: "a lab starts with empty lists",
        affects: "addresses that the node remembers match there, but not in the lab",
    },
    Kind {
        modules: &["-m limit", "-m hashlimit", "-m quota"],
        expressions: &["limit rate ", "quota "],
        description: "with limits",
        reason: "the limits are not used up in a lab",
        affects: "packets beyond the limits match other rules on the node",
    },
    Kind {
        modules: &["-m time"],
        expressions: &["meta hour ", "meta day ", "meta time "],
        description: "with times",
        reason: "a lab has the time of this machine",
        affects: "the rules may decide in another way at the time of the fault",
    },
];

/// List of a rule for session affinity of kube-proxy. It decides only which of the endpoints a client
/// reaches (kubernetes v1.30, `pkg/proxy/iptables/proxier.go`, `writeServiceToEndpointRules`).
const AFFINITY: &str = "--name KUBE-SEP-";

/// Targets that only write logs, whose rules may have limits.
const LOGGING: [&str; 3] = ["LOG", "NFLOG", "TRACE"];

/// Reports the rules of each kind.
pub fn report_rule_state(dump: &NodeDump, report: &mut ReplayReport) {
    for kind in &KINDS {
        let tables = dump.rules.values().flat_map(|rules| &rules.tables);
        let rules = tables
            .flat_map(|table| &table.chains)
            .flat_map(|chain| &chain.rules);
        let saved = rules.filter(|rule| {
            let text = rule.source_text();
            let has_module = |module: &&str| {
                let mut after = text.split(*module).skip(1);
                after.any(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            kind.modules.iter().any(has_module)
                && !text.contains(AFFINITY)
                && !rule
                    .target()
                    .is_some_and(|target| LOGGING.contains(&&*target))
        });
        // iptables-nft and nft print the same rules, and only iptables prints the names of lists.
        let tables = dump.nft.iter().flat_map(|nft| &nft.tables);
        let rules = tables
            .filter(|table| !dump.has_saved(table))
            .flat_map(|table| &table.chains)
            .flat_map(|chain| &chain.rules);
        let native = rules.filter(|rule| {
            let has = |expression: &&str| {
                rule.text.starts_with(*expression) || rule.text.contains(&format!(" {expression}"))
            };
            let mut words = rule.text.split_ascii_whitespace();
            kind.expressions.iter().any(has) && !words.any(|word| word == "log")
        });
        let count = saved.count() + native.count();
        if count > 0 {
            let rules = count_noun(count, "rule", "rules");
            report.add_omitted(
                format!("the state of {rules} {}", kind.description),
                kind.reason,
                kind.affects,
            );
        }
    }
}
