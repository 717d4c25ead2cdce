//! Collects the state of namespaces: what the plan requests, and what the agent read back after the
//! probes. Both have the same type, so that they can be compared.

mod planned;
pub(crate) mod route_lookup;

use std::collections::BTreeMap;

use svclab_journey::journey::{Hop, RuleMatch};
use svclab_model::evidence::{LinkState, NetworkState, StageEvidence};
use svclab_model::plan::{Plan, VirtualServer};
use svclab_ruleset::nft::{self, Ruleset};

/// Counter of the connections that conntrack could not add, as the agent names it.
const FAILED_INSERTS: &str = "conntrack.insert_failed";

/// State of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NamespaceState {
    pub(crate) links: Vec<LinkState>,
    pub(crate) network: NetworkState,
    /// Values of sysctls by name.
    pub(crate) sysctls: BTreeMap<String, String>,
    pub(crate) ipvs: Vec<VirtualServer>,
    /// Native tables of nftables that were read back.
    pub(crate) nft: Ruleset,
    /// Number of connections that conntrack could not add during the stage.
    pub(crate) failed_inserts: u64,
    /// Whether a real kube-proxy runs, which sets sysctls that are not planned.
    pub(crate) has_real_proxy: bool,
}

impl NamespaceState {
    pub(crate) fn link(&self, name: &str) -> Option<&LinkState> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Whether the chain of a match belongs to the hook after the routing decision.
    pub(crate) fn is_postrouting(&self, step: &RuleMatch) -> bool {
        let hook = || {
            let mut tables = self.nft.tables.iter();
            let table = tables.find(|table| table.full_name() == step.table)?;
            let chain = table.chains.iter().find(|own| own.name == step.chain)?;
            Some(chain.hook.as_ref()?.hook.as_str())
        };
        step.chain == "POSTROUTING" || hook() == Some("postrouting")
    }

    /// Returns the mark of a packet at the routing decision. Rules after it may clear the mark, as
    /// those of kube-proxy do.
    pub(crate) fn routing_mark(&self, hop: &Hop) -> u32 {
        let mut matches = hop.matches.iter();
        let after = matches.find(|step| self.is_postrouting(step));
        after.or(hop.matches.last()).map_or(0, |step| step.mark)
    }
}

/// State of all namespaces of a plan.
#[derive(Debug)]
pub(crate) struct LabState<'a> {
    pub(crate) plan: &'a Plan,
    planned: BTreeMap<&'a str, NamespaceState>,
    observed: BTreeMap<&'a str, NamespaceState>,
}

impl<'a> LabState<'a> {
    /// Collects the state of a stage. A namespace that was not read back has the planned state.
    pub(crate) fn new(plan: &'a Plan, evidence: Option<&'a StageEvidence>) -> Self {
        let namespaces = plan.namespaces.iter();
        let planned = namespaces.map(|namespace| {
            let state = NamespaceState {
                has_real_proxy: plan.real_proxy(&namespace.name).is_some(),
                ..planned::planned(namespace)
            };
            (&*namespace.name, state)
        });
        let planned: BTreeMap<&str, NamespaceState> = planned.collect();
        // A sysctl with its planned value is not read back.
        let sysctls = |name: &str, evidence: &StageEvidence| {
            let mut values = planned
                .get(name)
                .map(|planned| planned.sysctls.clone())
                .unwrap_or_default();
            values.extend(evidence.sysctls.get(name).cloned().unwrap_or_default());
            values
        };
        let evidence = evidence.into_iter();
        let observed = evidence.flat_map(|evidence| {
            let read = evidence.kernel_state.iter();
            read.filter_map(|(name, read)| {
                let state = NamespaceState {
                    links: read.links.clone(),
                    network: read.network.clone()?,
                    sysctls: sysctls(name, evidence),
                    ipvs: read.ipvs.clone(),
                    nft: evidence
                        .nft
                        .get(name)
                        .and_then(|text| nft::parse(text).ok())
                        .unwrap_or_default(),
                    failed_inserts: evidence
                        .counters
                        .get(name)
                        .and_then(|counters| counters.get(FAILED_INSERTS))
                        .and_then(|growth| u64::try_from(*growth).ok())
                        .unwrap_or(0),
                    has_real_proxy: plan.real_proxy(name).is_some(),
                };
                Some((&**name, state))
            })
        });
        let observed = observed.collect();
        Self {
            plan,
            planned,
            observed,
        }
    }

    /// Returns the state that the plan requests.
    pub(crate) fn planned(&self, namespace: &str) -> Option<&NamespaceState> {
        self.planned.get(namespace)
    }

    /// Returns the state that was read back; the planned state if none was.
    pub(crate) fn observed(&self, namespace: &str) -> Option<&NamespaceState> {
        let observed = self.observed.get(namespace);
        observed.or_else(|| self.planned(namespace))
    }
}
