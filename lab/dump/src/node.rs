//! All that was dumped of a node: each file read by the program that printed it,
//! and all of them checked together.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::proxy::Proxy;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::printable::{one_line, printable};
use svclab_diagnostic::source::Sources;
use svclab_diagnostic::source::{FileId, Source};
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::ipvs::saved::Servers;
use svclab_ruleset::link::Links;
use svclab_ruleset::link::kind;
use svclab_ruleset::link::kind::Kinds;
use svclab_ruleset::nft::Ruleset;
use svclab_ruleset::route::Route;
use svclab_ruleset::route::rule::PolicyRule;
use svclab_ruleset::sysctl::Sysctls;
use svclab_ruleset::text::limits::MAX_TOLD;
use svclab_ruleset::text::problem::{Problem, Wrong};
use svclab_ruleset::text::{Text, lines};
use svclab_ruleset::tool::{Backing, Format, Ip};
use svclab_ruleset::{ipset, iptables, ipvs, link, nft, route, sysctl};

/// What was dumped of a node. What was not dumped is none, which is not the same
/// as empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeDump {
    /// Rules, by family and by the kind of iptables that keeps them.
    pub rules: BTreeMap<(Ip, Backing), iptables::Dump>,
    /// Sets.
    pub sets: Option<Sets>,
    /// Tables of nftables.
    pub nft: Option<Ruleset>,
    /// Virtual servers of IPVS.
    pub servers: Option<Servers>,
    /// Interfaces and addresses.
    pub links: Option<Links>,
    /// What kinds of interfaces they are.
    pub kinds: Option<Kinds>,
    /// Routes, by the file they were in: one file may hold those of both
    /// families.
    pub routes: BTreeMap<Ip, Vec<Route>>,
    /// Routing rules.
    pub policy: BTreeMap<Ip, Vec<PolicyRule>>,
    /// Settings of the kernel.
    pub sysctls: Option<Sysctls>,
    /// What kube-proxy was told.
    pub proxy: Proxy,
    /// The names of the files that were read, as messages call them.
    pub files: BTreeMap<Format, String>,
}

/// A file of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name in messages.
    pub name: String,
    /// What it holds, if its name says so.
    pub format: Option<Format>,
    /// What is in it.
    pub text: String,
}

/// A dump as far as it could be read, and what is wrong with it.
#[derive(Debug, Clone)]
pub struct Read {
    /// The dump.
    pub dump: NodeDump,
    /// The files that diagnostics point into.
    pub sources: Sources,
    /// What is wrong, in the order of the files.
    pub diagnostics: Vec<Diagnostic>,
    /// The lines of files at which something is wrong, from 1, also of what is not told any
    /// more.
    pub places: BTreeSet<(String, u32)>,
}

impl Read {
    /// Whether everything could be read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Keeps what diagnostics repeat of some files from being shown: by their names,
    /// those that symbolic links led to.
    pub(super) fn hide(&mut self, linked_to: &BTreeMap<String, PathBuf>) {
        let sources = self.sources.iter().map(|(_, source)| {
            let file = linked_to.get(source.name()).cloned();
            source.clone().linked_to(file)
        });
        self.sources = Sources::new(sources.collect());
        self.diagnostics = self.sources.redact(std::mem::take(&mut self.diagnostics));
    }
}

impl NodeDump {
    /// Reads the files of a dump, as far as they can be read. Control characters of
    /// their text and names are replaced.
    #[must_use]
    pub fn read(files: Vec<File>) -> Read {
        let safe = |file: File| File {
            name: one_line(&file.name).into_owned(),
            text: match printable(&file.text) {
                Cow::Borrowed(_) => file.text,
                Cow::Owned(text) => text,
            },
            ..file
        };
        let files: Vec<File> = files.into_iter().map(safe).collect();
        let sources: Vec<Source> = files
            .iter()
            .map(|file| Source::of_text(&file.name, &file.text))
            .collect();
        let sources = Sources::new(sources);
        let mut dump = Self::default();
        let mut found: Vec<(FileId, Text, Vec<Problem>)> = Vec::new();
        let mut diagnostics = Vec::new();
        let mut twice = false;
        for ((id, _), file) in sources.iter().zip(files) {
            let File { name, format, text } = file;
            let looks = Format::of_text(&text).map(|looks| with_family(looks, &text));
            let Some(format) = format.or(looks) else {
                diagnostics.push(unknown(&name, &text));
                continue;
            };
            if let Some(other) = dump.files.get(&format) {
                if !twice {
                    diagnostics.push(both(other, &name, format));
                }
                twice = true;
                continue;
            }
            let text = Text::new(text);
            let mut problems = Vec::new();
            match looks {
                None if format.is_never_empty() && text.trim_ascii().is_empty() => {
                    problems.push(Problem::new(Wrong::Empty(format), 0..0));
                }
                None if is_json(&text) && format != Format::ProxyConfiguration => {
                    let end = text.find('\n').unwrap_or(text.len());
                    problems.push(Problem::new(Wrong::Json(format), 0..end));
                }
                Some(looks) if !format.may_be(looks) => {
                    let first = lines(&text).find(|line| {
                        Format::of_text(line.text).is_some_and(|line| line.may_be(looks))
                    });
                    let at = first.map_or(0..0, |line| line.start..line.end());
                    let named = format;
                    problems.push(Problem::new(Wrong::Mixed { named, looks }, at));
                }
                _ => dump.take(format, &text, &mut problems),
            }
            dump.files.insert(format, name);
            found.push((id, text, problems));
        }
        dump.check_sets(&sources, &mut found);
        let mut places = BTreeSet::new();
        for (id, text, mut problems) in found {
            problems.sort_by_key(|problem| problem.at.start);
            let name = sources.get(id).map_or("", Source::name);
            places.extend(lines_of(&text, &problems).map(|line| (name.to_owned(), line)));
            let told = problems.iter().take(MAX_TOLD);
            diagnostics.extend(told.map(|problem| problem.diagnostic(id, &text)));
            let more = &problems[problems.len().min(MAX_TOLD)..];
            if !more.is_empty() {
                let name = sources.get(id).map_or("", Source::name);
                let message = format!("{name}: {} more, not shown", more.len());
                let wrong = |problem: &Problem| problem.diagnostic(id, "").is_error();
                diagnostics.push(if more.iter().any(wrong) {
                    Diagnostic::error(message)
                } else {
                    Diagnostic::warning(message)
                });
            }
        }
        Read {
            dump,
            sources,
            diagnostics,
            places,
        }
    }

    /// The formats of which it has something to compare: what kinds interfaces are of
    /// is for making them again.
    pub fn formats(&self) -> impl Iterator<Item = Format> + '_ {
        let rules = self
            .rules
            .keys()
            .map(|(ip, kept)| Format::Rules(*ip, *kept));
        let one = [
            (Format::Sets, self.sets.is_some()),
            (Format::Nft, self.nft.is_some()),
            (Format::Servers, self.servers.is_some()),
            (Format::Links, self.links.is_some()),
            (Format::Sysctls, self.sysctls.is_some()),
        ];
        let one = one.into_iter().filter(|(_, has)| *has);
        rules
            .chain(one.map(|(format, _)| format))
            .chain(self.routes.keys().map(|ip| Format::Routes(*ip)))
            .chain(self.policy.keys().map(|ip| Format::Policy(*ip)))
    }

    /// Leaves out what is of other formats than those wanted.
    pub fn keep(&mut self, wanted: impl Fn(Format) -> bool) {
        self.rules
            .retain(|(ip, kept), _| wanted(Format::Rules(*ip, *kept)));
        self.routes.retain(|ip, _| wanted(Format::Routes(*ip)));
        self.policy.retain(|ip, _| wanted(Format::Policy(*ip)));
        self.sets = self.sets.take().filter(|_| wanted(Format::Sets));
        self.nft = self.nft.take().filter(|_| wanted(Format::Nft));
        self.servers = self.servers.take().filter(|_| wanted(Format::Servers));
        self.links = self.links.take().filter(|_| wanted(Format::Links));
        self.kinds = self.kinds.take().filter(|_| wanted(Format::Kinds));
        self.sysctls = self.sysctls.take().filter(|_| wanted(Format::Sysctls));
    }

    /// Whether it has something of that format.
    #[must_use]
    pub fn has(&self, format: Format) -> bool {
        self.formats().any(|known| known == format)
    }

    fn take(&mut self, format: Format, text: &Text, problems: &mut Vec<Problem>) {
        match format {
            Format::Rules(ip, backing) => {
                let dump = iptables::Dump::read(text, problems);
                self.rules.insert((ip, backing), dump);
            }
            Format::Sets => self.sets = Some(ipset::saved::read(text, problems)),
            Format::Nft => self.nft = Some(nft::read(text, problems)),
            Format::Servers => self.servers = Some(ipvs::saved::read(text, problems)),
            Format::Links => self.links = Some(link::read(text, problems)),
            Format::Kinds => self.kinds = Some(kind::read(text, problems)),
            Format::Routes(ip) => {
                self.routes.insert(ip, route::read(text, ip, problems));
            }
            Format::Policy(ip) => {
                self.policy
                    .insert(ip, route::rule::read(text, ip, problems));
            }
            Format::Sysctls => self.sysctls = Some(sysctl::read(text, problems)),
            Format::ProxyFlags => self.proxy.flags(text),
            Format::ProxyConfiguration => self.proxy.configuration(text),
        }
    }

    /// Finds rules that name sets which the dump, though it has sets, lacks.
    fn check_sets(&self, sources: &Sources, found: &mut [(FileId, Text, Vec<Problem>)]) {
        let (Some(sets), Some(file)) = (&self.sets, self.files.get(&Format::Sets)) else {
            return;
        };
        for ((ip, backing), dump) in &self.rules {
            let name = self.files.get(&Format::Rules(*ip, *backing));
            let is_it = |id: FileId| sources.get(id).map(Source::name) == name.map(String::as_str);
            let Some((_, _, problems)) = found.iter_mut().find(|(id, ..)| is_it(*id)) else {
                continue;
            };
            let chains = dump.tables.iter().flat_map(|table| &table.chains);
            for rule in chains.flat_map(|chain| &chain.rules) {
                for (set, at) in rule.sets() {
                    if !sets.contains_key(set.as_ref()) {
                        let wrong = Wrong::NoSet {
                            name: set.into_owned(),
                            file: file.clone(),
                        };
                        problems.push(Problem::new(wrong, at));
                    }
                }
            }
        }
    }
}

/// Whether it is what `nft -j` or `ip -json` prints.
fn is_json(text: &str) -> bool {
    matches!(
        text.trim_ascii_start().as_bytes(),
        [b'{' | b'[', b'{' | b'[' | b'"' | b']', ..]
    )
}

/// The lines at which problems are, which are in their order.
fn lines_of<'p>(text: &'p str, problems: &'p [Problem]) -> impl Iterator<Item = u32> + 'p {
    let (mut at, mut line) = (0, 1);
    problems.iter().map(move |problem| {
        let start = text.floor_char_boundary(problem.at.start).max(at);
        let passed = text[at..start].bytes().filter(|byte| *byte == b'\n');
        line += u32::try_from(passed.count()).unwrap_or(u32::MAX);
        at = start;
        line
    })
}

/// Two files of one program, of which one is told.
fn both(one: &str, other: &str, format: Format) -> Diagnostic {
    let message = format!("{other} holds what `{format}` prints, as {one} does");
    Diagnostic::error(message).help("keep one of them".to_owned())
}

/// Of rules, the family that they are of.
fn with_family(looks: Format, text: &str) -> Format {
    let Format::Rules(_, backing) = looks else {
        return looks;
    };
    let six = text.contains("ip6tables-save") || text.contains("icmp6-") || {
        let mut words = text.split_ascii_whitespace();
        words.any(|word| matches!(word, "-s" | "-d"))
            && words.next().is_some_and(|value| value.contains(':'))
    };
    Format::Rules(if six { Ip::V6 } else { Ip::V4 }, backing)
}

fn unknown(name: &str, text: &str) -> Diagnostic {
    if text.trim_ascii().is_empty() {
        return Diagnostic::error(format!("{name}: there is nothing in it"))
            .help("name the output of a program, or a tarball of scripts/collect-node");
    }
    if is_json(text) {
        return Diagnostic::error(format!("{name}: this is JSON, which is not read"))
            .help("save it without the option for JSON, `-j` or `-json`");
    }
    let names = "iptables-save, ip6tables-save, ipset-save, nft, ipvsadm-Sn, ip-addr, ip-route, ip-6-route, ip-rule, ip-6-rule or sysctl-a";
    Diagnostic::error(format!(
        "{name}: neither its name nor what is in it says which program printed it"
    ))
    .help(format!("name it {names}"))
}
