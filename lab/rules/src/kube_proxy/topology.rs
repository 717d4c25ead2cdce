//! Selects the endpoints that serve each kind of traffic on a node.
//!
//! Follows `CategorizeEndpoints` of kubernetes/kubernetes `pkg/proxy/topology.go` (v1.24.0 to
//! v1.36). For older versions, follows `FilterEndpoints` (v1.21.0 to v1.23.4) with the loops of
//! `pkg/proxy/iptables/proxier.go`.

use super::endpoints::Endpoint;
use super::history::{
    NODE_HINTS, TERMINATING_FALLBACK, UNREADY_ENDPOINTS_COUNT, XLB_CHAINS, ZONE_HINTS,
};
use super::services::ServicePort;
use super::version::Version;

/// Locality of a node, which topology hints refer to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// Value of the node's label `topology.kubernetes.io/zone`.
    pub zone: Option<&'a str>,
}

/// Endpoints of a service port, selected for one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// Endpoints for traffic that may leave the node.
    pub cluster: Vec<&'a Endpoint>,
    /// Endpoints for traffic that must stay on the node.
    pub local: Vec<&'a Endpoint>,
    /// Endpoints that have a chain of their own: the union of `cluster` and `local`.
    pub reachable: Vec<&'a Endpoint>,
    /// Whether the cluster has a usable endpoint on any node.
    pub any: bool,
}

/// Selects `endpoints` of `port` for a node at `place`.
#[must_use]
pub fn choose<'a>(
    endpoints: &'a [Endpoint],
    port: &ServicePort,
    version: Version,
    place: Place<'_>,
) -> Chosen<'a> {
    if version.has(&XLB_CHAINS) {
        choose_before_categories(endpoints, port, version)
    } else {
        categorize(endpoints, port, version, place)
    }
}

/// Selects endpoints as versions up to v1.23 do. A `Local` policy for internal traffic is effective
/// only if the policy for external traffic is not `Local`.
fn choose_before_categories<'a>(
    endpoints: &'a [Endpoint],
    port: &ServicePort,
    version: Version,
) -> Chosen<'a> {
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
    let (reachable, any) = if version.has(&UNREADY_ENDPOINTS_COUNT) {
        let any = !candidates.is_empty();
        (candidates, any)
    } else {
        (cluster.clone(), !cluster.is_empty())
    };
    Chosen {
        cluster,
        local,
        reachable,
        any,
    }
}

/// Selects endpoints as versions from v1.24 on do.
fn categorize<'a>(
    endpoints: &'a [Endpoint],
    port: &ServicePort,
    version: Version,
    place: Place<'_>,
) -> Chosen<'a> {
    let fallback = version.has(&TERMINATING_FALLBACK);
    let leaving = |e: &Endpoint| fallback && e.serving && e.terminating;
    let mut chosen = Chosen::default();

    if port.uses_cluster_endpoints() {
        let near = nearness(endpoints, port, version, place);
        chosen.cluster = endpoints
            .iter()
            .filter(|e| e.ready && near.admits(e, place))
            .collect();
        if chosen.cluster.is_empty() {
            chosen.cluster = endpoints.iter().filter(|e| leaving(e)).collect();
        }
        chosen.any = !chosen.cluster.is_empty();
    }

    if port.uses_local_endpoints() {
        chosen.any |= endpoints.iter().any(|e| e.ready || leaving(e));
        chosen.local = endpoints.iter().filter(|e| e.local && e.ready).collect();
        if chosen.local.is_empty() {
            chosen.local = endpoints
                .iter()
                .filter(|e| e.local && !e.ready && leaving(e))
                .collect();
        }
    }

    chosen.reachable = endpoints
        .iter()
        .filter(|e| {
            let same = |other: &&Endpoint| std::ptr::eq(*other, *e);
            chosen.cluster.iter().any(same) || chosen.local.iter().any(same)
        })
        .collect();
    chosen
}

/// Scope of the topology hints that kube-proxy obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nearness {
    Anywhere,
    SameZone,
    SameNode,
}

impl Nearness {
    fn admits(self, endpoint: &Endpoint, place: Place<'_>) -> bool {
        match self {
            Self::Anywhere => true,
            Self::SameZone => endpoint
                .zone_hints
                .iter()
                .any(|zone| Some(zone.as_str()) == place.zone),
            Self::SameNode => endpoint.node_hints.iter().any(|node| node == place.node),
        }
    }
}

/// Returns the scope of hints. kube-proxy obeys hints only if every ready endpoint has one and at
/// least one hint names this zone or node.
fn nearness(
    endpoints: &[Endpoint],
    port: &ServicePort,
    version: Version,
    place: Place<'_>,
) -> Nearness {
    let ready = || endpoints.iter().filter(|e| e.ready);
    if ready().next().is_none() || !port.topology_hints || !version.has(&ZONE_HINTS) {
        return Nearness::Anywhere;
    }
    let obeyed = |near: Nearness, hints: fn(&Endpoint) -> &[String]| {
        ready().all(|e| !hints(e).is_empty()) && ready().any(|e| near.admits(e, place))
    };
    if version.has(&NODE_HINTS) && obeyed(Nearness::SameNode, |e| &e.node_hints) {
        Nearness::SameNode
    } else if place.zone.is_some_and(|zone| !zone.is_empty())
        && obeyed(Nearness::SameZone, |e| &e.zone_hints)
    {
        Nearness::SameZone
    } else {
        Nearness::Anywhere
    }
}
