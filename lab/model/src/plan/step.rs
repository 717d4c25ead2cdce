//! Defines the steps of a plan: changes to a running lab and the probes after each change.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::real_proxy::SyncTarget;
use super::{ConntrackFilter, Delta, Probe};

/// Step of a plan. The agent opens connections, changes the lab and waits for all kube-proxies.
/// Then it runs the probes and sends data on the open connections again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Step name from the lab.
    pub name: String,
    /// Probes whose connections stay open across the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Probe>,
    /// Changes of namespaces and servers. This delta contains no probes and no evidence request.
    #[serde(default, skip_serializing_if = "Delta::is_empty")]
    pub delta: Delta,
    /// Conntrack entries to delete, by namespace, for kube-proxies with generated rules.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conntrack_deletions: BTreeMap<String, BTreeSet<ConntrackFilter>>,
    /// New API objects for real kube-proxies. `None` if the objects stay the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_update: Option<ApiUpdate>,
    /// Probes to run after the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
}

/// Returns the probes that have results in the evidence of each stage: the stage before the steps,
/// then one stage after each step. Connections that stay open across a step have results on both
/// sides of the step.
pub fn probes_by_stage<'p>(
    probes: &'p [Probe],
    steps: &'p [Step],
) -> impl Iterator<Item = impl Iterator<Item = &'p Probe>> {
    (0..=steps.len()).map(move |stage| {
        let (started, still_open) = match stage.checked_sub(1) {
            None => (probes, &[][..]),
            Some(previous) => (&*steps[previous].probes, &*steps[previous].open),
        };
        let opened = steps.get(stage).map_or(&[][..], |next| &next.open);
        started.iter().chain(still_open).chain(opened)
    })
}

/// Update of the API objects for real kube-proxies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiUpdate {
    /// Complete list of objects after the step.
    pub objects: Vec<serde_json::Value>,
    /// Minimum number of changes that each kube-proxy receives, by its namespace.
    pub sync_targets: BTreeMap<String, SyncTarget>,
    /// Namespace of a kube-proxy that calls `conntrack` to delete entries. `None` if no kube-proxy
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_conntrack: Option<String>,
}
