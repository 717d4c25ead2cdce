//! Counts the runs of a case that it takes to draw each endpoint of the called services. kube-proxy
//! draws an endpoint at random for each connection, or once for each client of a service with
//! session affinity.

use std::collections::BTreeMap;

use svclab_judge::{called_service, possible_endpoints};
use svclab_runner::run::prepare::Prepared;

/// Accepted probability that every draw misses one of the endpoints.
const MAX_CHANCE: f64 = 1e-3;

/// Maximum number of draws.
const MAX_DRAWS: u32 = 20;

/// Returns the number of runs of each probe of a service with several endpoints and session
/// affinity. All connections of such a probe go to one endpoint.
#[must_use]
pub fn affinity_runs(prepared: &Prepared) -> BTreeMap<String, u32> {
    let mut runs = BTreeMap::new();
    for_each_drawing(prepared, |probe, endpoints, _, has_affinity| {
        if has_affinity {
            runs.insert(probe.to_owned(), draws_for(endpoints));
        }
    });
    runs
}

/// Returns the number of runs in which every probe draws each endpoint of its service almost
/// certainly.
pub(crate) fn endpoint_runs(prepared: &Prepared) -> u32 {
    let mut most = 1;
    for_each_drawing(prepared, |_, endpoints, connections, has_affinity| {
        let draws = if has_affinity { 1 } else { connections.max(1) };
        most = most.max(draws_for(endpoints).div_ceil(draws));
    });
    most
}

/// Calls `visit` for each probe of a service with several endpoints, with the name of the probe, the
/// number of endpoints, the number of connections, and whether the service has session affinity.
fn for_each_drawing(prepared: &Prepared, mut visit: impl FnMut(&str, usize, u32, bool)) {
    for (judged, stage) in prepared.stages().zip(&prepared.plan.stages) {
        for probe in &stage.probes {
            let Some((service, _)) = called_service(judged.cluster, probe) else {
                continue;
            };
            let endpoints = possible_endpoints(judged.cluster, probe);
            let endpoints = endpoints.map_or(0, |endpoints| endpoints.len());
            if endpoints > 1 {
                let has_affinity = service.affinity_seconds.is_some();
                visit(&probe.name, endpoints, probe.connections, has_affinity);
            }
        }
    }
}

fn draws_for(endpoints: usize) -> u32 {
    let endpoints = u32::try_from(endpoints).unwrap_or(u32::MAX);
    let missed = 1.0 - 1.0 / f64::from(endpoints);
    let mut enough = 1..MAX_DRAWS;
    let is_enough = |draws: &u32| missed.powf(f64::from(*draws)) <= MAX_CHANCE;
    enough.find(is_enough).unwrap_or(MAX_DRAWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_grow_with_endpoints_and_are_bounded() {
        assert_eq!([2, 3, 50].map(draws_for), [10, 18, 20]);
    }
}
