//! What this machine can run, found out by trying: each trial is a tiny lab in
//! one agent. Nothing is tried that would have to load a module.

use std::path::Path;

use futures_util::future::join_all;
use nix::unistd::geteuid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent::Agent;
use super::error::KernelError;
use super::host::Host;
use super::missing::modprobe;
use super::modules::{Modules, State};
use super::trials::{self, Trial};
use crate::evidence::Surroundings;

/// What this machine can run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// Whether it was asked by root, whose labs run as a user without
    /// privileges, or by such a user.
    pub root: bool,
    /// The kernel and the programs; absent when no agent came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surroundings: Option<Surroundings>,
    /// What was found, the plainest first.
    pub findings: Vec<Finding>,
}

/// One thing that a lab may need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it is.
    pub feature: String,
    /// Whether labs of this release may need it.
    pub needed: bool,
    /// Whether it is there.
    pub state: Health,
    /// Why it is not; empty when it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What would change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The modules that would have to be loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    /// It was tried and worked, or, for what is only looked at, it is there.
    Works,
    /// It was not tried because a module or a program is not there.
    Lacking,
    /// It was tried and did not work.
    Fails,
    /// It could not be tried because no agent came up or lived.
    Untried,
}

impl Diagnosis {
    /// Whether the labs of this release can run here.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.state == Health::Works || !finding.needed)
    }

    /// The exit code that says so: 0, or 3 for a machine that cannot.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.is_well() { 0 } else { 3 }
    }

    /// The one command that loads every module that was found lacking.
    #[must_use]
    pub fn modprobe(&self) -> Option<String> {
        let mut modules: Vec<&str> = Vec::new();
        for module in self.findings.iter().flat_map(|finding| &finding.modules) {
            if !modules.contains(&module.as_str()) {
                modules.push(module);
            }
        }
        modprobe(&modules)
    }
}

impl Finding {
    fn works(feature: &str, needed: bool) -> Self {
        Self {
            feature: feature.to_owned(),
            needed,
            state: Health::Works,
            reason: String::new(),
            remedy: None,
            modules: Vec::new(),
        }
    }

    fn but(feature: &str, state: Health, reason: String, remedy: Option<String>) -> Self {
        Self {
            state,
            reason,
            remedy,
            ..Self::works(feature, true)
        }
    }
}

/// Examines this host. All trials run at once, in one agent, which is gone
/// afterwards with all that it made.
pub async fn examine(host: &Host) -> Diagnosis {
    let trials = trials::all();
    let (surroundings, mut findings) = match host.start().await {
        Ok(agent) => {
            let findings = join_all(trials.iter().map(|trial| attempt(host, &agent, trial))).await;
            (Some(agent.surroundings().clone()), findings)
        }
        Err(error) => (None, unstarted(&trials, &error)),
    };
    findings.extend(later(host.modules(), Path::new("/proc/net/ip_vs").exists()));
    Diagnosis {
        root: geteuid().is_root(),
        surroundings,
        findings,
    }
}

async fn attempt(host: &Host, agent: &Agent, trial: &Trial) -> Finding {
    if let Err(missing) = host.missing(&trial.plan) {
        let modules = missing.modules.iter().map(|lack| lack.name.clone());
        return Finding {
            modules: modules.collect(),
            ..Finding::but(
                trial.name,
                Health::Lacking,
                missing.summary(),
                missing.remedy(),
            )
        };
    }
    let tried = async {
        let mut session = agent.build(trial.plan.clone()).await?;
        session.probe().await
    };
    match tried.await {
        Ok(evidence) => match trial.judge(&evidence) {
            Ok(()) => Finding::works(trial.name, true),
            Err(reason) => Finding::but(trial.name, Health::Fails, reason, None),
        },
        Err(error) => failed(trial, &error),
    }
}

fn failed(trial: &Trial, error: &KernelError) -> Finding {
    let (state, remedy) = match error {
        // The trials run on this host; what is said of guests is not of them.
        KernelError::Lost(_)
        | KernelError::Start { .. }
        | KernelError::Protocol { .. }
        | KernelError::Guest(_)
        | KernelError::GuestLacks { .. }
        | KernelError::Nowhere { .. } => (Health::Untried, None),
        KernelError::Unable(failure) | KernelError::Failed(failure) => {
            (Health::Fails, failure.remedy.clone())
        }
        KernelError::Missing(missing) => (Health::Lacking, missing.remedy()),
    };
    Finding::but(trial.name, state, error.to_string(), remedy)
}

/// The first finding says why there is no agent, the others that there is none.
fn unstarted(trials: &[Trial], error: &KernelError) -> Vec<Finding> {
    let mut findings: Vec<Finding> = trials
        .iter()
        .map(|trial| {
            let reason = "there is no agent to try it with".to_owned();
            Finding::but(trial.name, Health::Untried, reason, None)
        })
        .collect();
    if let (Some(first), Some(trial)) = (findings.first_mut(), trials.first()) {
        *first = Finding {
            state: Health::Fails,
            ..failed(trial, error)
        };
    }
    findings
}

/// What labs of later releases need, by looking only: it comes with guests.
fn later(modules: &Modules, lists_ipvs: bool) -> [Finding; 2] {
    [
        look(
            "IPVS",
            &["ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh"],
            modules,
            lists_ipvs,
        ),
        look("dummy interfaces", &["dummy"], modules, false),
    ]
}

fn look(feature: &str, names: &[&str], modules: &Modules, seen: bool) -> Finding {
    let finding = Finding {
        needed: false,
        ..Finding::works(feature, false)
    };
    let lacking = |state, reason: String, remedy| Finding {
        needed: false,
        ..Finding::but(feature, state, reason, remedy)
    };
    let first = names.first().copied().unwrap_or_default();
    if !modules.loads() {
        return if seen || modules.is_present(first) {
            finding
        } else {
            let reason = "this kernel was built without it".to_owned();
            lacking(Health::Lacking, reason, None)
        };
    }
    let mut loadable = Vec::new();
    for name in names {
        match modules.state(name) {
            State::Present => {}
            State::Loadable(more) => loadable.extend(more),
            State::Absent => {
                let reason = format!("this kernel was built without {name}");
                return lacking(Health::Lacking, reason, None);
            }
        }
    }
    if loadable.is_empty() {
        return finding;
    }
    let remedy = modprobe(&loadable).map(|command| format!("run `{command}` as root"));
    Finding {
        modules: loadable,
        ..lacking(Health::Lacking, "it is not loaded".to_owned(), remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Lists;

    fn modules(loaded: Option<&str>, in_sysfs: &[&str]) -> Modules {
        Modules::new(&Lists {
            loaded: loaded.map(str::to_owned),
            in_sysfs: in_sysfs.iter().map(|&name| name.to_owned()).collect(),
            ..Lists::default()
        })
    }

    #[test]
    fn what_comes_later_is_only_looked_at() {
        let [ipvs, dummy] = later(&modules(None, &[]), false);
        assert_eq!(ipvs.reason, "this kernel was built without it");
        assert_eq!(
            (ipvs.state, dummy.state),
            (Health::Lacking, Health::Lacking)
        );
        let [ipvs, dummy] = later(&modules(None, &["dummy"]), true);
        assert_eq!((ipvs.state, dummy.state), (Health::Works, Health::Works));
        let [ipvs, _] = later(&modules(Some("ip_vs 1 0 - Live 0x0\n"), &[]), true);
        assert_eq!(
            ipvs.remedy.as_deref(),
            Some("run `modprobe -a ip_vs_rr ip_vs_wrr ip_vs_sh` as root")
        );
        assert!(!ipvs.needed);
    }

    #[test]
    fn only_what_this_release_needs_decides() {
        let mut diagnosis = Diagnosis {
            root: false,
            surroundings: None,
            findings: later(&modules(Some(""), &[]), false).into(),
        };
        assert_eq!(diagnosis.exit_code(), 0);
        assert_eq!(
            diagnosis.modprobe().as_deref(),
            Some("modprobe -a ip_vs ip_vs_rr ip_vs_wrr ip_vs_sh dummy")
        );
        diagnosis.findings[0].needed = true;
        assert_eq!(diagnosis.exit_code(), 3);
    }

    #[test]
    fn without_an_agent_the_first_finding_says_why() {
        let error = KernelError::Start {
            program: "svclab".to_owned(),
            source: std::sync::Arc::new(std::io::ErrorKind::NotFound.into()),
        };
        let findings = unstarted(&trials::all(), &error);
        assert_eq!(findings[0].state, Health::Fails);
        assert!(findings[0].reason.contains("cannot start the agent"));
        assert!(
            findings[1..]
                .iter()
                .all(|finding| finding.state == Health::Untried)
        );
    }
}
