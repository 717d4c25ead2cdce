//! Removes rejected rules of iptables and nft, and finds them in the dump.

use std::collections::BTreeSet;

use super::RejectedRemover;
use super::tables::program_input_mut;
use crate::replay::chain_paths;
use crate::replay::rejection_reason::quoted_word;
use crate::replay::report::OmittedItem;
use svclab_dump::NodeDump;
use svclab_model::protocol::RejectedInput;
use svclab_ruleset::Family;
use svclab_ruleset::iptables::command::{Command, Verb};
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::iptables::{IptablesRules, Rule, TableRules};
use svclab_ruleset::nft;
use svclab_ruleset::tool::{DumpedBackend, Format};

/// Whether a rule has a match or target with this name.
pub(super) fn has_extension(rule: &Rule, name: &str) -> bool {
    let is_extension = |used: &str| {
        used == name
            || (used, name) == ("state", "conntrack")
            || (used, name) == ("NOTRACK", "CT")
            || (matches!(used, "icmpv6" | "ipv6-icmp") && name == "icmp6")
    };
    let parts = rule.parts();
    parts
        .matches
        .iter()
        .any(|module| is_extension(&module.name))
        || parts
            .target
            .is_some_and(|target| is_extension(&target.name))
}

/// Returns the names of a rule's matches and of its target or chain.
fn match_and_target_names(rule: &Rule) -> (Vec<String>, Option<String>) {
    let parts = rule.parts();
    let matches = parts.matches.iter();
    let matches = matches.map(|module| module.name.to_string()).collect();
    let target = parts.target.map(|target| target.name.into_owned());
    (matches, target)
}

impl RejectedRemover<'_> {
    pub(super) fn remove_rules(&mut self, rejected: &RejectedInput) {
        let RejectedInput {
            program,
            line,
            related_lines: others,
            message: output,
            ..
        } = rejected;
        let prefixes = ["Couldn't load match", "Couldn't load target", "Chain '"];
        if let Some(name) = quoted_word(output, &prefixes) {
            return self.remove_rules_where(program, |rule, _| has_extension(rule, name));
        }
        if let Some(set) =
            quoted_word(output, &["Set "]).filter(|_| output.contains("doesn't exist"))
        {
            return self.remove_rules_where(program, |rule, _| {
                rule.sets().iter().any(|(name, _)| name == set)
            });
        }
        if let Some(table) = line.strip_prefix('*') {
            let first = self.removed.len();
            self.remove_rules_where(program, |_, rule_table| {
                rule_table.table.to_string() == table
            });
            for item in &mut self.removed[first..] {
                item.is_whole_table = true;
            }
            return;
        }
        let names = Rule::parse(line)
            .ok()
            .map(|(_, rule)| match_and_target_names(&rule));
        let Some(names) = names else {
            return;
        };
        // Of the rules rejected together, only those with the same matches and target are certainly
        // wrong.
        let lines: BTreeSet<&str> = std::iter::once(line)
            .chain(others)
            .map(String::as_str)
            .collect();
        let first = line.as_str();
        self.remove_lines_where(program, |line, rule| {
            line == first || (lines.contains(line) && match_and_target_names(rule) == names)
        });
    }

    pub(super) fn remove_rules_where(
        &mut self,
        program: &str,
        is_removed: impl Fn(&Rule, &TableRules) -> bool,
    ) {
        let Some((_, dumped)) = dumped_rules(self.dump, program) else {
            return;
        };
        let mut removed: BTreeSet<(Table, String)> = BTreeSet::new();
        for table in &dumped.tables {
            for chain in &table.chains {
                for rule in chain.rules.iter().filter(|rule| is_removed(rule, table)) {
                    removed.insert((table.table, rule_line(&chain.name, rule)));
                }
            }
        }
        self.remove_where(program, |line, _| removed.contains(line));
    }

    fn remove_lines_where(&mut self, program: &str, is_removed: impl Fn(&str, &Rule) -> bool) {
        self.remove_where(program, |(_, line), rule| is_removed(line, rule));
    }

    /// Removes matching lines from the program's input, and finds each in the dump.
    fn remove_where(
        &mut self,
        program: &str,
        is_removed: impl Fn(&(Table, String), &Rule) -> bool,
    ) {
        let Some((format, dumped)) = dumped_rules(self.dump, program) else {
            return;
        };
        let mut removed: BTreeSet<(Table, String)> = BTreeSet::new();
        let remove = |script: &mut IptablesScript| {
            for (table, block) in script.tables_mut() {
                block.commands.retain(|command| {
                    let line = (table, command.to_string());
                    // The dump contains rules, and no other commands.
                    let is_kept = command.verb != Verb::Append
                        || !Rule::from_words(command.rule.as_str())
                            .is_ok_and(|rule| is_removed(&line, &rule));
                    if !is_kept {
                        removed.insert(line);
                    }
                    is_kept
                });
            }
        };
        let Some(Ok(())) =
            program_input_mut(self.namespace, program).map(|input| input.edit(remove))
        else {
            return;
        };
        let mut items = Vec::new();
        for table in &dumped.tables {
            for chain in &table.chains {
                for rule in &chain.rules {
                    let line = (table.table, rule_line(&chain.name, rule));
                    if removed.contains(&line) {
                        let location = self.location_of(format, rule.line);
                        let description = format!("`{}`", line.1);
                        let chain_path = chain_paths::from_iptables(table, &chain.name);
                        let file = location
                            .as_ref()
                            .and_then(|at| at.file.rsplit(['/', ':']).next());
                        let file = file.unwrap_or_default().to_owned();
                        let item = OmittedItem::new(location, description, self.reason.clone());
                        items.push(item.with_chain(chain_path).with_count_word(file));
                    }
                }
            }
        }
        self.removed.append(&mut items);
    }

    /// Removes the rules at lines for `nft -f`, or otherwise the whole table that contains the
    /// lines.
    pub(super) fn remove_nft(&mut self, rejected: &RejectedInput) {
        let Some(dumped) = &self.dump.nft else {
            return;
        };
        let Ok(mut ruleset) = self.namespace.nft.state().cloned() else {
            return;
        };
        let lines: BTreeSet<&str> = std::iter::once(&rejected.line)
            .chain(&rejected.related_lines)
            .map(|line| line.trim())
            .filter(|line| !line.is_empty())
            .collect();
        let is_rejected = |rule: &nft::Rule| {
            lines.contains(rule.to_string().as_str()) || lines.contains(rule.text.as_str())
        };
        let mut items = Vec::new();
        for table in &mut ruleset.tables {
            for chain in &mut table.chains {
                chain.rules.retain(|rule| !is_rejected(rule));
            }
        }
        for table in &dumped.tables {
            for chain in &table.chains {
                for rule in chain.rules.iter().filter(|rule| is_rejected(rule)) {
                    let location = self.location_of(Format::Nft, rule.line);
                    let chain_path = chain_paths::from_nft(table, &chain.name);
                    let description = format!("`{}`", rule.text);
                    items.push(
                        OmittedItem::new(location, description, self.reason.clone())
                            .with_chain(chain_path),
                    );
                }
            }
        }
        if items.is_empty() {
            let has_line = |table: &nft::Table| {
                let text = table.to_string();
                lines.iter().any(|line| text.contains(line))
            };
            let Some(index) = ruleset.tables.iter().position(has_line) else {
                return;
            };
            let name = ruleset.tables.remove(index).full_name();
            let mut tables = dumped.tables.iter();
            if let Some(table) = tables.find(|table| table.full_name() == name) {
                let location = self.location_of(Format::Nft, table.line);
                let description = format!("nftables table {name}");
                items.push(
                    OmittedItem::new(location, description, self.reason.clone())
                        .with_count_word("nftables")
                        .as_whole_table(),
                );
            }
        }
        self.namespace.nft = ruleset.into();
        self.removed.append(&mut items);
    }
}

/// Returns the command that the plan contains for a rule of the dump.
fn rule_line(chain: &str, rule: &Rule) -> String {
    Command::append(chain, rule.source_text().trim_ascii()).to_string()
}

/// Returns the dumped rules that a program loads.
fn dumped_rules<'d>(dump: &'d NodeDump, program: &str) -> Option<(Format, &'d IptablesRules)> {
    let ip = if program.starts_with("ip6") {
        Family::V6
    } else {
        Family::V4
    };
    let is_legacy = program.contains("legacy");
    let backing = if is_legacy && dump.rules.contains_key(&(ip, DumpedBackend::Legacy)) {
        DumpedBackend::Legacy
    } else {
        DumpedBackend::Default
    };
    let rules = dump.rules.get(&(ip, backing))?;
    Some((Format::Rules(ip, backing), rules))
}
