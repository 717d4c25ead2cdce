//! kube-proxy's ipvs mode: virtual servers of IPVS balance, ipsets say which
//! packets are to be masqueraded or dropped, and a few rules of iptables that
//! hardly depend on the services do it.
//!
//! Follows `syncProxyRules` of kubernetes/kubernetes `pkg/proxy/ipvs/proxier.go`
//! and the names in `pkg/proxy/ipvs/ipset.go`.

use std::net::IpAddr;

use crate::plan::VirtualServer;
use crate::rules::ipset::IpsetScript;
use crate::rules::script::Script;

/// The dummy interface that holds the services' addresses, so that packets to
/// them are delivered on the node, where IPVS takes them.
pub const DUMMY: &str = "kube-ipvs0";

/// What one kube-proxy in ipvs mode leaves on a node in one IP family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IpvsRules {
    /// What it hands to `iptables-restore` or `ip6tables-restore`. It names
    /// sets of [`IpvsRules::sets`], which must exist first, and up to v1.24 the
    /// chain nat `KUBE-MARK-DROP`, whose rule is the kubelet's.
    pub script: Script,
    /// The ipsets it makes, all of its version's, empty ones too.
    pub sets: IpsetScript,
    /// The virtual servers it makes, in the order of their addresses.
    pub servers: Vec<VirtualServer>,
    /// The addresses it binds to [`DUMMY`], each with the full prefix length,
    /// sorted. The interface is made whether there are any or not; it has the
    /// flag `NOARP` and is left down.
    pub bound: Vec<IpAddr>,
    /// Whether each of those addresses got itself as its broadcast address,
    /// which means nothing but shows in `ip addr`.
    pub broadcast: bool,
}
