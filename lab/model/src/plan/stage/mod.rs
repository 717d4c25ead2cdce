//! Defines the stages of a plan: the step that leads to each stage, and the probes in it.

pub mod delta;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::real_proxy::SyncTarget;
use super::{ConntrackFilter, Lifetime, Probe};
pub use delta::Delta;

/// Stage of a plan: a state of the lab and the probes to run in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// Step from the previous stage to this one. `None` for the first stage, which is the lab as it
    /// was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// Probes with attempts in this stage. A probe whose connections stay open across a step is in
    /// the stages before and after the step.
    pub probes: Vec<Probe>,
}

impl Stage {
    /// Creates a first stage.
    #[must_use]
    pub const fn new(probes: Vec<Probe>) -> Self {
        Self { step: None, probes }
    }

    /// Returns the probes whose connections have a lifetime.
    pub fn probes_with(&self, lifetime: Lifetime) -> impl Iterator<Item = &Probe> + Clone {
        let probes = self.probes.iter();
        probes.filter(move |probe| probe.lifetime == lifetime)
    }
}

/// Change of a running lab. The agent applies it and waits for all kube-proxies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Step name from the lab.
    pub name: String,
    /// Changes of namespaces and servers. This delta contains no stages and no evidence request.
    #[serde(default, skip_serializing_if = "Delta::is_empty")]
    pub delta: Delta,
    /// Conntrack entries to delete, by namespace, for kube-proxies with generated rules.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conntrack_deletions: BTreeMap<String, BTreeSet<ConntrackFilter>>,
    /// New API objects for real kube-proxies. `None` if the objects stay the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_update: Option<ApiUpdate>,
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::plan::{Plan, ProbeProtocol, Target};

    /// Returns a plan with a probe in each stage, and a probe that is open across each step.
    fn plan() -> Plan {
        use Lifetime::{Opened, Reused, Stage as Once};
        let probe = |name: &str, lifetime| Probe {
            name: name.to_owned(),
            namespace: "client".to_owned(),
            target: Target {
                address: [10, 0, 0, 1].into(),
                port: 80,
            },
            protocol: ProbeProtocol::Tcp,
            connections: 1,
            concurrency: None,
            bind: None,
            source_port: None,
            bytes: None,
            datagrams: NonZeroU32::MIN,
            max_wait: Duration::from_secs(1),
            settle: false,
            after: None,
            lifetime,
        };
        let stage = |probes: &[(&str, Lifetime)]| {
            let probes = probes.iter();
            Stage::new(
                probes
                    .map(|(name, lifetime)| probe(name, *lifetime))
                    .collect(),
            )
        };
        Plan {
            stages: vec![
                stage(&[("a", Once), ("ab", Opened)]),
                stage(&[("b", Once), ("ab", Reused), ("bc", Opened)]),
                stage(&[("c", Once), ("bc", Reused)]),
            ],
            ..Plan::default()
        }
    }

    fn names<'p>(probes: impl Iterator<Item = &'p Probe>) -> Vec<&'p str> {
        probes.map(|probe| probe.name.as_str()).collect()
    }

    #[test]
    fn plan_stage_of_open_probe_is_stage_after_step() {
        let stages = ["a", "ab", "b", "bc", "c", "d"].map(|name| plan().stage_of(name));
        assert_eq!(stages, [Some(0), Some(1), Some(1), Some(2), Some(2), None]);
        assert_eq!(names(plan().initial_probes()), ["a"]);
    }

    #[test]
    fn truncate_stages_removes_probes_open_across_removed_step() {
        let mut plan = plan();
        plan.truncate_stages(2);
        assert_eq!(names(plan.probes()), ["a", "ab", "b", "ab"]);
        plan.truncate_stages(1);
        assert_eq!(names(plan.probes()), ["a"]);
    }
}
