//! The names of ipvs mode's chains.

pub(super) use crate::kube_proxy::iptables::chains::{
    FIREWALL, FORWARD, MARK_DROP, MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES,
};

/// Load balancers' addresses.
pub(super) const LOAD_BALANCER: &str = "KUBE-LOAD-BALANCER";
/// Node ports; in the filter table, health check node ports.
pub(super) const NODE_PORT: &str = "KUBE-NODE-PORT";
/// Load balancers' addresses with source ranges, from v1.25 on.
pub(super) const SOURCE_RANGES: &str = "KUBE-SOURCE-RANGES-FIREWALL";
/// Load balancers' addresses with source ranges, up to v1.10.
pub(super) const FIRE_WALL: &str = "KUBE-FIRE-WALL";
/// Traffic to the services' addresses.
pub(super) const IPVS_FILTER: &str = "KUBE-IPVS-FILTER";
/// The node's own traffic to load balancers' addresses.
pub const IPVS_OUT_FILTER: &str = "KUBE-IPVS-OUT-FILTER";
