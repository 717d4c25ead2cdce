//! What turns a running lab of one plan into one of another.

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use svclab_ruleset::nft::tables;

use super::{
    Forwarding, HealthCheck, Iptables, Neighbour, Probe, Route, Server, Sysctl, VirtualServer,
    Watch,
};

/// What changes, in the order in which an agent applies it: servers that end,
/// then each namespace, then servers that begin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delta {
    /// Namespaces in which something changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Change>,
    /// Servers that end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<Server>,
    /// Servers that begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<Server>,
    /// All health checks, if they restart: they do when one of them changes,
    /// or the virtual servers that they guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Vec<HealthCheck>>,
    /// What to try, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Vec<Probe>>,
    /// What to look at, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
}

/// What changes in one namespace, in the order in which it is applied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Change {
    /// Its name.
    pub namespace: String,
    /// Settings to write, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sysctls: Vec<Sysctl>,
    /// Interfaces that change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkChange>,
    /// Routes.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub routes: Swap<Route>,
    /// Neighbours.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub neighbours: Swap<Neighbour>,
    /// Forwarding entries of vxlan devices.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub forwarding: Swap<Forwarding>,
    /// Virtual servers: those in `remove` go with all their real servers, those
    /// in `add` come with theirs.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub ipvs: Swap<VirtualServer>,
    /// The names of nfacct objects that come before the rules change. Those that no rule
    /// counts with any more do nothing, and stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounting: Vec<String>,
    /// Sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<SetsChange>,
    /// Rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iptables: Option<RulesChange>,
    /// Rules of the other iptables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<RulesChange>,
    /// Tables of nftables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nft: Option<TablesChange>,
}

/// How sets change: lines for ipset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SetsChange {
    /// Before the rules change: new sets, members that come and go.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub before: String,
    /// After the rules have changed: sets that go.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub after: String,
    /// Whether any set is there from then on.
    pub any: bool,
}

/// What changes of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkChange {
    /// Its name.
    pub name: String,
    /// Addresses that go, then those that come, in this order.
    #[serde(default, skip_serializing_if = "Swap::is_empty")]
    pub addresses: Swap<IpNetwork>,
    /// Whether it is up, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Its largest packet, if that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// What goes, and what comes afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap<T> {
    /// What goes.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<T>,
    /// What comes.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<T>,
}

/// How rules change: input for `iptables-restore --noflush`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RulesChange {
    /// What `iptables-restore` reads.
    pub batches: Iptables,
    /// The tables that the plan fills from now on, by family, 4 or 6: those that
    /// are read back.
    pub tables: Vec<(u8, Vec<String>)>,
}

/// How tables of nftables change, all at once: some go, then others come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TablesChange {
    /// Those that go, by family and name: `ip kube-proxy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub go: Vec<String>,
    /// Input for `nft -f` that makes those that come.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub come: String,
}

impl<T> Default for Swap<T> {
    fn default() -> Self {
        Self {
            remove: Vec::new(),
            add: Vec::new(),
        }
    }
}

impl<T> Swap<T> {
    /// Whether nothing goes and nothing comes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

impl Delta {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl TablesChange {
    /// What is there once the tables of a text have changed so.
    #[must_use]
    pub fn applied(&self, there: &str) -> String {
        let stay = tables(there).filter(|(name, _)| !self.go.iter().any(|gone| gone == name));
        stay.map(|(_, text)| text)
            .chain([self.come.as_str()])
            .collect()
    }
}
