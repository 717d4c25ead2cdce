//! Describes what a change affects beside the failing connections.
//!
//! Sources: the Kubernetes documentation (Virtual IPs and Service Proxies; Using Source IP), and
//! Linux v6.12, `Documentation/networking/ip-sysctl.rst` and `nf_conntrack-sysctl.rst`.

use super::{PolicyField, ProposedChange, ServiceField};

impl ProposedChange {
    /// Returns the side effect of a change as a sentence without a full stop. `None` if the change
    /// has no known one.
    #[must_use]
    pub fn side_effect(&self) -> Option<&'static str> {
        Some(match self {
            Self::ClusterPolicy { field, .. } => match field {
                PolicyField::ExternalTrafficPolicy => {
                    "endpoints see the address of a node, not that of the client"
                }
                PolicyField::InternalTrafficPolicy => {
                    "pods also connect to endpoints on other nodes"
                }
            },
            Self::LocalPolicy { field, .. } => match field {
                PolicyField::ExternalTrafficPolicy => {
                    "nodes without an endpoint of the service serve no external traffic"
                }
                PolicyField::InternalTrafficPolicy => {
                    "nodes without an endpoint of the service serve no internal traffic"
                }
            },
            Self::ServiceField { field, .. } => match field {
                ServiceField::NoSourceRanges => "every source can connect to the load balancer",
                ServiceField::NoAffinity => {
                    "connections of one client can have different endpoints"
                }
                _ => return None,
            },
            Self::FlannelMasquerade => {
                "destinations outside of the pod networks see the address of a node, not that of the \
                 pod"
            }
            Self::NonMasqueradeNetwork { .. } => {
                "destinations in the network see the address of the pod, so replies need a route to \
                 the pod"
            }
            Self::DeleteConnections { .. } => "open connections to the address may end",
            Self::MasqueradeNetwork { .. } => {
                "destinations in the network see the address of a node, not that of the pod"
            }
            Self::ClusterCidr { .. } => {
                "endpoints see the address of a node for cluster IP traffic from other sources"
            }
            Self::MasqueradeAll => "endpoints see the address of a node for all cluster IP traffic",
            Self::MasqueradeFew => {
                "endpoints see the address of the client, so replies need a route to the client"
            }
            Self::BeLiberal => {
                "conntrack accepts TCP segments outside of the window, for all connections of the node"
            }
            Self::AllowForeignSources => "the underlay forwards packets with spoofed sources",
            Self::UseOwnSource { .. } => {
                "endpoints see the address of the load balancer, not that of the client"
            }
            Self::ForwardToPods { .. } => "the load balancer needs routes to the pod networks",
            Self::RemoveSecurityGroup { .. } => "every source can connect to the load balancer",
            Self::RemoveBackend { .. } => {
                "the load balancer uses fewer nodes, and with `externalTrafficPolicy: Local` no \
                 endpoints of the removed node"
            }
            Self::SetSysctl { keys, .. } => return keys.iter().find_map(|key| sysctl_effect(key)),
            _ => return None,
        })
    }
}

fn sysctl_effect(key: &str) -> Option<&'static str> {
    Some(match key.rsplit('.').next()? {
        "rp_filter" => "the node accepts packets with spoofed sources",
        "accept_local" => "the node accepts packets from outside with its own addresses as source",
        "route_localnet" => "other machines can reach services on 127.0.0.0/8 of the node",
        "ip_forward" | "forwarding" => "the node forwards packets between all its interfaces",
        "nf_conntrack_tcp_be_liberal" => {
            "conntrack accepts TCP segments outside of the window, for all connections of the node"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_effect_of_sysctls_depends_on_name() {
        let set = |key: &str| ProposedChange::SetSysctl {
            namespaces: vec!["node-1".to_owned()],
            keys: vec![key.to_owned()],
            value: "0".to_owned(),
        };
        let effect = set("net.ipv4.conf.all.rp_filter").side_effect();
        assert!(effect.is_some_and(|effect| effect.contains("spoofed")));
        assert_eq!(set("net.ipv4.tcp_sack").side_effect(), None);
    }
}
