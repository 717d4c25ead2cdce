//! Removes from a plan what the kernel rejected of a replayed node, and finds the lines in the
//! dump.

use std::collections::BTreeSet;
use std::ops::Range;

use super::chain_paths;
use super::rejection_reason::{quoted_word, rejection_reason};
use super::report::{FileLine, OmittedItem, count_noun};
use svclab_dump::NodeDump;
use svclab_model::plan::{Backend, Iptables, Namespace, Plan};
use svclab_model::protocol::{IP_ADDR, IP_ROUTE, IP_RULE, IPVSADM, RejectedInput, SYSCTL};
use svclab_model::tools::iptables_program;
use svclab_ruleset::iptables::{Rule, TableRules};
use svclab_ruleset::nft;
use svclab_ruleset::tool::{DumpedBackend, Format, IpFamily};

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
        "ipset" => remover.remove_set(&rejected.line),
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
            let lines = remover.namespace.ipset.lines();
            let is_kind = |line: &&str| {
                let mut words = line.split(' ');
                words.next() == Some("create") && words.nth(1) == Some(kind)
            };
            let lines: Vec<String> = lines.filter(is_kind).map(str::to_owned).collect();
            for line in lines {
                remover.remove_set(&line);
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
    let text = program_text(namespace, &rejected.program)?;
    let before: Vec<&str> = text.lines().take(rejected.line_number).collect();
    let table_number = before.iter().filter(|line| **line == "COMMIT").count();
    let rules = table_ranges(text).nth(table_number.checked_sub(1)?)?;
    let lines: Vec<&str> = text.lines().collect();
    let rules = lines.get(rules)?.iter().filter(|line| is_rule_line(line));
    Some((table_number, rules.map(|line| (*line).to_owned()).collect()))
}

/// Returns the plan with only the first `count` rules of the program's table at position `which`.
#[must_use]
pub fn truncate_table(plan: &Plan, rejected: &RejectedInput, which: usize, count: usize) -> Plan {
    let mut plan = plan.clone();
    let mut namespaces = plan.namespaces.iter_mut();
    let found = namespaces.find(|ns| ns.name == rejected.namespace);
    if let Some(text) = found.and_then(|ns| program_text_mut(ns, &rejected.program)) {
        let Some(range) = which
            .checked_sub(1)
            .and_then(|at| table_ranges(text).nth(at))
        else {
            return plan;
        };
        let mut left = count;
        let mut kept = String::new();
        for (index, line) in text.lines().enumerate() {
            if range.contains(&index) && is_rule_line(line) {
                if left == 0 {
                    continue;
                }
                left -= 1;
            }
            kept.push_str(line);
            kept.push('\n');
        }
        *text = kept;
    }
    plan
}

/// Returns the line range of each table, from its `*` to its `COMMIT`.
fn table_ranges(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    let lines = text.lines().enumerate();
    let ends = lines.filter_map(move |(index, line)| {
        if line.starts_with('*') {
            start = index;
        }
        (line == "COMMIT").then_some(start..index + 1)
    });
    ends.collect::<Vec<_>>().into_iter()
}

fn is_rule_line(line: &str) -> bool {
    line.starts_with(['-', '['])
}

fn program_texts_mut(namespace: &mut Namespace) -> impl Iterator<Item = (String, &mut String)> {
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

fn program_text_mut<'n>(namespace: &'n mut Namespace, program: &str) -> Option<&'n mut String> {
    program_texts_mut(namespace)
        .find(|(name, _)| name == program)
        .map(|(_, text)| text)
}

fn program_text<'n>(namespace: &'n Namespace, program: &str) -> Option<&'n str> {
    let backends = namespace.iptables.iter().chain(&namespace.other_iptables);
    let mut texts =
        backends.flat_map(|rules| [(4, rules.backend, &rules.v4), (6, rules.backend, &rules.v6)]);
    let found =
        texts.find(|(ip, backend, _)| iptables_program(*ip, *backend, "restore") == program);
    found.map(|(_, _, text)| text.as_str())
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
        let (ip, backing) = rules_key(self.dump, program);
        let Some(dumped) = self.dump.rules.get(&(ip, backing)) else {
            return;
        };
        let mut removed: BTreeSet<String> = BTreeSet::new();
        for table in &dumped.tables {
            for chain in &table.chains {
                for rule in chain.rules.iter().filter(|rule| is_removed(rule, table)) {
                    removed.insert(line_in_table(table, &chain.name, rule));
                }
            }
        }
        self.remove_where(program, |table, line, _| {
            removed.contains(&format!("{table} {line}"))
        });
    }

    fn remove_lines_where(&mut self, program: &str, is_removed: impl Fn(&str, &Rule) -> bool) {
        self.remove_where(program, |_, line, rule| is_removed(line, rule));
    }

    /// Removes matching lines from the program's input, and finds each in the dump.
    fn remove_where(&mut self, program: &str, is_removed: impl Fn(&str, &str, &Rule) -> bool) {
        let (ip, backing) = rules_key(self.dump, program);
        let dump = self.dump;
        let Some(dumped) = dump.rules.get(&(ip, backing)) else {
            return;
        };
        let Some(text) = program_text_mut(self.namespace, program) else {
            return;
        };
        let mut table = "";
        let mut kept = String::with_capacity(text.len());
        let mut removed: BTreeSet<String> = BTreeSet::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name;
            }
            let is_line_removed = is_rule_line(line)
                && Rule::parse(line).is_ok_and(|(_, rule)| is_removed(table, line, &rule));
            if is_line_removed {
                removed.insert(format!("{table} {line}"));
            } else {
                kept.push_str(line);
                kept.push('\n');
            }
        }
        *text = kept;
        let mut items = Vec::new();
        for table in &dumped.tables {
            for chain in &table.chains {
                for rule in &chain.rules {
                    if removed.contains(&line_in_table(table, &chain.name, rule)) {
                        let location = self.location_of(Format::Rules(ip, backing), rule.line);
                        let description =
                            format!("`-A {} {}`", chain.name, rule.source_text().trim_ascii());
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

    /// Removes the item of a line for `ipset restore`. Removing a set removes its entries and the
    /// rules that refer to it.
    fn remove_set(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (verb, name) = (words.next(), words.next().unwrap_or_default());
        let Some(set) = self.dump.sets.as_ref().and_then(|sets| sets.get(name)) else {
            return;
        };
        let entry = words.next().unwrap_or_default();
        let refers_to_set = |line: &str| {
            let mut words = line.split(' ');
            let (verb, set_name, entry_name) = (words.next(), words.next(), words.next());
            match verb {
                Some("create") => set_name == Some(name),
                // Entries of a list are names of other sets.
                _ => set_name == Some(name) || entry_name == Some(name),
            }
        };
        let is_whole_set = verb == Some("create");
        let is_line_removed = |candidate: &str| {
            if is_whole_set {
                refers_to_set(candidate)
            } else {
                candidate == line
            }
        };
        let kept = self
            .namespace
            .ipset
            .lines()
            .filter(|line| !is_line_removed(line));
        self.namespace.ipset = kept.flat_map(|line| [line, "\n"]).collect();
        if !is_whole_set {
            let line = set.entries.get(entry).map_or(0, |entry| entry.line);
            let location = self.location_of(Format::Sets, line);
            return self.add_removed(location, format!("entry {entry} of set {name}"), "entry");
        }
        let location = self.location_of(Format::Sets, set.line);
        let entries = count_noun(set.entries.len(), "entry", "entries");
        let (kind, line) = (&set.kind, format!("set {name}"));
        self.add_removed(location, format!("{line}, {kind}, with {entries}"), "set");
        let programs: Vec<String> = program_texts_mut(self.namespace)
            .map(|(program, _)| program)
            .collect();
        self.reason = format!("it refers to set {name}, which is omitted");
        for program in programs {
            self.remove_rules_where(&program, |rule, _| {
                rule.sets().iter().any(|(set, _)| set == name)
            });
        }
    }

    /// Removes the rules at lines for `nft -f`, or otherwise the whole table that contains the
    /// lines.
    fn remove_nft(&mut self, rejected: &RejectedInput) {
        let Some(dumped) = &self.dump.nft else {
            return;
        };
        let Ok(mut ruleset) = nft::parse(&self.namespace.nft) else {
            return;
        };
        let lines: BTreeSet<&str> = std::iter::once(&rejected.line)
            .chain(&rejected.related_lines)
            .map(|line| line.trim())
            .filter(|line| !line.is_empty())
            .collect();
        let is_rejected = |rule: &svclab_ruleset::nft::Rule| {
            let comment = rule.comment.as_ref();
            let text = comment.map_or_else(
                || rule.text.clone(),
                |comment| format!("{} comment \"{comment}\"", rule.text),
            );
            lines.contains(text.as_str()) || lines.contains(rule.text.as_str())
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
            let table_name = nft::tables(&self.namespace.nft)
                .find(|(_, piece)| lines.iter().any(|line| piece.contains(line)))
                .map(|(name, _)| name.to_owned());
            let Some(table_name) = table_name else {
                return;
            };
            let has_name = |table: &svclab_ruleset::nft::Table| {
                format!("{} {}", table.family, table.name) == table_name
            };
            ruleset.tables.retain(|table| !has_name(table));
            if let Some(table) = dumped.tables.iter().find(|table| has_name(table)) {
                let location = self.location_of(Format::Nft, table.line);
                let description = format!("nftables table {table_name}");
                items.push(
                    OmittedItem::new(location, description, self.reason.clone())
                        .with_count_word("nftables"),
                );
            }
        }
        self.namespace.nft = ruleset.to_string();
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

/// Returns the line of a rule after the name of its table, as the plan contains it.
fn line_in_table(table: &TableRules, chain: &str, rule: &Rule) -> String {
    let counters = match (rule.packets, rule.bytes) {
        (Some(packets), Some(bytes)) => format!("[{packets}:{bytes}] "),
        _ => String::new(),
    };
    let words = rule.source_text().trim_ascii();
    format!("{} {counters}-A {chain} {words}", table.table)
}

/// Returns the family and kind of the dumped rules that a program loads.
fn rules_key(dump: &NodeDump, program: &str) -> (IpFamily, DumpedBackend) {
    let ip = if program.starts_with("ip6") {
        IpFamily::V6
    } else {
        IpFamily::V4
    };
    let is_legacy = program.contains("legacy");
    let backing = if is_legacy && dump.rules.contains_key(&(ip, DumpedBackend::Legacy)) {
        DumpedBackend::Legacy
    } else {
        DumpedBackend::Default
    };
    (ip, backing)
}
