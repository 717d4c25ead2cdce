//! Determines the independent draws of each flow of a case, and which flows share their endpoints.

use std::collections::{BTreeSet, HashSet};

use super::clients::with_clients;
use super::pairs::CasePair;
use crate::comparison::{DrawUnit, Draws, ShareGroup};
use crate::kube_proxies;
use crate::trial::Tally;
use svclab_judge::{called_service, possible_endpoints};
use svclab_model::plan::{Lifetime, Namespace, Probe};
use svclab_planner::cluster::Cluster;
use svclab_rules::kube_proxy::{KubeProxy, Mode};

/// IPVS schedulers that take turns. All others choose by addresses or by the current state of the
/// servers, so that their choices are not independent.
const ROUND_ROBIN_SCHEDULERS: [&str; 2] = ["rr", "wrr"];

/// Dependence between the connections of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dependence {
    /// Connections are independent.
    None,
    /// A client stays with its endpoint.
    Affinity,
    /// All connections of a run are subject to the same change or the same choice.
    Run,
}

impl CasePair {
    /// Returns how the connections of a probe depend on each other.
    pub(super) fn dependence(&self, name: &str) -> Dependence {
        let Some((cluster, probe)) = self.probe(name) else {
            return Dependence::None;
        };
        let service = called_service(cluster, probe);
        if self.new.plan.stage_of(name) > Some(0) || (service.is_some() && self.chooses_by_client())
        {
            return Dependence::Run;
        }
        match service.and_then(|(service, _)| service.affinity_seconds) {
            None => Dependence::None,
            Some(_) => Dependence::Affinity,
        }
    }

    /// Creates the draws of a probe, without any run.
    pub(super) fn draws(&self, name: &str) -> Draws {
        let unit = match self.dependence(name) {
            Dependence::None => DrawUnit::Connection,
            Dependence::Affinity | Dependence::Run => DrawUnit::Run,
        };
        Draws::new(unit, self.has_choice(name))
    }

    /// Whether more than one endpoint may answer a probe.
    fn has_choice(&self, name: &str) -> bool {
        let probe = self.probe(name);
        let names = probe.and_then(|(cluster, probe)| possible_endpoints(cluster, probe));
        names.is_some_and(|names| names.len() > 1)
    }

    /// Returns the probes of the first stage for which an endpoint is chosen, for each connection or
    /// for each client.
    pub(super) fn choosing_probes(&self) -> BTreeSet<String> {
        let probes = self.new.plan.initial_probes();
        let names = probes.map(|probe| probe.name.clone());
        let choosing = names.filter(|name| match self.dependence(name) {
            Dependence::None => self.has_choice(name),
            Dependence::Affinity => true,
            Dependence::Run => false,
        });
        choosing.collect()
    }

    /// Returns the spread of a flow with these outcomes in the first stage. Returns `None` if at most
    /// one endpoint answered, or if neither connections nor clients are independent draws.
    pub(super) fn spread(&self, name: &str, tallies: &[Tally; 2]) -> Option<ShareGroup> {
        let (cluster, probe) = self.probe(name)?;
        let by_client = match self.dependence(name) {
            Dependence::None => false,
            Dependence::Affinity => true,
            Dependence::Run => return None,
        };
        if by_client && !self.can_draw_clients(name) {
            return None;
        }
        let (service, port) = called_service(cluster, probe)?;
        let endpoints: BTreeSet<String> = if by_client {
            // A single client shows a single endpoint.
            possible_endpoints(cluster, probe)?
        } else {
            let outcomes = tallies.iter().flat_map(Tally::iter);
            let endpoints = outcomes.filter_map(|(outcome, _)| outcome.endpoint.clone());
            endpoints.collect()
        };
        let modes = kube_proxies(&self.new.case.spec).map(|proxy| proxy.mode.to_string());
        let modes: Vec<String> = modes.collect::<BTreeSet<_>>().into_iter().collect();
        (endpoints.len() > 1).then(|| ShareGroup {
            service: format!("service/{}:{}", service.full_name(), port.port),
            modes: modes.join(", "),
            endpoints,
            by_client,
        })
    }

    /// Whether enough clients of a probe can be drawn for comparing shares. In ipvs mode endpoints
    /// take turns, and a guest needs a long time to build so many labs.
    fn can_draw_clients(&self, name: &str) -> bool {
        let mut proxies = kube_proxies(&self.new.case.spec);
        proxies.all(|proxy| proxy.mode != Mode::Ipvs)
            && with_clients(&self.new, name, 1, 1).is_some()
    }

    /// Number of flows: the probes of all stages. A probe whose connections stay open across a step
    /// is one flow.
    pub(super) fn flows(&self) -> usize {
        let probes = self.new.plan.probes();
        let ending = probes.filter(|probe| probe.lifetime != Lifetime::Opened);
        ending.count()
    }

    /// Returns a probe and the cluster at the time of the probe.
    fn probe(&self, name: &str) -> Option<(&Cluster, &Probe)> {
        let prepared = &self.new;
        let index = prepared.plan.stage_of(name)?;
        let mut probes = prepared.plan.stages[index].probes_with(Lifetime::Stage);
        let probe = probes.find(|probe| probe.name == name)?;
        Some((prepared.stages().nth(index)?.cluster, probe))
    }

    /// Whether IPVS, a device between clients and nodes, or rules of a dump choose by client.
    fn chooses_by_client(&self) -> bool {
        let schedules = |proxy: &KubeProxy| {
            let scheduler = proxy.ipvs_scheduler.as_str();
            proxy.mode == Mode::Ipvs
                && !scheduler.is_empty()
                && !ROUND_ROBIN_SCHEDULERS.contains(&scheduler)
        };
        if kube_proxies(&self.new.case.spec).any(schedules) {
            return true;
        }
        let is_dumped = !self.new.dumps.is_empty();
        let nodes = self.new.cluster.nodes.iter();
        let nodes: HashSet<&str> = nodes.map(|node| node.name.as_str()).collect();
        let plans = [&self.new.plan, &self.against.plan].into_iter();
        let namespaces = plans.flat_map(|plan| &plan.namespaces);
        let mut devices =
            namespaces.filter(|namespace| is_dumped || !nodes.contains(namespace.name.as_str()));
        devices.any(depends_on_client)
    }
}

/// Whether the handling of one connection in a namespace depends on others of the client.
fn depends_on_client(namespace: &Namespace) -> bool {
    let by_ipvs = namespace.ipvs.iter().any(|server| {
        server.persistence.is_some() || !ROUND_ROBIN_SCHEDULERS.contains(&server.scheduler.as_str())
    });
    let rules = namespace.iptables_rules();
    let by_rules = rules
        .flat_map(|rules| [&rules.v4, &rules.v6])
        .any(|rules| rules.text().contains("-m recent"));
    by_ipvs || by_rules || namespace.nft.text().contains("dynamic")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Side, prepare_pairs};
    use super::*;
    use svclab_runner::run::select_labs;

    /// Returns a case of the svclab topologies with the same rules on both sides.
    fn pair(case: &str) -> CasePair {
        let topologies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../topologies");
        let labs = select_labs(&[case.to_owned()], &topologies).unwrap();
        let rules = Side::Rules("v1.30".parse().unwrap());
        let mut found = prepare_pairs(&labs, &rules, &rules, &[], false).pairs;
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[test]
    fn choosing_flows_do_not_depend_on_connection_count() {
        let pair = pair("conformance/session-affinity/mode=iptables");
        let probes = pair.new.plan.initial_probes();
        assert!(probes.clone().all(|probe| probe.connections == 1));
        assert_eq!(
            pair.choosing_probes(),
            probes.map(|probe| probe.name.clone()).collect()
        );
    }

    #[test]
    fn flows_of_one_endpoint_are_not_choosing() {
        let pair = pair("service-changes/version=v1.30,mode=iptables");
        assert_eq!(
            pair.choosing_probes(),
            BTreeSet::from(["callDb".to_owned()])
        );
    }
}
