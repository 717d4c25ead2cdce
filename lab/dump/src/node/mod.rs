//! Defines the parsed dump of a node, and parses its files.

pub(crate) mod proxy;
mod stale_connections;
mod static_entries;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::gap::Gap;
use proxy::KubeProxySettings;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;
use svclab_ruleset::Family;
use svclab_ruleset::bridge::{fdb, port, port::Ports};
use svclab_ruleset::conntrack::{self, Connections};
use svclab_ruleset::ipsec::{self, IpsecPolicy};
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
use svclab_ruleset::text::Text;
use svclab_ruleset::text::problem::Problem;
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
    /// Routes, by address family.
    pub routes: BTreeMap<Family, Vec<Route>>,
    /// Routing rules, by address family.
    pub routing_rules: BTreeMap<Family, Vec<PolicyRule>>,
    /// Queueing disciplines.
    pub qdiscs: Option<Vec<Qdisc>>,
    /// Classes of queueing disciplines.
    pub classes: Option<Listings>,
    /// Filters of queueing disciplines.
    pub filters: Option<Listings>,
    /// `IPsec` policies.
    pub ipsec_policies: Option<Vec<IpsecPolicy>>,
    /// Tracked connections.
    pub connections: Option<Connections>,
    /// Sysctls of the kernel.
    pub sysctls: Option<Sysctls>,
    /// Settings of kube-proxy.
    pub proxy: KubeProxySettings,
    /// Names of the parsed files in messages.
    pub files: BTreeMap<Format, String>,
}

/// End of the name of a converted file, because line numbers in messages are those of the text.
pub(super) const AS_TEXT: &str = " (as text)";

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

#[cfg(test)]
impl NodeDump {
    /// Parses files, given by their names and contents. Panics on errors.
    pub(crate) fn from_texts(files: &[(&str, &str)]) -> Self {
        let read = Self::parse_texts(files);
        assert!(read.has_no_errors(), "{:?}", read.diagnostics);
        read.dump
    }

    /// Parses files, given by their names and contents.
    pub(crate) fn parse_texts(files: &[(&str, &str)]) -> ParsedDump {
        let files = files.iter().map(|(name, text)| File {
            name: (*name).to_owned(),
            format: Format::from_file_name(name),
            text: (*text).to_owned(),
        });
        Self::parse(files.collect())
    }
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
    /// Files of the directory or archive that are not read, or that do not show all of their state.
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
            let name = source.name();
            let name = name.strip_suffix(AS_TEXT).unwrap_or(name);
            let file = linked_to.get(name).cloned();
            source.clone().with_link_target(file)
        });
        self.sources = Sources::new(sources.collect());
        self.diagnostics = self.sources.redact(std::mem::take(&mut self.diagnostics));
    }
}

impl NodeDump {
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
            (Format::LinkDetails, self.has_kinds()),
            (Format::ProxyFlags, self.proxy.is_known()),
            (Format::Qdiscs, self.qdiscs.is_some()),
            (Format::TrafficClasses, self.classes.is_some()),
            (Format::TrafficFilters, self.filters.is_some()),
            (Format::IpsecPolicies, self.ipsec_policies.is_some()),
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

    /// Whether the kinds of interfaces are known, or `ip link` is the only output of interfaces.
    fn has_kinds(&self) -> bool {
        self.kinds.as_ref().is_some_and(|kinds| {
            self.links.is_none() || kinds.values().any(|link| link.is_detailed)
        })
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
        self.ipsec_policies = self
            .ipsec_policies
            .take()
            .filter(|_| wanted(Format::IpsecPolicies));
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
        if !wanted(Format::ProxyFlags) {
            self.proxy = KubeProxySettings::default();
        }
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
                self.servers = Some(if ipvs::proc::is_proc(text) {
                    ipvs::proc::parse(text, problems)
                } else {
                    ipvs::listed::parse(text, problems)
                });
            }
            Format::VirtualServers => self.servers = Some(ipvs::saved::parse(text, problems)),
            Format::Links => self.links = Some(link::parse(text, problems)),
            Format::LinkDetails => self.kinds = Some(kind::parse(text, problems)),
            Format::BridgePorts => self.ports = Some(port::parse(text, problems)),
            Format::Forwarding => self.forwarding = Some(fdb::parse(text, problems)),
            Format::Neighbours => self.neighbours = Some(neighbour::parse(text, problems)),
            Format::Routes(ip) => {
                // `ip route show table all` prints the routes of both families.
                let mut routes = BTreeMap::from([(ip, Vec::new())]);
                for route in route::parse(text, ip, problems) {
                    routes.entry(route.ip).or_default().push(route);
                }
                self.routes.extend(routes);
            }
            Format::RoutingRules(ip) => {
                self.routing_rules
                    .insert(ip, route::rule::parse(text, ip, problems));
            }
            Format::Qdiscs => self.qdiscs = Some(qdisc::parse(text, problems)),
            Format::TrafficClasses => self.classes = Some(listing::parse_classes(text, problems)),
            Format::TrafficFilters => self.filters = Some(listing::parse_filters(text, problems)),
            Format::IpsecPolicies => self.ipsec_policies = Some(ipsec::parse(text, problems)),
            Format::Connections => self.connections = Some(conntrack::parse(text, problems)),
            Format::Sysctls => self.sysctls = Some(sysctl::parse(text, problems)),
            Format::ProxyFlags => self.proxy.read_flags(text),
            Format::ProxyConfiguration => self.proxy.read_configuration(text),
        }
    }
}
