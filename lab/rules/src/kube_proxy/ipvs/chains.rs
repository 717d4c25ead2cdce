//! Names the chains of ipvs mode.

pub(super) use crate::kube_proxy::iptables::chains::{
    FIREWALL, FORWARD, MARK_DROP, MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES,
};

/// Rules for load balancer addresses.
pub(super) const LOAD_BALANCER: &str = "KUBE-LOAD-BALANCER";
/// Rules for node ports; in the filter table, for health check node ports.
pub(super) const NODE_PORT: &str = "KUBE-NODE-PORT";
/// Rules for load balancer addresses with source ranges, from v1.25 on.
pub(super) const SOURCE_RANGES: &str = "KUBE-SOURCE-RANGES-FIREWALL";
/// Rules for load balancer addresses with source ranges, up to v1.10.
pub(super) const EARLY_FIREWALL: &str = "KUBE-FIRE-WALL";
/// Rules for traffic to the services' addresses.
pub(super) const IPVS_FILTER: &str = "KUBE-IPVS-FILTER";
/// Rules for the node's own traffic to load balancer addresses.
pub const IPVS_OUT_FILTER: &str = "KUBE-IPVS-OUT-FILTER";
