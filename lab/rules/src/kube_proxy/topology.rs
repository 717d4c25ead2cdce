//! Selects the endpoints that serve each kind of traffic on a node.
//!
//! Follows `CategorizeEndpoints` of kubernetes/kubernetes `pkg/proxy/topology.go` (v1.24.0 to
//! v1.36). For older versions, follows `FilterEndpoints` (v1.21.0 to v1.23.4) with the loops of
//! `pkg/proxy/iptables/proxier.go`.

use super::endpoints::Endpoint;
use super::history::{
    NODE_HINTS, TERMINATING_FALLBACK, UNREADY_ENDPOINTS_COUNTED, XLB_CHAINS, ZONE_HINTS,
};
use super::services::ServicePort;
use super::version::Version;

/// Locality of a node, which topology hints refer to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NodeLocality<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// Value of the node's label `topology.kubernetes.io/zone`.
    pub zone: Option<&'a str>,
}

/// Endpoints of a service port, selected for one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EndpointSelection<'a> {
    /// Endpoints for traffic that may leave the node.
    pub cluster: Vec<&'a Endpoint>,
    /// Endpoints for traffic that must stay on the node.
    pub local: Vec<&'a Endpoint>,
    /// Endpoints that have a chain of their own: the union of `cluster` and `local`.
    pub reachable: Vec<&'a Endpoint>,
    /// Whether the cluster has a usable endpoint on any node.
    pub has_any: bool,
}

/// Selects `endpoints` of `port` for a node at `place`.
#[must_use]
pub(crate) fn select_endpoints<'a>(
    endpoints: &'a [Endpoint],
    port: &ServicePort,
    version: Version,
    locality: NodeLocality<'_>,
) -> EndpointSelection<'a> {
    if version.has(&XLB_CHAINS) {
        select_up_to_1_23(endpoints, port, version)
    } else {
        select_from_1_24(endpoints, port, version, locality)
    }
}

/// Selects endpoints as versions up to v1.23 do. A `Local` policy for internal traffic is effective
/// only if the policy for external traffic is not `Local`.
fn select_up_to_1_23<'a>(
    endpoints: &'a [Endpoint],
    port: &ServicePort,
    version: Version,
) -> EndpointSelection<'a> {
    let internal_local = port.internal_local && !port.external_local;
    let candidates: Vec<&Endpoint> = endpoints
        .iter()
        .filter(|endpoint| !internal_local || endpoint.local)
        .collect();
    let cluster: Vec<&Endpoint> = candidates.iter().copied().filter(|e| e.ready).collect();
    let local = if port.external_local {
        cluster.iter().copied().filter(|e| e.local).collect()
    } else {
        Vec::new()
    };
    let (reachable, any) = if version.has(&UNREADY_ENDPOINTS_COUNTED) {
        let any = !candidates.is_empty();
        (candidates, any)
    } else {
        (cluster.clone(), !cluster.is_empty())
    };
    EndpointSelection {
        cluster,
        local,
        reachable,
        has_any: any,
    }
}

/// Selects endpoints as versions from v1.24 on do.
fn select_from_1_24<'a>(
    endpoints: &'a [Endpoint],
    port: &ServicePort,
    version: Version,
    locality: NodeLocality<'_>,
) -> EndpointSelection<'a> {
    let fallback = version.has(&TERMINATING_FALLBACK);
    let is_terminating = |e: &Endpoint| fallback && e.serving && e.terminating;
    let mut selection = EndpointSelection::default();

    if port.has_cluster_traffic() {
        let scope = hint_scope(endpoints, port, version, locality);
        selection.cluster = endpoints
            .iter()
            .filter(|e| e.ready && scope.admits(e, locality))
            .collect();
        if selection.cluster.is_empty() {
            selection.cluster = endpoints.iter().filter(|e| is_terminating(e)).collect();
        }
        selection.has_any = !selection.cluster.is_empty();
    }

    if port.has_local_traffic() {
        selection.has_any |= endpoints.iter().any(|e| e.ready || is_terminating(e));
        selection.local = endpoints.iter().filter(|e| e.local && e.ready).collect();
        if selection.local.is_empty() {
            selection.local = endpoints
                .iter()
                .filter(|e| e.local && !e.ready && is_terminating(e))
                .collect();
        }
    }

    selection.reachable = endpoints
        .iter()
        .filter(|e| {
            let is_same = |endpoint: &&Endpoint| std::ptr::eq(*endpoint, *e);
            selection.cluster.iter().any(is_same) || selection.local.iter().any(is_same)
        })
        .collect();
    selection
}

/// Scope of the topology hints that kube-proxy obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HintScope {
    Anywhere,
    SameZone,
    SameNode,
}

impl HintScope {
    fn admits(self, endpoint: &Endpoint, locality: NodeLocality<'_>) -> bool {
        match self {
            Self::Anywhere => true,
            Self::SameZone => endpoint
                .zone_hints
                .iter()
                .any(|zone| Some(zone.as_str()) == locality.zone),
            Self::SameNode => endpoint.node_hints.iter().any(|node| node == locality.node),
        }
    }
}

/// Returns the scope of hints. kube-proxy obeys hints only if every ready endpoint has one and at
/// least one hint names this zone or node.
fn hint_scope(
    endpoints: &[Endpoint],
    port: &ServicePort,
    version: Version,
    locality: NodeLocality<'_>,
) -> HintScope {
    let ready = || endpoints.iter().filter(|e| e.ready);
    if ready().next().is_none() || !port.topology_hints || !version.has(&ZONE_HINTS) {
        return HintScope::Anywhere;
    }
    let is_obeyed = |scope: HintScope, hints: fn(&Endpoint) -> &[String]| {
        ready().all(|e| !hints(e).is_empty()) && ready().any(|e| scope.admits(e, locality))
    };
    if version.has(&NODE_HINTS) && is_obeyed(HintScope::SameNode, |e| &e.node_hints) {
        HintScope::SameNode
    } else if locality.zone.is_some_and(|zone| !zone.is_empty())
        && is_obeyed(HintScope::SameZone, |e| &e.zone_hints)
    {
        HintScope::SameZone
    } else {
        HintScope::Anywhere
    }
}
