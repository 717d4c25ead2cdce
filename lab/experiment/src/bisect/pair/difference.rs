//! Describes one object in which two plans differ.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_dump::Owner;

/// Object in which two plans differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Namespace: `node-1`. Empty for manual commands, servers and health checks.
    pub namespace: String,
    /// Kind of object.
    pub kind: Kind,
    /// Location in the namespace: `iptables nat KUBE-SERVICES`, `ipset KUBE-CLUSTER-IP`.
    pub location: String,
    /// Object as in good; absent if good lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good: Option<String>,
    /// Object as in bad; absent if bad lacks it. A rule that is equal on both sides has another
    /// position in its chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<String>,
    /// Owner, if names or comments identify it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

impl Difference {
    /// Returns the location with its namespace: `nat KUBE-SERVICES on node-1`. An object without a
    /// namespace has only its location.
    #[must_use]
    pub fn place(&self) -> String {
        match self.namespace.as_str() {
            "" => self.location.clone(),
            namespace => format!("{} on {namespace}", self.location),
        }
    }
}

/// Kind of object.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Interface: its existence or its properties.
    Link,
    /// Address of an interface.
    Address,
    /// Route.
    Route,
    /// Routing rule (`ip rule`), which selects the routing table.
    RoutingRule,
    /// Static neighbour entry.
    Neighbour,
    /// Forwarding entry of a VXLAN device or a bridge.
    Forwarding,
    /// Setting of a bridge port: hairpin mode, isolation, learning, flooding, locking.
    BridgePort,
    /// Sysctl.
    Sysctl,
    /// Options of an ipset, or type and flags of an nftables set or map.
    Set,
    /// Entry of an ipset, or element of an nftables set or map.
    SetEntry,
    /// iptables variant that loads the rules: legacy or nft.
    Backend,
    /// Policy of a chain that the kernel calls.
    Policy,
    /// Rule of an iptables or nftables chain.
    Rule,
    /// Type, hook, devices and priority of an nftables chain.
    Chain,
    /// Flags of an nftables table, or an object of it that is neither a set nor a chain.
    Table,
    /// IPVS virtual server: its existence or its settings.
    VirtualServer,
    /// Real server of an IPVS virtual server.
    RealServer,
    /// Connection timeouts of IPVS.
    Timeouts,
    /// Server that answers connections.
    Server,
    /// Health checks that load balancers send to their backends.
    HealthChecks,
    /// Command entered on a node by hand.
    Command,
}

/// Prints lines of a diff: `-` is good, `+` is bad, `~` is a rule at another position.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}: ", self.namespace)?;
        }
        write!(f, "{}", self.location)?;
        if let Some(owner) = &self.owner {
            write!(f, " ({owner})")?;
        }
        match (&self.good, &self.bad) {
            (Some(good), Some(bad)) if good == bad => write!(f, "\n~ {good}"),
            (good, bad) => {
                for (sign, text) in [('-', good), ('+', bad)] {
                    if let Some(text) = text {
                        write!(f, "\n{sign} {text}")?;
                    }
                }
                Ok(())
            }
        }
    }
}
