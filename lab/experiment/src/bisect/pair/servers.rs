//! Merges the IPVS virtual servers of a namespace, the real servers of each, and the timeouts.

use std::collections::HashMap;

use super::difference::Kind;
use super::graph::{DifferenceGraph, OwnerKey, Scope};
use crate::bisect::merge::Merged;
use svclab_model::plan::Namespace;
use svclab_ruleset::ipvs::{RealServer, Timeouts, VirtualServer, VirtualServerKey};

/// Virtual servers of both sides.
#[derive(Debug, Clone)]
pub struct MergedServers {
    /// Virtual servers, without real servers.
    servers: Merged<VirtualServer>,
    real_servers: HashMap<VirtualServerKey, Merged<RealServer>>,
    timeouts: Merged<Timeouts>,
}

impl MergedServers {
    pub fn new(good: &Namespace, bad: &Namespace, graph: &mut DifferenceGraph) -> Self {
        let make_scope = |kind, location: String| Scope {
            namespace: &good.name,
            kind,
            location,
        };
        let without_real_servers = |servers: &[VirtualServer]| -> Vec<VirtualServer> {
            let bare = servers.iter().map(|server| VirtualServer {
                servers: Vec::new(),
                ..server.clone()
            });
            bare.collect()
        };
        let (good_servers, bad_servers) = (
            without_real_servers(&good.ipvs),
            without_real_servers(&bad.ipvs),
        );
        let scope = make_scope(Kind::VirtualServer, "ipvs".to_owned());
        let describe = |server: &VirtualServer| {
            let text = server.to_string().trim_end().to_owned();
            (text, OwnerKey::Server(server.key))
        };
        let servers = graph.add_keyed(
            &scope,
            &good_servers,
            &bad_servers,
            |server| server.key,
            describe,
        );
        let mut real_servers = HashMap::new();
        for slot in &servers.slots {
            let key = slot.item.key;
            // A virtual server whose scheduler or other settings differ has two slots.
            if real_servers.contains_key(&key) {
                continue;
            }
            let real_servers_in = |namespace: &Namespace| -> Vec<RealServer> {
                let found = namespace.ipvs.iter().find(|server| server.key == key);
                found.map_or_else(Vec::new, |server| server.servers.clone())
            };
            let (good_servers, bad_servers) = (real_servers_in(good), real_servers_in(bad));
            let first = graph.next_index();
            let scope = make_scope(Kind::RealServer, format!("ipvs {key}"));
            let describe = |server: &RealServer| {
                let method = format!("{:?}", server.method).to_lowercase();
                let text = format!("{} {method} weight {}", server.address, server.weight);
                (text, OwnerKey::Server(key))
            };
            let merged = graph.add_keyed(
                &scope,
                &good_servers,
                &bad_servers,
                |server| server.address,
                describe,
            );
            let has = |namespace: &Namespace| namespace.ipvs.iter().any(|server| server.key == key);
            if let Some(difference) = slot.origin.difference().filter(|_| !has(good) || !has(bad)) {
                graph.join_all(std::iter::once(difference).chain(first..graph.next_index()));
            }
            real_servers.insert(key, merged);
        }
        let list_timeouts =
            |side: &Namespace| -> Vec<Timeouts> { side.ipvs_timeouts.into_iter().collect() };
        let describe = |timeouts: &Timeouts| {
            let text = timeouts.to_string().trim_end().to_owned();
            (text, OwnerKey::Unknown)
        };
        let timeouts = graph.add_keyed(
            &make_scope(Kind::Timeouts, "ipvs".to_owned()),
            &list_timeouts(good),
            &list_timeouts(bad),
            |_| (),
            describe,
        );
        Self {
            servers,
            real_servers,
            timeouts,
        }
    }

    /// Returns the virtual servers of the selected differences.
    pub fn build(&self, with: &impl Fn(usize) -> bool) -> Vec<VirtualServer> {
        let servers = self.servers.selected(with).map(|server| {
            let real = self.real_servers.get(&server.key).into_iter();
            VirtualServer {
                servers: real.flat_map(|real| real.selected(with)).copied().collect(),
                ..server.clone()
            }
        });
        servers.collect()
    }

    /// Returns the timeouts of the selected differences.
    pub fn timeouts(&self, with: &impl Fn(usize) -> bool) -> Option<Timeouts> {
        self.timeouts.selected(with).next().copied()
    }
}
