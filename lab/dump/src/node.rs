//! Defines the parsed dump of a node, and parses its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::gap::Gap;
use super::proxy::KubeProxySettings;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;
use svclab_ruleset::Family;
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::ipvs::saved::Servers;
use svclab_ruleset::link::Links;
use svclab_ruleset::link::kind;
use svclab_ruleset::link::kind::LinkKinds;
use svclab_ruleset::nft::Ruleset;
use svclab_ruleset::route::Route;
use svclab_ruleset::route::rule::PolicyRule;
use svclab_ruleset::sysctl::Sysctls;
use svclab_ruleset::text::Text;
use svclab_ruleset::text::problem::Problem;
use svclab_ruleset::tool::{DumpedBackend, Format};
use svclab_ruleset::{ipset, iptables, ipvs, link, nft, route, sysctl};

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
    /// Routes, by the address family of their file. One file can contain routes of both families.
    pub routes: BTreeMap<Family, Vec<Route>>,
    /// Routing rules, by address family.
    pub routing_rules: BTreeMap<Family, Vec<PolicyRule>>,
    /// Sysctls of the kernel.
    pub sysctls: Option<Sysctls>,
    /// Settings of kube-proxy.
    pub proxy: KubeProxySettings,
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
    /// Returns the formats that can be compared. Kinds of interfaces are not included: they serve
    /// only for a replay.
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
        self.sysctls = self.sysctls.take().filter(|_| wanted(Format::Sysctls));
    }

    /// Whether the dump has comparable data of the format; see [`NodeDump::formats`].
    #[must_use]
    pub fn has(&self, format: Format) -> bool {
        self.formats().any(|known| known == format)
    }

    pub(super) fn parse_file(&mut self, format: Format, text: &Text, problems: &mut Vec<Problem>) {
        match format {
            Format::Rules(ip, backing) => {
                let dump = iptables::IptablesRules::parse_with_problems(text, problems);
                self.rules.insert((ip, backing), dump);
            }
            Format::Sets if ipset::listed::is_listing(text) => {
                self.sets = Some(ipset::listed::parse(text, problems));
            }
            Format::Sets => self.sets = Some(ipset::saved::parse(text, problems)),
            Format::Nft => self.nft = Some(nft::parse_ruleset(text, problems)),
            Format::VirtualServers if ipvs::listed::is_listing(text) => {
                self.servers = Some(ipvs::listed::parse(text, problems));
            }
            Format::VirtualServers => self.servers = Some(ipvs::saved::parse(text, problems)),
            Format::Links => self.links = Some(link::parse(text, problems)),
            Format::LinkDetails => self.kinds = Some(kind::parse(text, problems)),
            Format::Routes(ip) => {
                self.routes.insert(ip, route::parse(text, ip, problems));
            }
            Format::RoutingRules(ip) => {
                self.routing_rules
                    .insert(ip, route::rule::parse(text, ip, problems));
            }
            Format::Sysctls => self.sysctls = Some(sysctl::parse(text, problems)),
            Format::ProxyFlags => self.proxy.read_flags(text),
            Format::ProxyConfiguration => self.proxy.read_configuration(text),
        }
    }
}
