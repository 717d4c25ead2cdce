//! Parses the files of one node's dump and checks them against each other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::gap::Gap;
use super::proxy::KubeProxySettings;
use super::recognise::with_family;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::printable::{one_line, printable};
use svclab_diagnostic::source::Sources;
use svclab_diagnostic::source::{FileId, Source};
use svclab_ruleset::Family;
use svclab_ruleset::bridge::{fdb, port, port::Ports};
use svclab_ruleset::conntrack::{self, Connections};
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::ipvs::saved::Servers;
use svclab_ruleset::link::Links;
use svclab_ruleset::link::kind;
use svclab_ruleset::link::kind::LinkKinds;
use svclab_ruleset::neighbour::Neighbour;
use svclab_ruleset::nft::Ruleset;
use svclab_ruleset::route::Route;
use svclab_ruleset::route::rule::PolicyRule;
use svclab_ruleset::sysctl::Sysctls;
use svclab_ruleset::text::limits::MAX_REPORTED;
use svclab_ruleset::text::problem::{Problem, ProblemKind};
use svclab_ruleset::text::{Text, lines};
use svclab_ruleset::tool::{DumpedBackend, Format};
use svclab_ruleset::traffic_control::listing::{self, Listings};
use svclab_ruleset::traffic_control::qdisc::{self, Qdisc};
use svclab_ruleset::{ipset, iptables, ipvs, link, neighbour, nft, route, sysctl};

/// Parsed dump of a node. `None` means that the object was not dumped, which differs from an empty
/// one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeDump {
    /// iptables rules, by address family and by backend of iptables.
    pub rules: BTreeMap<(Family, DumpedBackend), iptables::IptablesRules>,
    /// Sets of ipset.
    pub sets: Option<Sets>,
    /// Tables of nftables.
    pub nft: Option<Ruleset>,
    /// Virtual servers of IPVS.
    pub servers: Option<Servers>,
    /// Interfaces and their addresses.
    pub links: Option<Links>,
    /// Kinds of the interfaces.
    pub kinds: Option<LinkKinds>,
    /// Bridge ports according to `bridge link`; see [`NodeDump::bridge_ports`].
    pub ports: Option<Ports>,
    /// Forwarding entries of bridges and VXLAN devices, also those that expire.
    pub forwarding: Option<Vec<fdb::Entry>>,
    /// Neighbours, also those that expire.
    pub neighbours: Option<Vec<Neighbour>>,
    /// Routes, by the address family of their file. One file can contain routes of both families.
    pub routes: BTreeMap<Family, Vec<Route>>,
    /// Routing rules, by address family.
    pub routing_rules: BTreeMap<Family, Vec<PolicyRule>>,
    /// Queueing disciplines.
    pub qdiscs: Option<Vec<Qdisc>>,
    /// Classes of queueing disciplines.
    pub classes: Option<Listings>,
    /// Filters of queueing disciplines.
    pub filters: Option<Listings>,
    /// Tracked connections.
    pub connections: Option<Connections>,
    /// Sysctls of the kernel.
    pub sysctls: Option<Sysctls>,
    /// Settings of kube-proxy.
    pub proxy: KubeProxySettings,
    /// Names of the parsed files in messages.
    pub files: BTreeMap<Format, String>,
}

/// End of the diagnostic that counts the problems of a file without a diagnostic of their own.
pub const NOT_SHOWN: &str = "more, not shown";

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
pub struct ParsedDump {
    /// Valid part of the dump.
    pub dump: NodeDump,
    /// Files that the diagnostics refer to.
    pub sources: Sources,
    /// Errors and warnings, in the order of the files.
    pub diagnostics: Vec<Diagnostic>,
    /// Files of the directory or archive that are not read.
    pub gaps: Vec<Gap>,
    /// File names and line numbers (from 1) of all problems, including problems that are not listed
    /// in `diagnostics`.
    pub problem_lines: BTreeSet<(String, u32)>,
    /// File names and line numbers of the problems with which a whole table is lost.
    pub lost_table_lines: BTreeSet<(String, u32)>,
}

impl ParsedDump {
    /// Whether parsing found no errors.
    #[must_use]
    pub fn has_no_errors(&self) -> bool {
        !self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Redacts the text of files that were reached through symbolic links from the diagnostics.
    /// `linked_to` contains the targets by file name.
    pub(super) fn redact(&mut self, linked_to: &BTreeMap<String, PathBuf>) {
        let sources = self.sources.iter().map(|(_, source)| {
            let file = linked_to.get(source.name()).cloned();
            source.clone().with_link_target(file)
        });
        self.sources = Sources::new(sources.collect());
        self.diagnostics = self.sources.redact(std::mem::take(&mut self.diagnostics));
    }
}

impl NodeDump {
    /// Parses the files of a dump as far as they are valid. Replaces control characters in their
    /// text and names.
    #[must_use]
    pub fn parse(files: Vec<File>) -> ParsedDump {
        let sanitize = |file: File| File {
            name: one_line(&file.name).into_owned(),
            text: match printable(&file.text) {
                Cow::Borrowed(_) => file.text,
                Cow::Owned(text) => text,
            },
            ..file
        };
        let files: Vec<File> = files.into_iter().map(sanitize).collect();
        let sources: Vec<Source> = files
            .iter()
            .map(|file| Source::from_text(&file.name, &file.text))
            .collect();
        let sources = Sources::new(sources);
        let mut dump = Self::default();
        let mut parsed: Vec<(FileId, Text, Vec<Problem>)> = Vec::new();
        let mut diagnostics = Vec::new();
        let mut has_duplicate = false;
        for ((id, _), file) in sources.iter().zip(files) {
            let File { name, format, text } = file;
            let detected = Format::detect(&text).map(|looks| with_family(looks, &text));
            let Some(format) = format.or(detected) else {
                diagnostics.push(unknown_format_error(&name, &text));
                continue;
            };
            if let Some(first_file) = dump.files.get(&format) {
                if !has_duplicate {
                    diagnostics.push(duplicate_error(first_file, &name, format));
                }
                has_duplicate = true;
                continue;
            }
            let text = Text::new(text);
            let mut problems = Vec::new();
            match detected {
                None if format.is_never_empty() && text.trim_ascii().is_empty() => {
                    problems.push(Problem::new(ProblemKind::EmptyFile(format), 0..0));
                }
                None if is_json(&text) && !reads_json(format) => {
                    let end = text.find('\n').unwrap_or(text.len());
                    problems.push(Problem::new(ProblemKind::Json(format), 0..end));
                }
                Some(looks) if !format.is_compatible_with(looks) => {
                    let first = lines(&text).find(|line| {
                        Format::detect(line.text).is_some_and(|line| line.is_compatible_with(looks))
                    });
                    let range = first.map_or(0..0, |line| line.start..line.end());
                    let named = format;
                    problems.push(Problem::new(
                        ProblemKind::FormatMismatch {
                            named,
                            content: looks,
                        },
                        range,
                    ));
                }
                _ => dump.parse_file(format, &text, &mut problems),
            }
            dump.files.insert(format, name);
            parsed.push((id, text, problems));
        }
        dump.check_sets(&sources, &mut parsed);
        let mut places = BTreeSet::new();
        let mut lost_table_lines = BTreeSet::new();
        for (id, text, mut problems) in parsed {
            problems.sort_by_key(|problem| problem.range.start);
            let name = sources.get(id).map_or("", Source::name);
            let lines = problem_lines(&text, &problems).map(|line| (name.to_owned(), line));
            for (place, problem) in lines.zip(&problems) {
                if problem.kind.loses_table() {
                    lost_table_lines.insert(place.clone());
                }
                places.insert(place);
            }
            let shown = problems.iter().take(MAX_REPORTED);
            diagnostics.extend(shown.map(|problem| problem.diagnostic(id, &text)));
            let hidden = &problems[problems.len().min(MAX_REPORTED)..];
            if !hidden.is_empty() {
                let name = sources.get(id).map_or("", Source::name);
                let message = format!("{name}: {} {NOT_SHOWN}", hidden.len());
                let is_error = |problem: &Problem| problem.diagnostic(id, "").is_error();
                diagnostics.push(if hidden.iter().any(is_error) {
                    Diagnostic::error(message)
                } else {
                    Diagnostic::warning(message)
                });
            }
        }
        ParsedDump {
            dump,
            sources,
            diagnostics,
            gaps: Vec::new(),
            problem_lines: places,
            lost_table_lines,
        }
    }

    /// Returns the formats that can be compared. Both sources of kube-proxy's settings are one
    /// format. Bridge ports are included if `bridge link` or `ip -d link` printed them.
    pub fn formats(&self) -> impl Iterator<Item = Format> + '_ {
        let rules = self
            .rules
            .keys()
            .map(|(ip, backend)| Format::Rules(*ip, *backend));
        let optional_formats = [
            (Format::Sets, self.sets.is_some()),
            (Format::Nft, self.nft.is_some()),
            (Format::VirtualServers, self.servers.is_some()),
            (Format::Links, self.links.is_some()),
            (Format::LinkDetails, self.kinds.is_some()),
            (Format::ProxyFlags, self.proxy.is_known()),
            (Format::Qdiscs, self.qdiscs.is_some()),
            (Format::TrafficClasses, self.classes.is_some()),
            (Format::TrafficFilters, self.filters.is_some()),
            (Format::Connections, self.connections.is_some()),
            (Format::BridgePorts, self.bridge_ports().is_some()),
            (Format::Forwarding, self.forwarding.is_some()),
            (Format::Neighbours, self.neighbours.is_some()),
            (Format::Sysctls, self.sysctls.is_some()),
        ];
        let present_formats = optional_formats.into_iter().filter(|(_, has)| *has);
        rules
            .chain(present_formats.map(|(format, _)| format))
            .chain(self.routes.keys().map(|ip| Format::Routes(*ip)))
            .chain(
                self.routing_rules
                    .keys()
                    .map(|ip| Format::RoutingRules(*ip)),
            )
    }

    /// Removes data of formats for which `wanted` returns `false`.
    pub fn retain_formats(&mut self, wanted: impl Fn(Format) -> bool) {
        self.rules
            .retain(|(ip, backend), _| wanted(Format::Rules(*ip, *backend)));
        self.routes.retain(|ip, _| wanted(Format::Routes(*ip)));
        self.routing_rules
            .retain(|ip, _| wanted(Format::RoutingRules(*ip)));
        self.sets = self.sets.take().filter(|_| wanted(Format::Sets));
        self.nft = self.nft.take().filter(|_| wanted(Format::Nft));
        self.servers = self
            .servers
            .take()
            .filter(|_| wanted(Format::VirtualServers));
        self.links = self.links.take().filter(|_| wanted(Format::Links));
        self.kinds = self.kinds.take().filter(|_| wanted(Format::LinkDetails));
        self.qdiscs = self.qdiscs.take().filter(|_| wanted(Format::Qdiscs));
        self.classes = self
            .classes
            .take()
            .filter(|_| wanted(Format::TrafficClasses));
        self.filters = self
            .filters
            .take()
            .filter(|_| wanted(Format::TrafficFilters));
        self.connections = self
            .connections
            .take()
            .filter(|_| wanted(Format::Connections));
        self.ports = self.ports.take().filter(|_| wanted(Format::BridgePorts));
        self.forwarding = self
            .forwarding
            .take()
            .filter(|_| wanted(Format::Forwarding));
        self.neighbours = self
            .neighbours
            .take()
            .filter(|_| wanted(Format::Neighbours));
        self.sysctls = self.sysctls.take().filter(|_| wanted(Format::Sysctls));
    }

    /// Whether the dump has comparable data of the format; see [`NodeDump::formats`].
    #[must_use]
    pub fn has(&self, format: Format) -> bool {
        self.formats().any(|known| known == format)
    }

    fn parse_file(&mut self, format: Format, text: &Text, problems: &mut Vec<Problem>) {
        match format {
            Format::Rules(ip, backing) => {
                let dump = iptables::IptablesRules::parse_with_problems(text, problems);
                self.rules.insert((ip, backing), dump);
            }
            Format::Sets => self.sets = Some(ipset::saved::parse(text, problems)),
            Format::Nft => self.nft = Some(nft::parse_ruleset(text, problems)),
            Format::VirtualServers => self.servers = Some(ipvs::saved::parse(text, problems)),
            Format::Links => self.links = Some(link::parse(text, problems)),
            Format::LinkDetails => self.kinds = Some(kind::parse(text, problems)),
            Format::BridgePorts => self.ports = Some(port::parse(text, problems)),
            Format::Forwarding => self.forwarding = Some(fdb::parse(text, problems)),
            Format::Neighbours => self.neighbours = Some(neighbour::parse(text, problems)),
            Format::Routes(ip) => {
                self.routes.insert(ip, route::parse(text, ip, problems));
            }
            Format::RoutingRules(ip) => {
                self.routing_rules
                    .insert(ip, route::rule::parse(text, ip, problems));
            }
            Format::Qdiscs => self.qdiscs = Some(qdisc::parse(text, problems)),
            Format::TrafficClasses => self.classes = Some(listing::parse(text)),
            Format::TrafficFilters => self.filters = Some(listing::parse(text)),
            Format::Connections => self.connections = Some(conntrack::parse(text, problems)),
            Format::Sysctls => self.sysctls = Some(sysctl::parse(text, problems)),
            Format::ProxyFlags => self.proxy.read_flags(text),
            Format::ProxyConfiguration => self.proxy.read_configuration(text),
        }
    }

    /// Reports rules that refer to missing sets, if the dump has sets.
    fn check_sets(&self, sources: &Sources, parsed: &mut [(FileId, Text, Vec<Problem>)]) {
        let (Some(sets), Some(file)) = (&self.sets, self.files.get(&Format::Sets)) else {
            return;
        };
        for ((ip, backing), dump) in &self.rules {
            let name = self.files.get(&Format::Rules(*ip, *backing));
            let is_rules_file =
                |id: FileId| sources.get(id).map(Source::name) == name.map(String::as_str);
            let Some((_, _, problems)) = parsed.iter_mut().find(|(id, ..)| is_rules_file(*id))
            else {
                continue;
            };
            let chains = dump.tables.iter().flat_map(|table| &table.chains);
            for rule in chains.flat_map(|chain| &chain.rules) {
                for (set, range) in rule.sets() {
                    if !sets.contains_key(set.as_ref()) {
                        let wrong = ProblemKind::MissingSet {
                            name: set.into_owned(),
                            file: file.clone(),
                        };
                        problems.push(Problem::new(wrong, range));
                    }
                }
            }
        }
    }
}

/// Whether a file of this format may contain JSON.
fn reads_json(format: Format) -> bool {
    format == Format::ProxyConfiguration || format.has_json()
}

/// Whether the text is output of `nft -j` or `ip -json`.
fn is_json(text: &str) -> bool {
    matches!(
        text.trim_ascii_start().as_bytes(),
        [b'{' | b'[', b'{' | b'[' | b'"' | b']', ..]
    )
}

/// Returns the lines of problems, which must be sorted by position.
fn problem_lines<'p>(text: &'p str, problems: &'p [Problem]) -> impl Iterator<Item = u32> + 'p {
    let (mut offset, mut line) = (0, 1);
    problems.iter().map(move |problem| {
        let start = text.floor_char_boundary(problem.range.start).max(offset);
        let passed = text[offset..start].bytes().filter(|byte| *byte == b'\n');
        line += u32::try_from(passed.count()).unwrap_or(u32::MAX);
        offset = start;
        line
    })
}

/// Returns an error for two files of one program.
fn duplicate_error(first_name: &str, second_name: &str, format: Format) -> Diagnostic {
    let message = format!("{second_name} contains output of `{format}`, like {first_name}");
    Diagnostic::error(message).with_help("keep one of the two files".to_owned())
}

fn unknown_format_error(name: &str, text: &str) -> Diagnostic {
    if text.trim_ascii().is_empty() {
        return Diagnostic::error(format!("{name}: the file is empty")).with_help(
            "specify a file with program output, or a tarball of `scripts/collect-node`",
        );
    }
    if is_json(text) {
        return Diagnostic::error(format!("{name}: JSON is not supported"))
            .with_help("save the output without the JSON option, `-j` or `-json`");
    }
    let names = "iptables-save, ip6tables-save, ipset-save, nft, ipvsadm-Sn, ip-addr, ip-route, \
                 ip-6-route, ip-rule, ip-6-rule, ip-neigh, bridge-fdb, bridge-link or sysctl-a";
    Diagnostic::error(format!(
        "{name}: neither the file name nor the content identifies the program that printed the file"
    ))
    .with_help(format!("rename the file to {names}"))
}
