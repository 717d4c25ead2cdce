//! Removes from a plan what the kernel rejected of a replayed node, and finds the lines in the
//! dump.

use std::collections::BTreeSet;

use super::chain_paths;
use super::rejection_reason::{quoted_word, rejection_reason};
use super::report::{FileLine, OmittedItem, count_noun};
use svclab_dump::NodeDump;
use svclab_model::plan::{Backend, Iptables, Namespace, Plan};
use svclab_model::protocol::{IP_ADDR, IP_ROUTE, IP_RULE, IPVSADM, RejectedInput, SYSCTL};
use svclab_model::tools::iptables_program;
use svclab_ruleset::Family;
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::iptables::command::{Command, Verb};
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::iptables::{IptablesRules, Rule, TableRules};
use svclab_ruleset::nft;
use svclab_ruleset::tool::{DumpedBackend, Format};

/// Removes the rejected items from a node, with all items that depend on them. Returns the removed
/// items; none if the dump does not contain them.
pub fn remove_rejected(
    plan: &mut Plan,
    dump: &NodeDump,
    rejected: &RejectedInput,
) -> Vec<OmittedItem> {
    let mut namespaces = plan.namespaces.iter_mut();
    let Some(namespace) = namespaces.find(|ns| ns.name == rejected.namespace) else {
        return Vec::new();
    };
    let reason = rejection_reason(rejected);
    let mut remover = RejectedRemover {
        namespace,
        dump,
        reason,
        removed: Vec::new(),
    };
    match rejected.program.as_str() {
        "ipset" => remover.remove_set_line(&rejected.line),
        "nft" => remover.remove_nft(rejected),
        SYSCTL => remover.remove_sysctls(rejected),
        IP_ROUTE | IP_RULE | IP_ADDR => remover.remove_routing(rejected),
        IPVSADM => remover.remove_servers_where(|server| server.key.to_string() == rejected.line),
        _ => remover.remove_rules(rejected),
    }
    remover.removed
}

/// Removes the items of a node that require these modules, which the kernel does not have:
/// schedulers, set types, matches and targets.
pub fn remove_missing_modules(
    plan: &mut Plan,
    node: &str,
    dump: &NodeDump,
    modules: &BTreeSet<&str>,
) -> Vec<OmittedItem> {
    let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) else {
        return Vec::new();
    };
    let mut remover = RejectedRemover {
        namespace,
        dump,
        reason: String::new(),
        removed: Vec::new(),
    };
    for module in modules {
        remover.reason = format!("kernel module {module} is not available");
        let after_prefix = |begins: &str| module.strip_prefix(begins);
        if let Some(scheduler) = after_prefix("ip_vs_") {
            remover.remove_servers_where(|server| server.scheduler == scheduler);
        } else if let Some(kind) = after_prefix("ip_set_") {
            let sets = remover.namespace.ipset.state().into_iter().flatten();
            let of_kind = sets.filter(|(_, set)| &*set.kind == kind);
            let names: Vec<String> = of_kind.map(|(name, _)| name.clone()).collect();
            for name in names {
                remover.remove_set(&name);
            }
        } else if *module == "br_netfilter" {
            remover.remove_sysctls_with_prefix("net.bridge.");
        } else if let Some(name) = after_prefix("ipt_").or_else(|| after_prefix("ip6t_")) {
            let program = if module.starts_with("ip6") { 6 } else { 4 };
            for backend in [Backend::Nft, Backend::Legacy] {
                let program = iptables_program(program, backend, "restore");
                remover.remove_rules_where(&program, |rule, _| has_extension(rule, name));
            }
        }
    }
    remover.removed
}

/// Returns the position of a table in the program's input and the rules of the table. `None` unless
/// the rejected line is the `COMMIT` of a table.
#[must_use]
pub fn committed_table(plan: &Plan, rejected: &RejectedInput) -> Option<(usize, Vec<String>)> {
    let namespace = plan.namespace(&rejected.namespace)?;
    if rejected.line != "COMMIT" {
        return None;
    }
    let input = program_input(namespace, &rejected.program)?;
    let before = input.text().lines().take(rejected.line_number);
    let table_number = before.filter(|line| *line == "COMMIT").count();
    let mut blocks = input.state().ok()?.tables();
    let (_, block) = blocks.nth(table_number.checked_sub(1)?)?;
    let rules = block.commands.iter().map(ToString::to_string);
    Some((table_number, rules.collect()))
}

/// Returns the plan with only the first `count` rules of the program's table at position `which`.
#[must_use]
pub fn truncate_table(plan: &Plan, rejected: &RejectedInput, which: usize, count: usize) -> Plan {
    let mut plan = plan.clone();
    let mut namespaces = plan.namespaces.iter_mut();
    let found = namespaces.find(|ns| ns.name == rejected.namespace);
    if let Some(input) = found.and_then(|ns| program_input_mut(ns, &rejected.program)) {
        let truncated = input.edit(|script| {
            let mut blocks = script.tables_mut();
            let block = which.checked_sub(1).and_then(|index| blocks.nth(index));
            if let Some((_, block)) = block {
                block.commands.truncate(count);
            }
        });
        debug_assert!(truncated.is_ok(), "the planner renders the scripts");
    }
    plan
}

fn program_inputs_mut(
    namespace: &mut Namespace,
) -> impl Iterator<Item = (String, &mut Input<IptablesScript>)> {
    let backends = [
        namespace.iptables.as_mut(),
        namespace.other_iptables.as_mut(),
    ];
    backends.into_iter().flatten().flat_map(|rules| {
        let Iptables { backend, v4, v6 } = rules;
        [
            (iptables_program(4, *backend, "restore"), v4),
            (iptables_program(6, *backend, "restore"), v6),
        ]
    })
}

fn program_input_mut<'n>(
    namespace: &'n mut Namespace,
    program: &str,
) -> Option<&'n mut Input<IptablesScript>> {
    program_inputs_mut(namespace)
        .find(|(name, _)| name == program)
        .map(|(_, input)| input)
}

fn program_input<'n>(namespace: &'n Namespace, program: &str) -> Option<&'n Input<IptablesScript>> {
    let backends = namespace.iptables_rules();
    let mut inputs =
        backends.flat_map(|rules| [(4, rules.backend, &rules.v4), (6, rules.backend, &rules.v6)]);
    let found =
        inputs.find(|(ip, backend, _)| iptables_program(*ip, *backend, "restore") == program);
    found.map(|(_, _, input)| input)
}

/// Whether a rule has a match or target with this name.
fn has_extension(rule: &Rule, name: &str) -> bool {
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

struct RejectedRemover<'a> {
    namespace: &'a mut Namespace,
    dump: &'a NodeDump,
    reason: String,
    removed: Vec<OmittedItem>,
}

impl RejectedRemover<'_> {
    fn location_of(&self, format: Format, line: u32) -> Option<FileLine> {
        let file = self.dump.files.get(&format)?.clone();
        (line > 0).then_some(FileLine { file, line })
    }

    fn add_removed(
        &mut self,
        location: Option<FileLine>,
        description: impl Into<String>,
        counted_as: &str,
    ) {
        let item = OmittedItem::new(location, description, self.reason.clone());
        self.removed.push(item.with_count_word(counted_as));
    }

    fn remove_rules(&mut self, rejected: &RejectedInput) {
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
            return self.remove_rules_where(program, |_, rule_table| {
                rule_table.table.to_string() == table
            });
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

    fn remove_rules_where(
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

    /// Removes the item of a line for `ipset restore`.
    fn remove_set_line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (verb, name) = (words.next(), words.next().unwrap_or_default());
        if verb == Some("create") {
            return self.remove_set(name);
        }
        let Some(set) = self.dump.sets.as_ref().and_then(|sets| sets.get(name)) else {
            return;
        };
        let entry = words.next().unwrap_or_default();
        self.edit_sets(|sets| {
            if let Some(set) = sets.get_mut(name) {
                set.entries.shift_remove(entry);
            }
        });
        let line = set.entries.get(entry).map_or(0, |entry| entry.line);
        let location = self.location_of(Format::Sets, line);
        self.add_removed(location, format!("entry {entry} of set {name}"), "entry");
    }

    /// Removes a set with its entries, and the entries and rules that refer to it.
    fn remove_set(&mut self, name: &str) {
        let Some(set) = self.dump.sets.as_ref().and_then(|sets| sets.get(name)) else {
            return;
        };
        self.edit_sets(|sets| {
            sets.shift_remove(name);
            // Entries of a list are names of other sets.
            for set in sets.values_mut() {
                set.entries.shift_remove(name);
            }
        });
        let location = self.location_of(Format::Sets, set.line);
        let entries = count_noun(set.entries.len(), "entry", "entries");
        let description = format!("set {name}, {}, with {entries}", set.kind);
        self.add_removed(location, description, "set");
        let programs: Vec<String> = program_inputs_mut(self.namespace)
            .map(|(program, _)| program)
            .collect();
        self.reason = format!("it refers to set {name}, which is omitted");
        for program in programs {
            self.remove_rules_where(&program, |rule, _| {
                rule.sets().iter().any(|(set, _)| set == name)
            });
        }
    }

    fn edit_sets(&mut self, edit: impl FnOnce(&mut Sets)) {
        let edited = self.namespace.ipset.edit(edit);
        debug_assert!(edited.is_ok(), "the sets come from the dump");
    }

    /// Removes the rules at lines for `nft -f`, or otherwise the whole table that contains the
    /// lines.
    fn remove_nft(&mut self, rejected: &RejectedInput) {
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
                        .with_count_word("nftables"),
                );
            }
        }
        self.namespace.nft = ruleset.into();
        self.removed.append(&mut items);
    }

    /// Removes the sysctls that a missing module provides.
    fn remove_sysctls_with_prefix(&mut self, prefix: &str) {
        let required = self.namespace.sysctls.iter();
        let required = required.filter(|own| own.key.starts_with(prefix) && !own.optional);
        let mut lines = required.map(|own| format!("{}={}", own.key, own.value));
        let rejected = RejectedInput {
            line: lines.next().unwrap_or_default(),
            related_lines: lines.collect(),
            message: format!(": {}", self.reason),
            ..RejectedInput::default()
        };
        self.remove_sysctls(&rejected);
    }

    fn remove_sysctls(&mut self, rejected: &RejectedInput) {
        let lines = std::iter::once(&rejected.line).chain(&rejected.related_lines);
        let first = rejected.message.rsplit_once(": ").map(|(_, why)| why);
        let reasons = first
            .into_iter()
            .chain(std::iter::repeat("the kernel rejects it"));
        for (line, reason) in lines.zip(reasons) {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let dumped = self.dump.sysctls.as_ref();
            let Some(setting) = dumped.and_then(|settings| settings.get(key)) else {
                continue;
            };
            self.namespace.sysctls.retain(|own| own.key != key);
            let location = self.location_of(Format::Sysctls, setting.line);
            let mut item = OmittedItem::new(location, format!("{key} = {value}"), reason);
            "the sysctl keeps the value of the kernel".clone_into(&mut item.affects);
            self.removed.push(item.with_count_word("sysctl"));
        }
    }

    /// Removes routes, routing rules or addresses whose text is the rejected line.
    fn remove_routing(&mut self, rejected: &RejectedInput) {
        let line = &rejected.line;
        let namespace = &mut *self.namespace;
        let (mut format, mut line_number) = (None, 0);
        match rejected.program.as_str() {
            IP_ROUTE => {
                for (ip, dumped) in &self.dump.routes {
                    for route in dumped {
                        let is_it = super::routes::plan_route(namespace, self.dump, route)
                            .is_ok_and(|planned| {
                                planned.is_some_and(|one| one.to_string() == *line)
                            });
                        if is_it {
                            (format, line_number) = (Some(Format::Routes(*ip)), route.line);
                        }
                    }
                }
                if format.is_some() {
                    namespace.routes.retain(|route| route.to_string() != *line);
                    namespace
                        .multipath_routes
                        .retain(|route| route.to_string() != *line);
                }
            }
            IP_RULE => {
                for (ip, dumped) in &self.dump.routing_rules {
                    for rule in dumped {
                        let is_it = super::routes::plan_routing_rule(*ip, rule, self.dump)
                            .is_ok_and(|planned| planned.to_string() == *line);
                        if is_it {
                            (format, line_number) = (Some(Format::RoutingRules(*ip)), rule.line);
                        }
                    }
                }
                if format.is_some() {
                    namespace
                        .routing_rules
                        .retain(|rule| rule.to_string() != *line);
                }
            }
            _ => {
                let (address, dev) = line.split_once(" dev ").unwrap_or((line, ""));
                let dumped = self.dump.links.as_ref();
                let dumped = dumped.and_then(|links| links.get(dev));
                let addresses = dumped.into_iter().flat_map(|link| &link.addresses);
                for own in addresses.filter(|own| own.network.to_string() == address) {
                    (format, line_number) = (Some(Format::Links), own.line);
                }
                if format.is_some() {
                    let mut links = namespace.links.iter_mut();
                    if let Some(link) = links.find(|link| link.name == dev) {
                        link.addresses.retain(|own| own.to_string() != address);
                    }
                    if dev == "lo" {
                        let all = &mut namespace.loopback;
                        all.retain(|own| own.to_string() != address);
                    }
                }
            }
        }
        if let Some(format) = format {
            let location = self.location_of(format, line_number);
            let counted_as = match rejected.program.as_str() {
                IP_ROUTE => "route",
                IP_RULE => "routing",
                _ => "address",
            };
            self.add_removed(
                location,
                format!("{} `{line}`", rejected.program),
                counted_as,
            );
        }
    }

    fn remove_servers_where(
        &mut self,
        is_removed: impl Fn(&svclab_model::plan::VirtualServer) -> bool,
    ) {
        let Some(dumped) = &self.dump.servers else {
            return;
        };
        let (removed, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.namespace.ipvs)
            .into_iter()
            .partition(is_removed);
        self.namespace.ipvs = kept;
        for server in removed {
            let line = dumped.get(&server.key).map_or(0, |server| server.line);
            let location = self.location_of(Format::VirtualServers, line);
            let description = format!("virtual server {}, {}", server.key, server.scheduler);
            self.add_removed(location, description, "server");
        }
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
