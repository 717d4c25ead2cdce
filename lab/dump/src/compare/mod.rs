//! Telling two nodes' dumps apart by what they mean.
//!
//! What means nothing is left out, and only that:
//!
//! - of rules: counters, the order of tables and chains, how a rule is written,
//!   an empty built-in chain that accepts; the order in which kube-proxy lists
//!   services ([`Order::ServicesInAnyOrder`]);
//! - of sets: the order of sets and, but for lists of sets, of entries; `hashsize`,
//!   `bucketsize` and `initval`, which the kernel or the program picks; what
//!   counters count and how long an entry that times out still has;
//! - of nftables: the order of tables, sets, chains and entries, how a rule is
//!   written, what counters count and how long an entry that times out still has;
//! - of virtual servers: the order that `ipvsadm` sorts them in, and their real
//!   servers;
//! - of interfaces: their numbers and order, hardware addresses and the link-local
//!   addresses made of them, numbers of other ends, how much of a lifetime is left,
//!   the order of the addresses that kube-proxy binds in ipvs mode;
//! - of routes: their order, but for those to the same place with the same metric;
//!   how much of a lifetime is left;
//! - of settings: what is not of the network, what counts, and what is random.

pub mod iptables;
mod links;
pub mod nft;
mod routes;
mod servers;
mod sets;
mod sysctls;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::difference::{Change, Difference, Owner, Place, Side};
use super::node::NodeDump;
use super::owner::Owners;
use iptables::Order;
use svclab_ruleset::tool::{Backing, Format, Ip};

/// In what the second dump differs from the first. Only what both have is
/// compared; of what one lacks, that is told.
#[must_use]
pub fn compare(first: &NodeDump, second: &NodeDump) -> Vec<Difference> {
    let mut comparison = Comparison {
        first,
        second,
        owners: OnceCell::new(),
        found: Vec::new(),
    };
    let formats: BTreeSet<Format> = first.formats().chain(second.formats()).collect();
    for format in formats {
        comparison.format(format);
    }
    comparison.found
}

struct Comparison<'d> {
    first: &'d NodeDump,
    second: &'d NodeDump,
    /// Most comparisons find nothing and ask for nobody.
    owners: OnceCell<Owners>,
    found: Vec<Difference>,
}

impl Comparison<'_> {
    fn owners(&self) -> &Owners {
        self.owners
            .get_or_init(|| Owners::of(&[self.first, self.second]))
    }

    fn differ(&mut self, place: Place, change: Change, owner: Option<Owner>) {
        self.found.push(Difference {
            place,
            change,
            owner,
        });
    }

    fn format(&mut self, format: Format) {
        let (first, second) = (self.first, self.second);
        let only = match (first.has(format), second.has(format)) {
            (true, false) => Side::First,
            (false, true) => Side::Second,
            _ => return self.both(format),
        };
        let program = format.command().to_owned();
        self.differ(
            Place::File { program },
            Change::Whole { only, line: 0 },
            None,
        );
    }

    /// Compares what both have.
    fn both(&mut self, format: Format) {
        let (first, second) = (self.first, self.second);
        match format {
            Format::Rules(ip, backing) => self.rules(ip, backing),
            Format::Sets => {
                if let (Some(a), Some(b)) = (&first.sets, &second.sets) {
                    sets::compare(self, a, b);
                }
            }
            Format::Nft => {
                if let (Some(a), Some(b)) = (&first.nft, &second.nft) {
                    self.found.extend(nft::compare(a, b));
                }
            }
            Format::Servers => {
                if let (Some(a), Some(b)) = (&first.servers, &second.servers) {
                    servers::compare(self, a, b);
                }
            }
            Format::Links => {
                if let (Some(a), Some(b)) = (&first.links, &second.links) {
                    links::compare(self, a, b);
                }
            }
            Format::Routes(ip) => {
                if let (Some(a), Some(b)) = (first.routes.get(&ip), second.routes.get(&ip)) {
                    routes::compare(self, a, b);
                }
            }
            Format::Policy(ip) => {
                if let (Some(a), Some(b)) = (first.policy.get(&ip), second.policy.get(&ip)) {
                    routes::compare_policy(self, ip, a, b);
                }
            }
            Format::Kinds | Format::ProxyFlags | Format::ProxyConfiguration => {}
            Format::Sysctls => {
                if let (Some(a), Some(b)) = (&first.sysctls, &second.sysctls) {
                    sysctls::compare(self, a, b);
                }
            }
        }
    }

    fn rules(&mut self, ip: Ip, backing: Backing) {
        let key = (ip, backing);
        let (Some(a), Some(b)) = (self.first.rules.get(&key), self.second.rules.get(&key)) else {
            return;
        };
        let program = Format::Rules(ip, backing).command();
        for found in iptables::compare(a, b, Order::ServicesInAnyOrder) {
            let iptables::Difference {
                table,
                chain,
                change,
            } = found;
            let owner = match &change {
                Change::Item { item, .. } | Change::Moved { item, .. } => {
                    self.owners().of_rule(table, &chain, item)
                }
                _ => self.owners().of_chain(table, &chain),
            };
            let place = Place::Chain {
                program: program.to_owned(),
                table: table.to_string(),
                chain,
            };
            self.differ(place, change, owner);
        }
    }
}

/// A property, if it differs.
fn value(what: &str, first: Option<&str>, second: Option<&str>) -> Option<Change> {
    (first != second).then(|| Change::Value {
        what: what.to_owned(),
        first: first.map(str::to_owned),
        second: second.map(str::to_owned),
    })
}

/// Names that one list or the other has, those of the first before those that only
/// the second has.
fn names<'n, N: Eq + std::hash::Hash + Copy + 'n>(
    first: impl Iterator<Item = N>,
    second: impl Iterator<Item = N>,
) -> indexmap::IndexSet<N> {
    first.chain(second).collect()
}
