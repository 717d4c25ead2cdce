//! Defines the changes that turn a running lab of one plan into a running lab of another plan.

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use svclab_ruleset::input::Input;
use svclab_ruleset::ipset::saved::Sets;
use svclab_ruleset::nft::{Removal, Ruleset};

use super::Stage;
use crate::plan::{
    EvidenceRequest, Forwarding, HealthCheck, Iptables, Neighbour, PortSettings, Route, Server,
    Sysctl, VirtualServer,
};

/// Difference between two plans. The agent stops servers first, then changes each namespace, then
/// starts servers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delta {
    /// Changed namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<NamespaceDelta>,
    /// Servers to stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<Server>,
    /// Servers to start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<Server>,
    /// All health checks after the change. `None` keeps the running health checks. All health
    /// checks restart if one of them changes, or a virtual server that they guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Vec<HealthCheck>>,
    /// Stages of the changed lab. `None` keeps the current stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<Stage>>,
    /// Evidence to record after the change. `None` keeps the current selection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<EvidenceRequest>,
}

/// Changes in one namespace, in the order in which the agent applies them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceDelta {
    /// Namespace name.
    pub namespace: String,
    /// Sysctls to write, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sysctls: Vec<Sysctl>,
    /// Changed interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkChange>,
    /// Routes to remove and to add.
    #[serde(default, skip_serializing_if = "AddRemove::is_empty")]
    pub routes: AddRemove<Route>,
    /// Static neighbours to remove and to add.
    #[serde(default, skip_serializing_if = "AddRemove::is_empty")]
    pub neighbours: AddRemove<Neighbour>,
    /// Forwarding entries to remove and to add.
    #[serde(default, skip_serializing_if = "AddRemove::is_empty")]
    pub forwarding: AddRemove<Forwarding>,
    /// Virtual servers to remove and to add, with all their real servers.
    #[serde(default, skip_serializing_if = "AddRemove::is_empty")]
    pub ipvs: AddRemove<VirtualServer>,
    /// Names of nfacct objects to create before the rules change. Objects that no rule uses any
    /// longer have no effect and remain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounting: Vec<String>,
    /// Changes of ipsets. `None` if the sets stay the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<SetsChange>,
    /// Changes of iptables rules. `None` if the rules stay the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iptables: Option<RulesChange>,
    /// Changes of the rules of the other iptables backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_iptables: Option<RulesChange>,
    /// Changes of nftables tables. `None` if the tables stay the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nft: Option<TablesChange>,
}

/// Changes of ipsets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetsChange {
    /// Sets to create, with their entries, before the rules change.
    #[serde(default, skip_serializing_if = "Input::is_empty")]
    pub create: Input<Sets>,
    /// Entries to delete, each with its set, before the rules change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<(String, String)>,
    /// Entries to add to existing sets, each with its set. An entry has its options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<(String, String)>,
    /// Sets to destroy after the rules have changed, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destroy: Vec<String>,
    /// Whether the namespace has any set after the change.
    pub has_sets: bool,
}

/// Changes of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkChange {
    /// Interface name.
    pub name: String,
    /// Addresses to remove, then addresses to add, in this order.
    #[serde(default, skip_serializing_if = "AddRemove::is_empty")]
    pub addresses: AddRemove<IpNetwork>,
    /// Whether the interface is up after the change. `None` keeps its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// MTU after the change, in bytes. `None` keeps the MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Settings of the bridge port after the change. `None` keeps the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PortSettings>,
}

/// Items to remove, then items to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddRemove<T> {
    /// Items to remove first.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<T>,
    /// Items to add afterwards.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<T>,
}

/// Changes of rules, as input for `iptables-restore --noflush`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RulesChange {
    /// Input for `iptables-restore` and `ip6tables-restore`.
    pub batches: Iptables,
    /// Tables with rules of the plan after the change, by address family (4 or 6). The agent reads
    /// these tables back.
    pub tables: Vec<(u8, Vec<String>)>,
}

/// Changes of nftables tables, as commands for `nft -f`. They are one transaction if they fit into
/// one message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TablesChange {
    /// Removals before the additions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<Removal>,
    /// Tables to create, and objects, rules and elements to add to existing tables.
    #[serde(default, skip_serializing_if = "Input::is_empty")]
    pub add: Input<Ruleset>,
    /// Removals of objects that nothing refers to after the additions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_unused: Vec<Removal>,
    /// All tables after the change, without the content that the agent does not need: only sets
    /// that rules fill, without elements.
    #[serde(default, skip_serializing_if = "Input::is_empty")]
    pub tables: Input<Ruleset>,
}

impl<T> Default for AddRemove<T> {
    fn default() -> Self {
        Self {
            remove: Vec::new(),
            add: Vec::new(),
        }
    }
}

impl<T> AddRemove<T> {
    /// Whether there is nothing to remove or add.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

impl Delta {
    /// Whether the plans do not differ.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl NamespaceDelta {
    /// Returns the changes of both iptables backends.
    pub fn iptables_rules(&self) -> impl Iterator<Item = &RulesChange> + Clone {
        self.iptables.iter().chain(&self.other_iptables)
    }
}

impl SetsChange {
    /// Returns the input of `ipset restore` before the rules change.
    #[must_use]
    pub fn before_rules(&self) -> String {
        let mut text = self.create.text().to_owned();
        for (verb, entries) in [("del", &self.delete), ("add", &self.add)] {
            for (set, entry) in entries {
                text.extend([verb, " ", set, " ", entry, "\n"]);
            }
        }
        text
    }

    /// Returns the input of `ipset restore` after the rules have changed.
    #[must_use]
    pub fn after_rules(&self) -> String {
        let names = self.destroy.iter();
        names.flat_map(|name| ["destroy ", name, "\n"]).collect()
    }
}

impl TablesChange {
    /// Returns the input of `nft -f`.
    #[must_use]
    pub fn commands(&self) -> String {
        let lines = |removals: &[Removal]| -> String {
            let lines = removals
                .iter()
                .flat_map(|each| [each.to_string(), "\n".to_owned()]);
            lines.collect()
        };
        lines(&self.remove) + self.add.text() + &lines(&self.remove_unused)
    }
}
