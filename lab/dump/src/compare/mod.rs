//! Compares the dumps of two nodes by their meaning.
//!
//! Only properties without effect are ignored:
//!
//! - iptables rules: counters, the order of tables and chains, the notation of rules, empty
//!   built-in chains with the policy ACCEPT, the order in which kube-proxy lists services
//!   ([`Order::ServicesInAnyOrder`]);
//! - sets: the order of sets and of entries (except in lists of sets), `hashsize`, `bucketsize` and
//!   `initval`, which the kernel or the program chooses, counter values, and remaining timeouts of
//!   entries;
//! - nftables: the order of tables, sets, chains and entries, the notation of rules and values, counter
//!   values, and remaining timeouts of entries;
//! - virtual servers: their order and the order of their real servers, which `ipvsadm` sorts, and
//!   properties that the program of one dump does not print;
//! - interfaces: their numbers and order, hardware addresses and link-local addresses derived from
//!   them, numbers of peer interfaces, remaining lifetimes, the order of the addresses that
//!   kube-proxy binds in ipvs mode;
//! - neighbours: entries that the kernel resolves or creates, except for next hops of routes that
//!   did not reply;
//! - forwarding entries: entries that are learned or that the kernel creates;
//! - bridge ports: priorities, costs, timers and numbers;
//! - kinds of interfaces: counters, timers and identifiers, properties of drivers, such as the
//!   number of queues, numbers of XDP programs, and hardware addresses of virtual functions;
//! - kube-proxy: settings that do not determine rules;
//! - routes: their order, except among routes to the same destination with the same metric,
//!   remaining lifetimes, statistics, and properties of next hop objects that one dump lacks;
//! - queueing disciplines, classes and filters: counters, handles that the kernel chooses, options
//!   that only one dump has because of `tc -d` or `-p`, and queues of interfaces that only one dump
//!   has;
//! - tracked connections: all except the zones in use, and the targets and servers of stale ones;
//! - sysctls: sysctls outside `net.`, counters, and random values.

pub mod iptables;
pub(crate) mod link_details;
#[cfg(test)]
mod link_tests;
mod links;
mod neighbours;
pub mod nft;
pub(crate) mod ports;
mod proxy;
mod repeated;
mod routes;
mod servers;
mod sets;
mod sysctls;
#[cfg(test)]
mod tests;
mod traffic;

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::difference::{Difference, DumpChange, DumpLocation, Owner, Side};
use super::node::NodeDump;
use super::owner::Owners;
use iptables::Order;
use svclab_ruleset::Family;
use svclab_ruleset::tool::{DumpedBackend, Format};

/// Returns the differences of the second dump from the first. Only formats that both dumps have are
/// compared; a format that one dump lacks is one difference. A difference of iptables-nft that
/// `iptables-save` and `nft list ruleset` show is one difference.
#[must_use]
pub fn compare(first: &NodeDump, second: &NodeDump) -> Vec<Difference> {
    let mut comparison = Comparison {
        first,
        second,
        owners: OnceCell::new(),
        differences: Vec::new(),
    };
    let formats: BTreeSet<Format> = first.formats().chain(second.formats()).collect();
    for format in formats {
        comparison.compare_format(format);
    }
    // `ip link` without `-d` is no format of its own next to `ip addr`.
    if !first.has(Format::LinkDetails) && !second.has(Format::LinkDetails) {
        comparison.compare_contents(Format::LinkDetails);
    }
    repeated::merge_repeated(first, second, &mut comparison.differences);
    comparison.differences
}

struct Comparison<'d> {
    first: &'d NodeDump,
    second: &'d NodeDump,
    /// Created on first use, because most comparisons find no difference.
    owners: OnceCell<Owners>,
    differences: Vec<Difference>,
}

impl Comparison<'_> {
    fn owners(&self) -> &Owners {
        self.owners
            .get_or_init(|| Owners::from_dumps(&[self.first, self.second]))
    }

    fn add_difference(&mut self, place: DumpLocation, change: DumpChange, owner: Option<Owner>) {
        self.differences.push(Difference {
            location: place,
            change,
            owner,
            repeated_in: None,
        });
    }

    /// Whether a location has the same change already. Lines of different files may differ.
    fn has_difference(&self, location: &DumpLocation, change: &DumpChange) -> bool {
        let mut differences = self.differences.iter();
        differences.any(|difference| {
            let is_same = match (&difference.change, change) {
                (DumpChange::Whole { only: a, .. }, DumpChange::Whole { only: b, .. }) => a == b,
                (a, b) => a == b,
            };
            is_same && difference.location == *location
        })
    }

    fn compare_format(&mut self, format: Format) {
        let (first, second) = (self.first, self.second);
        let only = match (first.has(format), second.has(format)) {
            _ if format == Format::ProxyFlags => return self.compare_contents(format),
            // The dump without kinds has the properties that `ip link` prints.
            (true, false) | (false, true)
                if format == Format::LinkDetails
                    && first.kinds.is_some()
                    && second.kinds.is_some() =>
            {
                self.compare_contents(format);
                if first.has(format) {
                    Side::First
                } else {
                    Side::Second
                }
            }
            (true, false) => Side::First,
            (false, true) => Side::Second,
            _ => return self.compare_contents(format),
        };
        let program = format.command().to_owned();
        self.add_difference(
            DumpLocation::File { program },
            DumpChange::Whole { only, line: 0 },
            None,
        );
    }

    /// Compares a format that both dumps have.
    fn compare_contents(&mut self, format: Format) {
        let (first, second) = (self.first, self.second);
        match format {
            Format::Rules(ip, backing) => self.compare_rules(ip, backing),
            Format::Sets => {
                if let (Some(a), Some(b)) = (&first.sets, &second.sets) {
                    sets::compare(self, a, b);
                }
            }
            Format::Nft => {
                if let (Some(a), Some(b)) = (&first.nft, &second.nft) {
                    self.differences.extend(nft::compare(a, b));
                }
            }
            Format::VirtualServers => {
                if let (Some(a), Some(b)) = (&first.servers, &second.servers) {
                    servers::compare(self, a, b);
                }
            }
            Format::Links => {
                if let (Some(a), Some(b)) = (&first.links, &second.links) {
                    links::compare(self, a, b);
                }
            }
            Format::BridgePorts => ports::compare(self),
            Format::Forwarding => neighbours::compare_forwarding(self),
            Format::Neighbours => neighbours::compare(self),
            Format::Routes(ip) => {
                if let (Some(a), Some(b)) = (first.routes.get(&ip), second.routes.get(&ip)) {
                    routes::compare(self, a, b);
                }
            }
            Format::RoutingRules(ip) => {
                if let (Some(a), Some(b)) =
                    (first.routing_rules.get(&ip), second.routing_rules.get(&ip))
                {
                    routes::compare_policy(self, ip, a, b);
                }
            }
            Format::LinkDetails => {
                if let (Some(a), Some(b)) = (&first.kinds, &second.kinds) {
                    link_details::compare(self, a, b);
                }
            }
            Format::ProxyFlags => proxy::compare(self),
            Format::ProxyConfiguration => {}
            Format::Qdiscs => traffic::compare_qdiscs(self),
            Format::TrafficClasses => traffic::compare_listings(self, "class"),
            Format::TrafficFilters => traffic::compare_listings(self, "filter"),
            Format::IpsecPolicies => traffic::compare_ipsec_policies(self),
            Format::Connections => traffic::compare_connections(self),
            Format::Sysctls => {
                if let (Some(a), Some(b)) = (&first.sysctls, &second.sysctls) {
                    sysctls::compare(self, a, b);
                }
            }
        }
    }

    fn compare_rules(&mut self, ip: Family, backing: DumpedBackend) {
        let key = (ip, backing);
        let (Some(a), Some(b)) = (self.first.rules.get(&key), self.second.rules.get(&key)) else {
            return;
        };
        let program = Format::Rules(ip, backing).command();
        for found in iptables::compare(a, b, Order::ServicesInAnyOrder) {
            let iptables::RuleDifference {
                table,
                chain,
                change,
            } = found;
            let owner = match &change {
                DumpChange::Item { item, .. } | DumpChange::Moved { item, .. } => {
                    self.owners().rule_owner(table, &chain, item)
                }
                _ => self.owners().chain_owner(table, &chain),
            };
            let place = DumpLocation::Chain {
                program: program.to_owned(),
                table: table.to_string(),
                chain,
            };
            self.add_difference(place, change, owner);
        }
    }
}

/// Returns a change if a property differs.
fn value_change(property: &str, first: Option<&str>, second: Option<&str>) -> Option<DumpChange> {
    (first != second).then(|| DumpChange::Value {
        property: property.to_owned(),
        first: first.map(str::to_owned),
        second: second.map(str::to_owned),
    })
}

/// Returns the names in either list: names of the first list, then names that only the second has.
fn union_of_names<'n, N: Eq + std::hash::Hash + Copy + 'n>(
    first: impl Iterator<Item = N>,
    second: impl Iterator<Item = N>,
) -> indexmap::IndexSet<N> {
    first.chain(second).collect()
}
