//! Computes the state of kube-proxy's ipvs mode: virtual servers, ipsets and iptables rules. IPVS
//! virtual servers balance connections. Ipsets match packets to masquerade or drop. A few iptables
//! rules, which hardly depend on the services, use the sets.
//!
//! Follows `syncProxyRules` of kubernetes/kubernetes `pkg/proxy/ipvs/proxier.go`. `services`
//! computes the state of each service. `script` and `filter` write the rules from v1.11 on, `early`
//! the rules before. [`sysctls()`] and [`timeouts()`] return the settings that kube-proxy changes
//! at start.
//!
//! # Unbound load balancer addresses
//!
//! With `bindLoadBalancerIPs: false`, as in TKE, a load balancer address has its entries in the
//! sets and its virtual server, but is not bound to `kube-ipvs0`. From v1.26 on it is not in the
//! set of bound addresses either. Up to v1.10 no load balancer address was bound. A pod's packet to
//! such an address is not for the node: the packet traverses PREROUTING, where rules with the sets
//! may mark it, and leaves by the default route without IPVS. IPVS handles packets from outside
//! only if they are delivered to the node. The node's own packets differ: IPVS handles them in
//! OUTPUT, whether the address is bound or not.
//!
//! # Not modelled
//!
//! The state is that after one sync on a new node. In some versions, a later sync removes node
//! ports from an address that is also an external IP, because the address is bound then. Up to
//! v1.19 each sync flushes nat `KUBE-MARK-DROP`, which the kubelet fills again.
//!
//! Two bugs of IPv6 are not modelled. Up to v1.12 the sets of a kube-proxy for IPv6 have the family
//! inet, so no entry can be added (#68436, v1.13.0). Before v1.14 kube-proxy finds no IPv6 address
//! to serve node ports on (#71035).

mod chains;
mod early;
mod filter;
mod masquerade;
mod script;
mod services;
mod sets;
mod sysctls;
#[cfg(test)]
mod tests;
mod timeouts;

use std::net::IpAddr;

use super::endpoints::EndpointMap;
use super::history::{IPVS_BROADCAST, IPVS_CHAINS, IPVS_LOOPBACK_NODE_PORTS};
use super::iptables::local::LocalTraffic;
use super::node_ports::NodePortSelection;
use super::services::ServicePort;
use super::version::Version;
use super::{Family, KubeProxy, KubeProxyError, Node};
use svclab_model::plan::VirtualServer;
use svclab_ruleset::ipset::IpsetScript;
use svclab_ruleset::iptables::script::IptablesScript;

pub use chains::IPVS_OUT_FILTER;
pub use sysctls::{KernelVersion, ProxySysctl, sysctls};
pub use timeouts::timeouts;

/// Dummy interface with the services' addresses. Packets to these addresses are delivered to the
/// node, where IPVS handles them.
pub const DUMMY: &str = "kube-ipvs0";

/// State that a kube-proxy in ipvs mode creates on a node in one IP family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IpvsRules {
    /// Input of `iptables-restore` or `ip6tables-restore`. The rules refer to sets in
    /// [`IpvsRules::sets`], which must exist first, and up to v1.24 to the chain nat
    /// `KUBE-MARK-DROP`, whose rule the kubelet writes.
    pub script: IptablesScript,
    /// Ipsets of the version, including empty ones.
    pub sets: IpsetScript,
    /// Virtual servers in the order of their addresses.
    pub servers: Vec<VirtualServer>,
    /// Addresses bound to [`DUMMY`], each with the full prefix length, sorted. kube-proxy creates
    /// the interface even if there are none; the interface has the flag `NOARP` and is down.
    pub bound: Vec<IpAddr>,
    /// Whether each bound address has itself as its broadcast address. This has no effect but is
    /// visible in `ip addr`.
    pub broadcast: bool,
}

/// Default scheduler of virtual servers.
const DEFAULT_SCHEDULER: &str = "rr";

/// Inputs of the state of every service.
struct IpvsContext<'a> {
    proxy: &'a KubeProxy,
    version: Version,
    family: Family,
    node: &'a Node<'a>,
    endpoints: &'a EndpointMap,
    local: Option<LocalTraffic>,
    scheduler: &'a str,
    /// Addresses that serve node ports, sorted.
    node_ips: Vec<IpAddr>,
}

/// Computes the state for `ports` and their `endpoints`.
pub(super) fn rules(
    proxy: &KubeProxy,
    node: &Node<'_>,
    ports: &[ServicePort],
    endpoints: &EndpointMap,
    family: Family,
) -> Result<IpvsRules, KubeProxyError> {
    let version = proxy.version;
    let scheduler = match proxy.ipvs_scheduler.as_str() {
        "" => DEFAULT_SCHEDULER,
        other => other,
    };
    let context = IpvsContext {
        proxy,
        version,
        family,
        node,
        endpoints,
        local: LocalTraffic::new(proxy, node, family)?,
        scheduler,
        node_ips: node_ips(proxy, node, family),
    };
    let objects = services::build_objects(&context, ports);
    let script = if version.has(&IPVS_CHAINS) {
        script::rules(&context, &objects)
    } else {
        early::rules(&context, &objects)
    };
    Ok(IpvsRules {
        script,
        sets: objects.sets.into_script()?,
        servers: objects.servers.into_values().collect(),
        bound: objects.bound.into_iter().collect(),
        broadcast: version.has(&IPVS_BROADCAST) && family == Family::V4,
    })
}

/// Returns the addresses that serve node ports, sorted. (`NodeIPs` and `GetNodeAddresses` of
/// kubernetes/kubernetes `pkg/proxy/ipvs` and `pkg/proxy/util`.)
fn node_ips(proxy: &KubeProxy, node: &Node<'_>, family: Family) -> Vec<IpAddr> {
    let serving = NodePortSelection::new(proxy, family);
    let is_serving = |ip: IpAddr| match (&serving, ip) {
        (NodePortSelection::All, IpAddr::V6(six)) => !six.is_unicast_link_local(),
        _ => serving.covers(ip, node.ip),
    };
    let loopback = proxy.version.has(&IPVS_LOOPBACK_NODE_PORTS);
    let mut ips: Vec<IpAddr> = node
        .interfaces
        .iter()
        .copied()
        .filter(|ip| is_serving(*ip) && (loopback || !ip.is_loopback()))
        .collect();
    ips.sort_unstable();
    ips.dedup();
    ips
}
