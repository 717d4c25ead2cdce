//! kube-proxy's ipvs mode: virtual servers of IPVS balance, ipsets say which
//! packets are to be masqueraded or dropped, and a few rules of iptables that
//! hardly depend on the services do it.
//!
//! Follows `syncProxyRules` of kubernetes/kubernetes
//! `pkg/proxy/ipvs/proxier.go`. `services` is what it makes of each service,
//! `script` and
//! `filter` are the rules from v1.11 on, `early` those before, [`sysctls()`]
//! and [`timeouts()`] what it sets when it starts.
//!
//! # Load balancers' addresses that are not bound
//!
//! With `bindLoadBalancerIPs: false`, as in TKE, a load balancer's address has
//! its entries in the sets and its virtual server, but is not bound to
//! `kube-ipvs0` (nor in the set of its addresses, from v1.26 on). So it was for
//! everybody up to v1.10. A pod's packet to it is not for the node: it passes
//! PREROUTING, where the sets mark it or not, and leaves by the default route
//! without ever meeting IPVS, which takes forwarded packets only on their way
//! into the node. The node's own packets are another matter: IPVS takes them in
//! OUTPUT, bound or not.
//!
//! # What is left out
//!
//! The state is that after one sync on a fresh node. Some versions take a later
//! sync's node ports off an address that is also an external IP, because that is
//! bound then; and up to v1.19 each sync flushes nat `KUBE-MARK-DROP`, which the
//! kubelet fills again.
//!
//! Nor does IPv6 go wrong as it did once: up to v1.12 the sets of a kube-proxy for
//! IPv6 are of family inet, so that no entry gets into them (#68436, v1.13.0), and
//! before v1.14 it finds no address to serve node ports on (#71035).

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
use super::node_ports::Serving;
use super::services::ServicePort;
use super::version::Version;
use super::{Family, KubeProxy, KubeProxyError, Node};
use svclab_model::plan::VirtualServer;
use svclab_ruleset::ipset::IpsetScript;
use svclab_ruleset::iptables::script::Script;

pub use chains::IPVS_OUT_FILTER;
pub use sysctls::{Kernel, Sysctl, sysctls};
pub use timeouts::{Timeout, TimeoutError, timeouts};

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

/// The scheduler of virtual servers unless another is asked for.
const DEFAULT_SCHEDULER: &str = "rr";

/// What the state of every service depends on.
struct Context<'a> {
    proxy: &'a KubeProxy,
    version: Version,
    family: Family,
    node: &'a Node<'a>,
    endpoints: &'a EndpointMap,
    local: Option<LocalTraffic>,
    scheduler: &'a str,
    /// The addresses that serve node ports, sorted.
    node_ips: Vec<IpAddr>,
}

/// What kube-proxy leaves for `ports` and their `endpoints`.
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
    let context = Context {
        proxy,
        version,
        family,
        node,
        endpoints,
        local: LocalTraffic::of(proxy, node, family)?,
        scheduler,
        node_ips: node_ips(proxy, node, family),
    };
    let made = services::make(&context, ports);
    let script = if version.has(&IPVS_CHAINS) {
        script::rules(&context, &made)
    } else {
        early::rules(&context, &made)
    };
    Ok(IpvsRules {
        script,
        sets: made.sets.into_script()?,
        servers: made.servers.into_values().collect(),
        bound: made.bound.into_iter().collect(),
        broadcast: version.has(&IPVS_BROADCAST) && family == Family::V4,
    })
}

/// The addresses that serve node ports, sorted.
/// (`NodeIPs` and `GetNodeAddresses` of kubernetes/kubernetes `pkg/proxy/ipvs`
/// and `pkg/proxy/util`.)
fn node_ips(proxy: &KubeProxy, node: &Node<'_>, family: Family) -> Vec<IpAddr> {
    let serving = Serving::of(proxy, family);
    let meant = |ip: IpAddr| match (&serving, ip) {
        (Serving::All, IpAddr::V6(six)) => !six.is_unicast_link_local(),
        _ => serving.covers(ip, node.ip),
    };
    let loopback = proxy.version.has(&IPVS_LOOPBACK_NODE_PORTS);
    let mut ips: Vec<IpAddr> = node
        .interfaces
        .iter()
        .copied()
        .filter(|ip| meant(*ip) && (loopback || !ip.is_loopback()))
        .collect();
    ips.sort_unstable();
    ips.dedup();
    ips
}
