//! One thing in which two plans differ.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_dump::Owner;

/// One thing in which two plans differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// In which namespace: `node-1`.
    pub namespace: String,
    /// What it is.
    pub of: Kind,
    /// Where it is there: `iptables nat KUBE-SERVICES`, `ipset KUBE-CLUSTER-IP`.
    pub place: String,
    /// As good has it; not at all without this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good: Option<String>,
    /// As bad has it; not at all without this. A rule that both have alike stands elsewhere
    /// among others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<String>,
    /// Whose it is, where names and comments tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// What differs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// An interface: whether it is there, or how it is made.
    Link,
    /// An address of an interface.
    Address,
    /// A route.
    Route,
    /// A rule that says in which table packets look for their route.
    RoutingRule,
    /// A neighbour.
    Neighbour,
    /// A forwarding entry of a vxlan device.
    Forwarding,
    /// A setting of the kernel.
    Sysctl,
    /// A set: how it is made.
    Set,
    /// An entry of a set.
    SetEntry,
    /// Which iptables loads the rules.
    Backend,
    /// What a built-in chain does with packets that reach its end.
    Policy,
    /// A rule of a chain of iptables.
    Rule,
    /// A table of nftables.
    Table,
    /// A virtual server of IPVS: whether it is there, or how it balances.
    VirtualServer,
    /// A real server of a virtual server.
    RealServer,
    /// How long IPVS remembers connections.
    Timeouts,
    /// Something that answers connections.
    Server,
    /// What balancers ask of their backends.
    HealthChecks,
    /// What is typed on a node by hand.
    Typed,
}

/// As lines of a diff: `-` is what good has, `+` what bad has.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.namespace, self.place)?;
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
