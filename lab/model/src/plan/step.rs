//! A change of a lab that stands, and what is tried after it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::real_proxy::Heard;
use super::{Delta, Forget, Probe};

/// What is done, in this order: connections are opened, the lab changes, all
/// kube-proxies take note of it, exchanges are tried, and the connections that are open
/// speak again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Step {
    /// Its name in the lab.
    pub name: String,
    /// What is open across it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Probe>,
    /// What changes in namespaces, and who serves from then on. It says nothing of
    /// probes, nor of what is looked at.
    #[serde(default, skip_serializing_if = "Delta::is_empty")]
    pub delta: Delta,
    /// What kube-proxies whose rules are generated have conntrack forget then, by
    /// namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forget: BTreeMap<String, BTreeSet<Forget>>,
    /// What real kube-proxies are told of from then on, if they are told of anything
    /// else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
    /// What is tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
}

/// Returns the probes of which the evidence of each stage has results: of the stage before
/// the steps, and of the one after each step. Connections that stay open across a step have
/// results on both sides of it.
pub fn probes_by_stage<'p>(
    probes: &'p [Probe],
    steps: &'p [Step],
) -> impl Iterator<Item = impl Iterator<Item = &'p Probe>> {
    (0..=steps.len()).map(move |stage| {
        let (tried, held) = match stage.checked_sub(1) {
            None => (probes, &[][..]),
            Some(made) => (&*steps[made].probes, &*steps[made].open),
        };
        let opened = steps.get(stage).map_or(&[][..], |next| &next.open);
        tried.iter().chain(held).chain(opened)
    })
}

/// What real kube-proxies are told of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Told {
    /// All objects there are.
    pub objects: Vec<serde_json::Value>,
    /// By the namespace of each kube-proxy, of how many changes it hears at least.
    pub hears: BTreeMap<String, Heard>,
    /// The namespace of one that calls `conntrack` to forget flows, if any does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_conntrack: Option<String>,
}
