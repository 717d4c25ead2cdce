//! Removes from a plan what the kernel rejected of a replayed node, and finds the lines in the
//! dump.

use std::collections::BTreeSet;
use std::ops::Range;

use super::account::{At, LeftOut, counted};
use super::said::{because, named};
use super::ways;
use svclab_dump::NodeDump;
use svclab_model::plan::{Backend, Iptables, Namespace, Plan};
use svclab_model::protocol::{IP_ADDR, IP_ROUTE, IP_RULE, IPVSADM, Rejected, SYSCTL};
use svclab_model::tools::iptables_program;
use svclab_ruleset::iptables::{Rule, TableDump};
use svclab_ruleset::nft;
use svclab_ruleset::tool::{Backing, Format, Ip};

/// Removes the rejected items from a node, with all items that depend on them. Returns the removed
/// items; none if the dump does not contain them.
pub fn without(plan: &mut Plan, dump: &NodeDump, rejected: &Rejected) -> Vec<LeftOut> {
    let mut namespaces = plan.namespaces.iter_mut();
    let Some(namespace) = namespaces.find(|ns| ns.name == rejected.namespace) else {
        return Vec::new();
    };
    let because = because(rejected);
    let mut taking = Taking {
        namespace,
        dump,
        because,
        left: Vec::new(),
    };
    match rejected.program.as_str() {
        "ipset" => taking.set(&rejected.line),
        "nft" => taking.nft(rejected),
        SYSCTL => taking.settings(rejected),
        IP_ROUTE | IP_RULE | IP_ADDR => taking.ground(rejected),
        IPVSADM => taking.servers(|server| server.takes.to_string() == rejected.line),
        _ => taking.rules(rejected),
    }
    taking.left
}

/// Removes the items of a node that require these modules, which the kernel does not have:
/// schedulers, set types, matches and targets.
pub fn without_modules(
    plan: &mut Plan,
    node: &str,
    dump: &NodeDump,
    modules: &BTreeSet<&str>,
) -> Vec<LeftOut> {
    let Some(namespace) = plan.namespaces.iter_mut().find(|ns| ns.name == node) else {
        return Vec::new();
    };
    let mut taking = Taking {
        namespace,
        dump,
        because: String::new(),
        left: Vec::new(),
    };
    for module in modules {
        taking.because = format!("this kernel has no {module}");
        let after = |begins: &str| module.strip_prefix(begins);
        if let Some(scheduler) = after("ip_vs_") {
            taking.servers(|server| server.scheduler == scheduler);
        } else if let Some(kind) = after("ip_set_") {
            let lines = taking.namespace.ipset.lines();
            let of_kind = |line: &&str| {
                let mut words = line.split(' ');
                words.next() == Some("create") && words.nth(1) == Some(kind)
            };
            let lines: Vec<String> = lines.filter(of_kind).map(str::to_owned).collect();
            for line in lines {
                taking.set(&line);
            }
        } else if *module == "br_netfilter" {
            taking.settings_of("net.bridge.");
        } else if let Some(name) = after("ipt_").or_else(|| after("ip6t_")) {
            let program = if module.starts_with("ip6") { 6 } else { 4 };
            for backend in [Backend::Nft, Backend::Legacy] {
                let program = iptables_program(program, backend, "restore");
                taking.rules_that(&program, |rule, _| extends(rule, name));
            }
        }
    }
    taking.left
}

/// Returns the position of a table in the program's input and the rules of the table. `None` unless
/// the rejected line is the `COMMIT` of a table.
#[must_use]
pub fn committed(plan: &Plan, rejected: &Rejected) -> Option<(usize, Vec<String>)> {
    let namespace = plan.namespace(&rejected.namespace)?;
    if rejected.line != "COMMIT" {
        return None;
    }
    let text = text_of(namespace, &rejected.program)?;
    let before: Vec<&str> = text.lines().take(rejected.number).collect();
    let which = before.iter().filter(|line| **line == "COMMIT").count();
    let rules = tables(text).nth(which.checked_sub(1)?)?;
    let lines: Vec<&str> = text.lines().collect();
    let rules = lines.get(rules)?.iter().filter(|line| is_rule(line));
    Some((which, rules.map(|line| (*line).to_owned()).collect()))
}

/// Returns the plan with only the first `count` rules of the program's table at position `which`.
#[must_use]
pub fn with_rules(plan: &Plan, rejected: &Rejected, which: usize, count: usize) -> Plan {
    let mut plan = plan.clone();
    let mut namespaces = plan.namespaces.iter_mut();
    let found = namespaces.find(|ns| ns.name == rejected.namespace);
    if let Some(text) = found.and_then(|ns| text_mut(ns, &rejected.program)) {
        let Some(of) = which.checked_sub(1).and_then(|at| tables(text).nth(at)) else {
            return plan;
        };
        let mut left = count;
        let mut kept = String::new();
        for (at, line) in text.lines().enumerate() {
            if of.contains(&at) && is_rule(line) {
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
fn tables(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut begun = 0;
    let lines = text.lines().enumerate();
    let ends = lines.filter_map(move |(at, line)| {
        if line.starts_with('*') {
            begun = at;
        }
        (line == "COMMIT").then_some(begun..at + 1)
    });
    ends.collect::<Vec<_>>().into_iter()
}

fn is_rule(line: &str) -> bool {
    line.starts_with(['-', '['])
}

fn all_mut(namespace: &mut Namespace) -> impl Iterator<Item = (String, &mut String)> {
    let both = [namespace.iptables.as_mut(), namespace.beside.as_mut()];
    both.into_iter().flatten().flat_map(|rules| {
        let Iptables { backend, v4, v6 } = rules;
        [
            (iptables_program(4, *backend, "restore"), v4),
            (iptables_program(6, *backend, "restore"), v6),
        ]
    })
}

fn text_mut<'n>(namespace: &'n mut Namespace, program: &str) -> Option<&'n mut String> {
    all_mut(namespace)
        .find(|(of, _)| of == program)
        .map(|(_, text)| text)
}

fn text_of<'n>(namespace: &'n Namespace, program: &str) -> Option<&'n str> {
    let both = namespace.iptables.iter().chain(&namespace.beside);
    let mut texts =
        both.flat_map(|rules| [(4, rules.backend, &rules.v4), (6, rules.backend, &rules.v6)]);
    let found =
        texts.find(|(ip, backend, _)| iptables_program(*ip, *backend, "restore") == program);
    found.map(|(_, _, text)| text.as_str())
}

/// Whether a rule has a match or target with this name.
fn extends(rule: &Rule, name: &str) -> bool {
    let same = |own: &str| {
        own == name
            || (own, name) == ("state", "conntrack")
            || (own, name) == ("NOTRACK", "CT")
            || (matches!(own, "icmpv6" | "ipv6-icmp") && name == "icmp6")
    };
    let parts = rule.parts();
    parts.matches.iter().any(|module| same(&module.name))
        || parts.target.is_some_and(|target| same(&target.name))
}

/// Returns the names of a rule's matches and of its target or chain.
fn made_of(rule: &Rule) -> (Vec<String>, Option<String>) {
    let parts = rule.parts();
    let matches = parts.matches.iter();
    let matches = matches.map(|module| module.name.to_string()).collect();
    let target = parts.target.map(|target| target.name.into_owned());
    (matches, target)
}

struct Taking<'a> {
    namespace: &'a mut Namespace,
    dump: &'a NodeDump,
    because: String,
    left: Vec<LeftOut>,
}

impl Taking<'_> {
    fn at(&self, format: Format, line: u32) -> Option<At> {
        let file = self.dump.files.get(&format)?.clone();
        (line > 0).then_some(At { file, line })
    }

    fn leave(&mut self, at: Option<At>, what: impl Into<String>, counted_as: &str) {
        let left = LeftOut::of(at, what, self.because.clone());
        self.left.push(left.counted_as(counted_as));
    }

    fn rules(&mut self, rejected: &Rejected) {
        let Rejected {
            program,
            line,
            others,
            said,
            ..
        } = rejected;
        let load = ["Couldn't load match", "Couldn't load target", "Chain '"];
        if let Some(name) = named(said, &load) {
            return self.rules_that(program, |rule, _| extends(rule, name));
        }
        if let Some(set) = named(said, &["Set "]).filter(|_| said.contains("doesn't exist")) {
            return self.rules_that(program, |rule, _| {
                rule.sets().iter().any(|(name, _)| name == set)
            });
        }
        if let Some(table) = line.strip_prefix('*') {
            return self.rules_that(program, |_, stands| stands.table.to_string() == table);
        }
        let like = Rule::parse(line).ok().map(|(_, rule)| made_of(&rule));
        let Some(like) = like else {
            return;
        };
        // Of the rules rejected together, only those with the same matches and target are certainly
        // wrong.
        let all: BTreeSet<&str> = std::iter::once(line)
            .chain(others)
            .map(String::as_str)
            .collect();
        let first = line.as_str();
        self.lines_that(program, |line, rule| {
            line == first || (all.contains(line) && made_of(rule) == like)
        });
    }

    fn rules_that(&mut self, program: &str, go: impl Fn(&Rule, &TableDump) -> bool) {
        let (ip, backing) = kept_by(self.dump, program);
        let Some(dumped) = self.dump.rules.get(&(ip, backing)) else {
            return;
        };
        let mut gone: BTreeSet<String> = BTreeSet::new();
        for table in &dumped.tables {
            for chain in &table.chains {
                for rule in chain.rules.iter().filter(|rule| go(rule, table)) {
                    gone.insert(in_table(table, &chain.name, rule));
                }
            }
        }
        self.take(program, |table, line, _| {
            gone.contains(&format!("{table} {line}"))
        });
    }

    fn lines_that(&mut self, program: &str, go: impl Fn(&str, &Rule) -> bool) {
        self.take(program, |_, line, rule| go(line, rule));
    }

    /// Removes matching lines from the program's input, and finds each in the dump.
    fn take(&mut self, program: &str, go: impl Fn(&str, &str, &Rule) -> bool) {
        let (ip, backing) = kept_by(self.dump, program);
        let dump = self.dump;
        let Some(dumped) = dump.rules.get(&(ip, backing)) else {
            return;
        };
        let Some(text) = text_mut(self.namespace, program) else {
            return;
        };
        let mut table = "";
        let mut kept = String::with_capacity(text.len());
        let mut gone: BTreeSet<String> = BTreeSet::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name;
            }
            let goes =
                is_rule(line) && Rule::parse(line).is_ok_and(|(_, rule)| go(table, line, &rule));
            if goes {
                gone.insert(format!("{table} {line}"));
            } else {
                kept.push_str(line);
                kept.push('\n');
            }
        }
        *text = kept;
        let mut left = Vec::new();
        for table in &dumped.tables {
            for chain in &table.chains {
                for rule in &chain.rules {
                    if gone.contains(&in_table(table, &chain.name, rule)) {
                        let at = self.at(Format::Rules(ip, backing), rule.line);
                        let what = format!("`-A {} {}`", chain.name, rule.written().trim_ascii());
                        let way = ways::of_iptables(table, &chain.name);
                        let file = at.as_ref().and_then(|at| at.file.rsplit(['/', ':']).next());
                        let file = file.unwrap_or_default().to_owned();
                        let one = LeftOut::of(at, what, self.because.clone());
                        left.push(one.in_chain(way).counted_as(file));
                    }
                }
            }
        }
        self.left.append(&mut left);
    }

    /// Removes the item of a line for `ipset restore`. Removing a set removes its entries and the
    /// rules that refer to it.
    fn set(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (verb, name) = (words.next(), words.next().unwrap_or_default());
        let Some(set) = self.dump.sets.as_ref().and_then(|sets| sets.get(name)) else {
            return;
        };
        let entry = words.next().unwrap_or_default();
        let own = |line: &str| {
            let mut words = line.split(' ');
            let (verb, of, what) = (words.next(), words.next(), words.next());
            match verb {
                Some("create") => of == Some(name),
                // Entries of a list are names of other sets.
                _ => of == Some(name) || what == Some(name),
            }
        };
        let whole = verb == Some("create");
        let goes = |other: &str| if whole { own(other) } else { other == line };
        let kept = self.namespace.ipset.lines().filter(|line| !goes(line));
        self.namespace.ipset = kept.flat_map(|line| [line, "\n"]).collect();
        if !whole {
            let line = set.entries.get(entry).map_or(0, |entry| entry.line);
            let at = self.at(Format::Sets, line);
            return self.leave(at, format!("the entry {entry} of the set {name}"), "entry");
        }
        let at = self.at(Format::Sets, set.line);
        let entries = counted(set.entries.len(), "entry", "entries");
        let (kind, line) = (&set.kind, format!("the set {name}"));
        self.leave(at, format!("{line}, {kind}, with {entries}"), "set");
        let programs: Vec<String> = all_mut(self.namespace)
            .map(|(program, _)| program)
            .collect();
        self.because = format!("it asks for the set {name}, which is left out");
        for program in programs {
            self.rules_that(&program, |rule, _| {
                rule.sets().iter().any(|(set, _)| set == name)
            });
        }
    }

    /// Removes the rules at lines for `nft -f`, or otherwise the whole table that contains the
    /// lines.
    fn nft(&mut self, rejected: &Rejected) {
        let Some(dumped) = &self.dump.nft else {
            return;
        };
        let Ok(mut ruleset) = nft::parse(&self.namespace.nft) else {
            return;
        };
        let lines: BTreeSet<&str> = std::iter::once(&rejected.line)
            .chain(&rejected.others)
            .map(|line| line.trim())
            .filter(|line| !line.is_empty())
            .collect();
        let is_it = |rule: &svclab_ruleset::nft::Rule| {
            let comment = rule.comment.as_ref();
            let text = comment.map_or_else(
                || rule.text.clone(),
                |comment| format!("{} comment \"{comment}\"", rule.text),
            );
            lines.contains(text.as_str()) || lines.contains(rule.text.as_str())
        };
        let mut left = Vec::new();
        for table in &mut ruleset.tables {
            for chain in &mut table.chains {
                chain.rules.retain(|rule| !is_it(rule));
            }
        }
        for table in &dumped.tables {
            for chain in &table.chains {
                for rule in chain.rules.iter().filter(|rule| is_it(rule)) {
                    let at = self.at(Format::Nft, rule.line);
                    let way = ways::of_nft(table, &chain.name);
                    let what = format!("`{}`", rule.text);
                    left.push(LeftOut::of(at, what, self.because.clone()).in_chain(way));
                }
            }
        }
        if left.is_empty() {
            let named = nft::tables(&self.namespace.nft)
                .find(|(_, piece)| lines.iter().any(|line| piece.contains(line)))
                .map(|(name, _)| name.to_owned());
            let Some(named) = named else {
                return;
            };
            let is_named = |table: &svclab_ruleset::nft::Table| {
                format!("{} {}", table.family, table.name) == named
            };
            ruleset.tables.retain(|table| !is_named(table));
            if let Some(table) = dumped.tables.iter().find(|table| is_named(table)) {
                let at = self.at(Format::Nft, table.line);
                let what = format!("the table {named} of nftables");
                left.push(LeftOut::of(at, what, self.because.clone()).counted_as("nftables"));
            }
        }
        self.namespace.nft = ruleset.to_string();
        self.left.append(&mut left);
    }

    /// Removes the sysctls that a missing module provides.
    fn settings_of(&mut self, begins: &str) {
        let own = self.namespace.sysctls.iter();
        let own = own.filter(|own| own.key.starts_with(begins) && !own.optional);
        let mut lines = own.map(|own| format!("{}={}", own.key, own.value));
        let rejected = Rejected {
            line: lines.next().unwrap_or_default(),
            others: lines.collect(),
            said: format!(": {}", self.because),
            ..Rejected::default()
        };
        self.settings(&rejected);
    }

    fn settings(&mut self, rejected: &Rejected) {
        let lines = std::iter::once(&rejected.line).chain(&rejected.others);
        let first = rejected.said.rsplit_once(": ").map(|(_, why)| why);
        let reasons = first
            .into_iter()
            .chain(std::iter::repeat("the kernel refuses it"));
        for (line, because) in lines.zip(reasons) {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let dumped = self.dump.sysctls.as_ref();
            let Some(setting) = dumped.and_then(|settings| settings.get(key)) else {
                continue;
            };
            self.namespace.sysctls.retain(|own| own.key != key);
            let at = self.at(Format::Sysctls, setting.line);
            let mut left = LeftOut::of(at, format!("{key} = {value}"), because);
            "it stays as the kernel has it".clone_into(&mut left.affects);
            self.left.push(left.counted_as("setting"));
        }
    }

    /// Removes routes, routing rules or addresses whose text is the rejected line.
    fn ground(&mut self, rejected: &Rejected) {
        let line = &rejected.line;
        let namespace = &mut *self.namespace;
        let (mut format, mut found) = (None, 0);
        match rejected.program.as_str() {
            IP_ROUTE => {
                for (ip, dumped) in &self.dump.routes {
                    for route in dumped {
                        let is_it = super::routes::planned(namespace, self.dump, route).is_ok_and(
                            |planned| planned.is_some_and(|one| one.to_string() == *line),
                        );
                        if is_it {
                            (format, found) = (Some(Format::Routes(*ip)), route.line);
                        }
                    }
                }
                if format.is_some() {
                    namespace.routes.retain(|route| route.to_string() != *line);
                    namespace.spread.retain(|route| route.to_string() != *line);
                }
            }
            IP_RULE => {
                for (ip, dumped) in &self.dump.policy {
                    for rule in dumped {
                        let is_it = super::routes::planned_rule(*ip, rule, self.dump)
                            .is_ok_and(|planned| planned.to_string() == *line);
                        if is_it {
                            (format, found) = (Some(Format::Policy(*ip)), rule.line);
                        }
                    }
                }
                if format.is_some() {
                    namespace.policy.retain(|rule| rule.to_string() != *line);
                }
            }
            _ => {
                let (address, dev) = line.split_once(" dev ").unwrap_or((line, ""));
                let dumped = self.dump.links.as_ref();
                let dumped = dumped.and_then(|links| links.get(dev));
                let own = dumped.into_iter().flat_map(|link| &link.addresses);
                for own in own.filter(|own| own.network.to_string() == address) {
                    (format, found) = (Some(Format::Links), own.line);
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
            let at = self.at(format, found);
            let counted_as = match rejected.program.as_str() {
                IP_ROUTE => "route",
                IP_RULE => "routing",
                _ => "address",
            };
            self.leave(at, format!("{} `{line}`", rejected.program), counted_as);
        }
    }

    fn servers(&mut self, go: impl Fn(&svclab_model::plan::VirtualServer) -> bool) {
        let Some(dumped) = &self.dump.servers else {
            return;
        };
        let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.namespace.ipvs)
            .into_iter()
            .partition(go);
        self.namespace.ipvs = kept;
        for server in gone {
            let line = dumped.get(&server.takes).map_or(0, |server| server.line);
            let at = self.at(Format::Servers, line);
            let what = format!("the virtual server {}, {}", server.takes, server.scheduler);
            self.leave(at, what, "server");
        }
    }
}

/// Returns the line of a rule after the name of its table, as the plan contains it.
fn in_table(table: &TableDump, chain: &str, rule: &Rule) -> String {
    let counters = match (rule.packets, rule.bytes) {
        (Some(packets), Some(bytes)) => format!("[{packets}:{bytes}] "),
        _ => String::new(),
    };
    let words = rule.written().trim_ascii();
    format!("{} {counters}-A {chain} {words}", table.table)
}

/// Returns the family and kind of the dumped rules that a program loads.
fn kept_by(dump: &NodeDump, program: &str) -> (Ip, Backing) {
    let ip = if program.starts_with("ip6") {
        Ip::V6
    } else {
        Ip::V4
    };
    let is_legacy = program.contains("legacy");
    let backing = if is_legacy && dump.rules.contains_key(&(ip, Backing::Legacy)) {
        Backing::Legacy
    } else {
        Backing::Default
    };
    (ip, backing)
}
