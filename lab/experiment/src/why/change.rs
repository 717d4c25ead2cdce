//! Defines the changes that an operator can make to a lab or to the state of its nodes.

use ipnetwork::{IpNetwork, Ipv4Network};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use svclab_model::plan::{Backend, Route, RoutingRule};

/// Prefixes of the chains that components generate and rewrite.
const COMPONENT_CHAINS: [&str; 5] = ["KUBE-", "IP-MASQ-AGENT", "cali", "FLANNEL-", "DOCKER"];

/// Prefixes of the devices whose routes a component manages.
const OVERLAY_DEVICES: [&str; 6] = ["flannel", "cali", "vxlan.calico", "tunl", "cni", "cbr"];

/// Change that may be the fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "what",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ProposedChange {
    /// Sets a traffic policy of a service to `Cluster`.
    ClusterPolicy {
        /// Service: `NAMESPACE/NAME`.
        service: String,
        /// Policy field: `externalTrafficPolicy` or `internalTrafficPolicy`.
        field: PolicyField,
    },
    /// Sets the cluster CIDR of kube-proxy to the pod networks.
    ClusterCidr {
        /// Networks in the format of `--cluster-cidr`.
        networks: String,
    },
    /// Starts kube-proxy with `--masquerade-all`.
    MasqueradeAll,
    /// Lets the underlay forward packets whose source is not an address of the sending node.
    AllowForeignSources,
    /// Undoes the manual changes on a node.
    UndoManualChanges {
        /// Node name.
        node: String,
    },
    /// Restarts kube-proxy on a dumped node, so that its rules are generated again.
    RestartProxy {
        /// Node name.
        node: String,
    },
    /// Lets a load balancer forward from its own address.
    UseOwnSource {
        /// Load balancer name.
        balancer: String,
    },
    /// Stops a load balancer from forwarding a packet to the backend that sent it.
    SkipOwnSource {
        /// Load balancer name.
        balancer: String,
    },
    /// Adds a health check of the backends to a load balancer.
    AddHealthCheck {
        /// Load balancer name.
        balancer: String,
    },
    /// Removes the security group of a load balancer.
    RemoveSecurityGroup {
        /// Load balancer name.
        balancer: String,
    },
    /// Adds a node to the backends of a load balancer.
    AddBackend {
        /// Load balancer name.
        balancer: String,
        /// Node name.
        node: String,
    },
    /// Removes a node from the backends of a load balancer.
    RemoveBackend {
        /// Load balancer name.
        balancer: String,
        /// Node name.
        node: String,
    },
    /// Sets sysctls.
    SetSysctl {
        /// Names of nodes, pods and external hosts.
        namespaces: Vec<String>,
        /// Sysctls: `net.ipv4.conf.all.rp_filter`.
        keys: Vec<String>,
        /// New value.
        value: String,
    },
    /// Deletes an iptables rule.
    DeleteRule {
        /// Node, pod or external host.
        namespace: String,
        /// iptables variant of the rule: legacy or nft.
        #[schemars(with = "String")]
        backend: Backend,
        /// Whether the rule is for IPv6 (`ip6tables`).
        v6: bool,
        /// Table name.
        table: String,
        /// Chain name.
        chain: String,
        /// Number of the rule in the chain, from 1.
        number: u32,
        /// Text of the rule, from its first match on.
        rule: String,
    },
    /// Deletes an entry of an ipset.
    DeleteSetEntry {
        /// Node, pod or external host.
        namespace: String,
        /// Set name.
        set: String,
        /// Entry in the format of `ipset`.
        entry: String,
    },
    /// Deletes an nftables rule.
    DeleteNftRule {
        /// Node, pod or external host.
        namespace: String,
        /// Table with its family: `ip kube-proxy`.
        table: String,
        /// Chain name.
        chain: String,
        /// Number of the rule in the chain, from 1.
        number: u32,
        /// Text of the rule.
        rule: String,
    },
    /// Removes a network from `nonMasqueradeCIDRs` of ip-masq-agent.
    MasqueradeNetwork {
        /// Network in CIDR notation.
        #[schemars(with = "String")]
        network: Ipv4Network,
    },
    /// Deletes a route.
    DeleteRoute {
        /// Node, pod or external host.
        namespace: String,
        /// Route to delete.
        #[schemars(with = "serde_json::Value")]
        route: Box<Route>,
    },
    /// Adds a route.
    AddRoute {
        /// Node, pod or external host.
        namespace: String,
        /// Route to add.
        #[schemars(with = "serde_json::Value")]
        route: Box<Route>,
    },
    /// Deletes a routing rule (`ip rule`), which selects the routing table.
    DeleteRoutingRule {
        /// Node, pod or external host.
        namespace: String,
        /// Rule to delete.
        #[schemars(with = "serde_json::Value")]
        rule: Box<RoutingRule>,
    },
    /// Deletes an element of an nftables set or map.
    DeleteNftElement {
        /// Node, pod or external host.
        namespace: String,
        /// Table with its family: `ip kube-proxy`.
        table: String,
        /// Set or map name.
        set: String,
        /// Key of the element.
        key: String,
    },
}

/// Service field that restricts the endpoints of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PolicyField {
    /// Field `externalTrafficPolicy`.
    ExternalTrafficPolicy,
    /// Field `internalTrafficPolicy`.
    InternalTrafficPolicy,
}

/// Origin of the configuration that a change modifies.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// Configured by an operator: a flag, a field, a sysctl or a custom rule. The change persists.
    Configured,
    /// Generated by a component, such as a rule or set entry of kube-proxy. The change shows where
    /// a connection is decided, but the component restores the original.
    Generated,
}

/// Reason why a change cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The change has no effect.
    #[error("the change has no effect")]
    NoEffect,
    /// The plan or namespace lacks the object to change.
    #[error("{0} does not contain the object to change")]
    Missing(String),
    /// The cluster CIDR of kube-proxy cannot be parsed.
    #[error("invalid cluster CIDR `{0}`")]
    InvalidCidr(String),
    /// The rules of a namespace cannot be parsed.
    #[error("cannot parse the rules of {0}")]
    Unreadable(String),
}

impl ProposedChange {
    /// Returns whether an operator configured the changed object or a component generated it.
    #[must_use]
    pub fn origin(&self) -> Origin {
        let written = match self {
            Self::DeleteRule { chain, rule, .. } => {
                let own = |chain: &str| COMPONENT_CHAINS.iter().any(|own| chain.starts_with(own));
                own(chain) || rule.rsplit_once("-j ").is_some_and(|(_, to)| own(to))
            }
            Self::DeleteSetEntry { set, .. } => set.starts_with("KUBE-") || set.starts_with("cali"),
            Self::DeleteNftElement { table, .. } | Self::DeleteNftRule { table, .. } => {
                table.ends_with(" kube-proxy")
            }
            Self::DeleteRoute { route, .. } | Self::AddRoute { route, .. } => {
                OVERLAY_DEVICES.iter().any(|own| route.dev.starts_with(own))
            }
            _ => false,
        };
        if written {
            Origin::Generated
        } else {
            Origin::Configured
        }
    }

    /// Whether kube-proxy generates its rules on node `on` again because of the change.
    #[must_use]
    pub fn restarts(&self, on: &str) -> bool {
        match self {
            Self::ClusterPolicy { .. } | Self::ClusterCidr { .. } | Self::MasqueradeAll => true,
            Self::RestartProxy { node } => node == on,
            _ => false,
        }
    }

    /// Whether the change rewrites a whole set of rules, of which only few may matter.
    #[must_use]
    pub const fn rewrites_rules(&self) -> bool {
        matches!(
            self,
            Self::RestartProxy { .. } | Self::UndoManualChanges { .. }
        )
    }
}

/// Returns the pod networks in the format of `--cluster-cidr`: for each IP family, the smallest
/// network that contains all pod networks. Returns `None` if there are none.
pub(super) fn covering_networks(all: impl Iterator<Item = IpNetwork>) -> Option<String> {
    let mut families: [Option<IpNetwork>; 2] = [None, None];
    for network in all {
        let current = &mut families[usize::from(network.is_ipv6())];
        *current = Some(match *current {
            None => network,
            Some(held) => enclosing_network(held, network),
        });
    }
    let networks = families.into_iter().flatten();
    let texts: Vec<String> = networks.map(|network| network.to_string()).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// Returns the smallest network that contains two networks of one IP family.
fn enclosing_network(left: IpNetwork, right: IpNetwork) -> IpNetwork {
    let mut prefix = left.prefix().min(right.prefix());
    loop {
        let network = IpNetwork::new(left.ip(), prefix)
            .and_then(|made| IpNetwork::new(made.network(), prefix));
        match network {
            Ok(made) if made.contains(right.ip()) || prefix == 0 => return made,
            Ok(_) => prefix -= 1,
            Err(_) => return left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_networks_smallest_of_each_family_is_listed() {
        let covered = |all: &[&str]| {
            let all = all.iter().map(|text| text.parse().expect("valid network"));
            covering_networks(all)
        };
        let result = covered(&["10.244.1.0/24", "10.244.2.0/24"]);
        assert_eq!(result.as_deref(), Some("10.244.0.0/22"));
        let result = covered(&["10.244.1.0/24"]);
        assert_eq!(result.as_deref(), Some("10.244.1.0/24"));
        let both = covered(&[
            "10.0.0.0/24",
            "fd00:1::/64",
            "192.168.0.0/16",
            "fd00:2::/64",
        ]);
        assert_eq!(both.as_deref(), Some("0.0.0.0/0,fd00::/30"));
        assert_eq!(covered(&[]), None);
    }

    #[test]
    fn origin_component_rules_are_generated() {
        let rule = |chain: &str, rule: &str| {
            ProposedChange::DeleteRule {
                namespace: "node-1".to_owned(),
                backend: Backend::Nft,
                v6: false,
                table: "nat".to_owned(),
                chain: chain.to_owned(),
                number: 1,
                rule: rule.to_owned(),
            }
            .origin()
        };
        assert_eq!(rule("KUBE-SERVICES", "-j RETURN"), Origin::Generated);
        assert_eq!(
            rule("OUTPUT", "-m comment -j KUBE-SERVICES"),
            Origin::Generated
        );
        assert_eq!(
            rule("POSTROUTING", "-s 10.0.0.0/8 -j RETURN"),
            Origin::Configured
        );
        assert_eq!(ProposedChange::MasqueradeAll.origin(), Origin::Configured);
    }
}
