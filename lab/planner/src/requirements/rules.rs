//! Lists the requirements of iptables rules: the modules of their tables, matches and targets.
//!
//! Recordings from guests show which request loads which module on which kernel (see
//! `tests/recorded/modules`). The tests compare this file with those recordings.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Requirements, quote_line};
use svclab_model::plan::Backend;
use svclab_ruleset::iptables::Rule;
use svclab_ruleset::iptables::command::Command;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// Targets that are built into the tables.
const BUILT_IN_TARGETS: [&str; 3] = ["ACCEPT", "DROP", "RETURN"];

/// Rules that were read before, each with its target if that can be a chain. The nodes of a cluster
/// have the same rules, and the requirements of a rule count once.
pub(super) type KnownRules<'r> = HashMap<(Backend, &'static str, &'r str), Option<String>>;

/// Adds the requirements of a script for one family. `known_chains` exist before the script is
/// loaded. A rule that cannot be parsed is ignored; iptables rejects such a rule.
pub(super) fn add_requirements<'r>(
    needs: &mut Requirements,
    namespace: &str,
    backend: Backend,
    family: u8,
    script: &'r IptablesScript,
    known_chains: &BTreeSet<&str>,
    known_rules: &mut KnownRules<'r>,
) {
    let mut collector = Collector {
        needs,
        namespace,
        backend,
        known_rules,
        prefix: if family == 6 { "ip6" } else { "ip" },
    };
    collector.add_base();
    for (table, block) in script.tables() {
        collector.add_table(table);
        let mut chains: HashSet<&str> = block.created_chains().collect();
        chains.extend(known_chains);
        for command in &block.commands {
            collector.add_rule(command, &chains);
        }
    }
}

/// Collects the requirements of one script.
struct Collector<'a, 'r> {
    needs: &'a mut Requirements,
    namespace: &'a str,
    backend: Backend,
    known_rules: &'a mut KnownRules<'r>,
    /// Prefix of the module names that the kernel requests: `ip` or `ip6`.
    prefix: &'static str,
}

impl<'r> Collector<'_, 'r> {
    fn add_module(&mut self, module: &str, kind: &str, line: &str) {
        self.needs
            .add_module(module, self.namespace, || quote_line(kind, line));
    }

    /// Adds the modules that the program always requests.
    fn add_base(&mut self) {
        let modules: &[&str] = match (self.backend, self.prefix) {
            // Up to Linux 5.17, the counter of a rule was a separate module.
            (Backend::Nft, _) => &["nfnetlink", "nf_tables", "nft_counter"],
            (Backend::Legacy, "ip6") => &["ip6_tables"],
            (Backend::Legacy, _) => &["ip_tables"],
        };
        let (prefix, backend) = (self.prefix, self.backend.name());
        for module in modules {
            self.needs.add_module(module, self.namespace, || {
                format!("the rules of {prefix}tables-{backend}")
            });
        }
    }

    fn add_table(&mut self, table: Table) {
        let line = format!("*{table}");
        match self.backend {
            // Other chain types are part of nf_tables (Linux v6.12,
            // `net/netfilter/nft_chain_filter.c`).
            Backend::Nft if table == Table::Nat => {
                let family = if self.prefix == "ip6" { 10 } else { 2 };
                self.add_module(&format!("nft-chain-{family}-nat"), "table", &line);
            }
            Backend::Nft => {}
            Backend::Legacy => {
                self.add_module(&format!("{}table_{table}", self.prefix), "table", &line);
            }
        }
    }

    /// Adds the modules of a rule. A jump to one of `chains` is no target module.
    fn add_rule(&mut self, command: &'r Command, chains: &HashSet<&str>) {
        let key = (self.backend, self.prefix, command.rule.as_str());
        if let Some(target) = self.known_rules.get(&key) {
            // Another namespace may lack the chain.
            let target = target.as_deref();
            let target = target.filter(|target| !chains.contains(target));
            if let Some(target) = target.map(str::to_owned) {
                self.add_extension(&target, &command.to_string());
            }
            return;
        }
        let Ok(rule) = Rule::from_words(command.rule.as_str()) else {
            self.known_rules.insert(key, None);
            return;
        };
        let line = command.to_string();
        let parts = rule.parts();
        let protocol = parts.header.iter().find(|option| option.name == "-p");
        let protocol = protocol.and_then(|option| protocol_match(option.values.first()?));
        let (mut is_implied, mut is_explicit) = (false, false);
        for module in &parts.matches {
            is_implied |= module
                .options
                .iter()
                .any(|option| is_protocol_option(&option.name));
            if !module.is_implied {
                is_explicit |= protocol == Some(&*module.name);
                self.add_extension(&module.name, &line);
            }
        }
        let mut target_options = parts.target.iter().flat_map(|target| &target.options);
        is_implied |= target_options.any(|option| is_protocol_option(&option.name));
        let target = parts.target.as_ref();
        let target = target.filter(|target| !BUILT_IN_TARGETS.contains(&&*target.name));
        if let Some(target) = target
            && !chains.contains(&*target.name)
        {
            self.add_extension(&target.name, &line);
        }
        let target = target.map(|target| target.name.to_string());
        self.known_rules.insert(key, target);
        // `-p tcp --dport 80` implies `-m tcp`.
        if is_implied
            && !is_explicit
            && let Some(name) = protocol
        {
            self.add_extension(name, &line);
        }
    }

    /// Adds the module of a match or target. The kernel requests the module by a name with the
    /// family (Linux v6.12, `net/netfilter/x_tables.c`, `xt_request_find_match`,
    /// `xt_request_find_target`). `nft_compat` does the same for iptables-nft. iptables-nft
    /// requests the revisions of an extension even if it then translates the rule to native
    /// expressions (`nfnl_compat_get_rcu`; iptables v1.8.9, `iptables/nft.c`,
    /// `nft_compatible_revision`).
    fn add_extension(&mut self, name: &str, line: &str) {
        let name = kernel_name(name);
        if self.backend == Backend::Nft {
            self.add_module("nft_compat", "rule", line);
        }
        let module = format!("{}t_{name}", self.prefix);
        self.add_module(&module, "rule", line);
        let additional: &[&str] = match (name, self.backend, self.prefix) {
            ("limit", Backend::Nft, _) => &["nft_limit"],
            ("NFLOG", Backend::Nft, _) => &["nft_log", "nfnetlink_log"],
            ("NFLOG", Backend::Legacy, _) => &["nfnetlink_log"],
            // Backend of the kernel log, by protocol family.
            ("LOG" | "TRACE", _, "ip6") => &["nf-logger-10-0"],
            ("LOG" | "TRACE", ..) => &["nf-logger-2-0"],
            // `net/netfilter/xt_physdev.c`, `physdev_mt_check`.
            ("physdev", ..) => &["br_netfilter"],
            _ => &[],
        };
        for module in additional {
            self.add_module(module, "rule", line);
        }
    }
}

/// Returns the kernel name of an extension that has another name in the programs.
fn kernel_name(name: &str) -> &str {
    match name {
        "state" => "conntrack",
        "NOTRACK" => "CT",
        "icmpv6" | "ipv6-icmp" => "icmp6",
        other => other,
    }
}

/// Returns the match with the fields of a protocol; `None` for other protocols.
fn protocol_match(protocol: &str) -> Option<&'static str> {
    Some(match protocol {
        "tcp" | "6" => "tcp",
        "udp" | "17" => "udp",
        "icmp" | "1" => "icmp",
        "icmpv6" | "ipv6-icmp" | "58" => "icmp6",
        "sctp" | "132" => "sctp",
        "dccp" | "33" => "dccp",
        _ => return None,
    })
}

/// Whether an option belongs to the match of a protocol only.
fn is_protocol_option(word: &str) -> bool {
    [
        "--dport",
        "--sport",
        "--destination-port",
        "--source-port",
        "--tcp-flags",
        "--syn",
        "--tcp-option",
        "--icmp-type",
        "--icmpv6-type",
        "--chunk-types",
        "--dccp-types",
    ]
    .contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_ruleset::input::ProgramInput as _;

    fn modules(backend: Backend, family: u8, text: &str) -> Vec<String> {
        let mut needs = Requirements::default();
        let script = IptablesScript::parse(text).unwrap();
        add_requirements(
            &mut needs,
            "node-1",
            backend,
            family,
            &script,
            &BTreeSet::new(),
            &mut KnownRules::new(),
        );
        needs.modules().map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn rules_requirements_jump_to_chain_is_no_module() {
        let text = "*nat\n:KUBE-SVC-X - [0:0]\n:LATER - [0:0]\n-A PREROUTING -j KUBE-SVC-X\n-A PREROUTING -j LATER\n-A PREROUTING -j DROP\nCOMMIT\n*filter\n-A INPUT -j LATER\n";
        assert_eq!(
            modules(Backend::Legacy, 4, text),
            [
                "ip_tables",
                "iptable_nat",
                "iptable_filter",
                // `LATER` is not a chain of this table.
                "ipt_LATER"
            ]
        );
    }

    #[test]
    fn rules_requirements_comment_text_is_no_match() {
        let text = "*filter\n-A INPUT -m comment --comment \"-m\" -j ACCEPT\n";
        assert_eq!(
            modules(Backend::Legacy, 6, text),
            ["ip6_tables", "ip6table_filter", "ip6t_comment"]
        );
    }

    #[test]
    fn rules_requirements_port_implies_protocol_match() {
        let modules_of =
            |rule: &str| modules(Backend::Nft, 4, &format!("*filter\n{rule}\n")).split_off(3);
        assert_eq!(modules_of("-A INPUT -p tcp -j DROP"), [""; 0]);
        assert_eq!(
            modules_of("-A INPUT -p 17 --dport 53 -j DROP"),
            ["nft_compat", "ipt_udp"]
        );
        assert_eq!(
            modules_of("-A INPUT -p tcp -m tcp --dport 53 -j DROP"),
            ["nft_compat", "ipt_tcp"]
        );
        assert_eq!(
            modules_of("-A INPUT -p tcp -j DROP --dport 53"),
            ["nft_compat", "ipt_tcp"]
        );
    }
}
