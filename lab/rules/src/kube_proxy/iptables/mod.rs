//! Computes the rules of kube-proxy's iptables mode.
//!
//! Follows `syncProxyRules` of kubernetes/kubernetes `pkg/proxy/iptables/proxier.go`. [`node`]
//! writes the rules of the node, [`xlb`] the rules of a service up to v1.23, and [`ext`] from v1.24
//! on.

pub mod chains;
mod ext;
pub(super) mod local;
mod node;
pub(super) mod rule;
mod spread;
#[cfg(test)]
mod tests;
mod xlb;

use ipnetwork::IpNetwork;

use super::endpoints::EndpointMap;
use super::history::{ACCOUNTING, XLB_CHAINS};
use super::services::ServicePort;
use super::version::Version;
use super::{Family, KubeProxy, KubeProxyError, Node, Rules, topology};
use local::LocalTraffic;
use svclab_ruleset::iptables::command::Command;
use svclab_ruleset::iptables::script::{IptablesScript, Table};

/// With more endpoints than this, kube-proxy omits comments in endpoint rules to keep the rule set
/// small (`largeClusterEndpointsThreshold`; see
/// [`COMMENTS_OMITTED_IF_LARGE`](super::history::COMMENTS_OMITTED_IF_LARGE)).
const LARGE_CLUSTER_ENDPOINTS: usize = 1000;

/// Inputs of the rules of every service.
struct Context<'a> {
    proxy: &'a KubeProxy,
    version: Version,
    family: Family,
    node: &'a Node<'a>,
    local: Option<LocalTraffic>,
    /// Whether there are more endpoints than [`LARGE_CLUSTER_ENDPOINTS`].
    is_large_cluster: bool,
}

impl Context<'_> {
    /// Whether source ranges admit the node itself, by the address that kube-proxy uses for the
    /// node.
    fn admits_node(&self, ranges: &[IpNetwork]) -> bool {
        self.node.is_admitted(ranges, self.version, self.family)
    }

    /// Whether rules count packets with nfacct objects.
    fn has_accounting(&self) -> bool {
        self.version.has(&ACCOUNTING) && self.proxy.accounting
    }
}

/// Computes the rules for `ports` and their `endpoints`.
pub(super) fn rules(
    proxy: &KubeProxy,
    node: &Node<'_>,
    ports: &[ServicePort],
    endpoints: &EndpointMap,
    family: Family,
) -> Result<Rules, KubeProxyError> {
    let total: usize = ports.iter().map(|port| endpoints.get(port).len()).sum();
    let context = Context {
        proxy,
        version: proxy.version,
        family,
        node,
        local: LocalTraffic::new(proxy, node, family)?,
        is_large_cluster: total > LARGE_CLUSTER_ENDPOINTS,
    };

    let mut script = IptablesScript::new();
    node::write_before_services(&context, &mut script);
    for port in ports {
        let selection = topology::select_endpoints(
            endpoints.get(port),
            port,
            context.version,
            context.node.locality(),
        );
        if context.version.has(&XLB_CHAINS) {
            xlb::write_service(&context, port, &selection, &mut script);
        } else {
            ext::write_service(&context, port, &selection, &mut script);
        }
    }
    node::write_after_services(&context, &mut script);

    Ok(Rules {
        script,
        accounting: node::accounting(&context),
    })
}

/// Adds a command to the nat table.
fn nat(script: &mut IptablesScript, command: Command) {
    script.table_mut(Table::Nat).push(command);
}

/// Adds a command to the filter table.
fn filter(script: &mut IptablesScript, command: Command) {
    script.table_mut(Table::Filter).push(command);
}

/// Declares a chain of the nat table.
fn nat_chain(script: &mut IptablesScript, name: &str) {
    script.table_mut(Table::Nat).declare_chain(name);
}
