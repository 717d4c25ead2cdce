//! Parses the files of one node's dump and checks them against each other.

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

/// Parsed dump of a node. `None` means that the object was not dumped, which differs from an empty
/// one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeDump {
    /// iptables rules, by address family and by backend of iptables.
    pub rules: BTreeMap<(Ip, Backing), iptables::Dump>,
    /// Sets of ipset.
    pub sets: Option<Sets>,
    /// Tables of nftables.
    pub nft: Option<Ruleset>,
    /// Virtual servers of IPVS.
    pub servers: Option<Servers>,
    /// Interfaces and their addresses.
    pub links: Option<Links>,
    /// Kinds of the interfaces.
    pub kinds: Option<Kinds>,
    /// Routes, by the address family of their file. One file can contain routes of both families.
    pub routes: BTreeMap<Ip, Vec<Route>>,
    /// Routing rules, by address family.
    pub policy: BTreeMap<Ip, Vec<PolicyRule>>,
    /// Sysctls of the kernel.
    pub sysctls: Option<Sysctls>,
    /// Settings of kube-proxy.
    pub proxy: Proxy,
    /// Names of the parsed files in messages.
    pub files: BTreeMap<Format, String>,
}

/// File of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Name in messages.
    pub name: String,
    /// Format according to the file name, or `None` if the name is unknown.
    pub format: Option<Format>,
    /// Content of the file.
    pub text: String,
}

/// Result of parsing a dump: the valid part and the diagnostics.
#[derive(Debug, Clone)]
pub struct Read {
    /// Valid part of the dump.
    pub dump: NodeDump,
    /// Files that the diagnostics refer to.
    pub sources: Sources,
    /// Errors and warnings, in the order of the files.
    pub diagnostics: Vec<Diagnostic>,
    /// File names and line numbers (from 1) of all problems, including problems that are not listed
    /// in `diagnostics`.
    pub places: BTreeSet<(String, u32)>,
}

impl Read {
    /// Whether parsing found no errors.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Redacts the text of files that were reached through symbolic links from the diagnostics.
    /// `linked_to` contains the targets by file name.
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
    /// Parses the files of a dump as far as they are valid. Replaces control characters in their
    /// text and names.
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

    /// Returns the formats that can be compared. Kinds of interfaces are not included: they serve
    /// only for a replay.
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

    /// Removes data of formats for which `wanted` returns `false`.
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

    /// Whether the dump has comparable data of the format; see [`NodeDump::formats`].
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

    /// Reports rules that refer to missing sets, if the dump has sets.
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

/// Whether the text is output of `nft -j` or `ip -json`.
fn is_json(text: &str) -> bool {
    matches!(
        text.trim_ascii_start().as_bytes(),
        [b'{' | b'[', b'{' | b'[' | b'"' | b']', ..]
    )
}

/// Returns the lines of problems, which must be sorted by position.
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

/// Returns an error for two files of one program.
fn both(one: &str, other: &str, format: Format) -> Diagnostic {
    let message = format!("{other} holds what `{format}` prints, as {one} does");
    Diagnostic::error(message).help("keep one of them".to_owned())
}

/// Completes the format of rules with the address family that their text shows.
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
