//! Counts the runs of a case that it takes to draw each endpoint of the called services. kube-proxy
//! draws an endpoint at random for each connection, or once for each client of a service with
//! session affinity.

use std::collections::BTreeMap;

use crate::statistics::repetitions;
use svclab_judge::{called_service, possible_endpoints};
use svclab_model::plan::Probe;
use svclab_runner::run::prepare::Prepared;

/// Maximum number of draws.
const MAX_DRAWS: u32 = 20;

/// Probe of a service with several endpoints.
struct Drawing<'p> {
    probe: &'p Probe,
    /// Number of draws in which each endpoint is drawn almost certainly.
    draws: u32,
    has_affinity: bool,
}

/// Returns the number of runs of each probe of a service with several endpoints and session
/// affinity. All connections of such a probe go to one endpoint.
#[must_use]
pub fn affinity_runs(prepared: &Prepared) -> BTreeMap<String, u32> {
    let with_affinity = drawings(prepared).filter(|drawing| drawing.has_affinity);
    with_affinity
        .map(|drawing| (drawing.probe.name.clone(), drawing.draws))
        .collect()
}

/// Returns the number of runs in which every probe draws each endpoint of its service almost
/// certainly.
pub(crate) fn endpoint_runs(prepared: &Prepared) -> u32 {
    let runs = drawings(prepared).map(|drawing| {
        let draws_per_run = if drawing.has_affinity {
            1
        } else {
            drawing.probe.connections.max(1)
        };
        drawing.draws.div_ceil(draws_per_run)
    });
    runs.max().unwrap_or(1)
}

fn drawings(prepared: &Prepared) -> impl Iterator<Item = Drawing<'_>> {
    let stages = prepared.stages().zip(&prepared.plan.stages);
    stages.flat_map(|(judged, stage)| {
        stage.probes.iter().filter_map(move |probe| {
            let (service, _) = called_service(judged.cluster, probe)?;
            let endpoints = possible_endpoints(judged.cluster, probe)?.len();
            (endpoints > 1).then(|| Drawing {
                probe,
                draws: draws_for(endpoints),
                has_affinity: service.affinity_seconds.is_some(),
            })
        })
    })
}

fn draws_for(endpoints: usize) -> u32 {
    let endpoints = u32::try_from(endpoints).unwrap_or(u32::MAX);
    repetitions(1.0 - 1.0 / f64::from(endpoints), MAX_DRAWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_grow_with_endpoints_and_are_bounded() {
        assert_eq!([2, 3, 50].map(draws_for), [10, 18, 20]);
    }
}
