//! Checks which features this machine supports, on this host and in a guest. Each check is a tiny
//! lab in one agent. A check that would have to load a module is skipped, and no kernel is
//! downloaded.

use futures_util::future::join_all;
use nix::unistd::geteuid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent::Agent;
use super::drops;
use super::error::KernelError;
use super::guest::{self, Cache, Guest, GuestError, Kvm, Lacks, Wanted};
use super::host::Host;
use super::missing::{Missing, modprobe};
use super::trials::{self, Trial};
use svclab_diagnostic::exit_code;
use svclab_model::evidence::Surroundings;
use svclab_planner::needs::Needs;

/// Features that this machine supports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// Whether root ran the checks. Labs of root run as a user without privileges, as those of
    /// other users do.
    pub root: bool,
    /// Kernel and programs of this host. Absent if no agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surroundings: Option<Surroundings>,
    /// Availability of guests.
    pub guest: GuestDiagnosis,
    /// Results of the checks, the simplest first.
    pub findings: Vec<Finding>,
}

/// Availability of guests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestDiagnosis {
    /// Version of QEMU. Absent if QEMU did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<String>,
    /// Parts of QEMU's confinement that this machine does not support.
    #[serde(default, skip_serializing_if = "Lacks::is_empty")]
    pub qemu_lacks: Lacks,
    /// State of KVM. Absent if no guest was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm: Option<Kvm>,
    /// Release of the kernel of the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Reason why no guest is available. Empty if a guest is available.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Change that would make a guest available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Feature that a lab may need, or that adds details to explanations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Name of the feature.
    pub feature: String,
    /// Whether a lab may need the feature to run. Other features add details about labs that run.
    pub needed: bool,
    /// Availability on this host.
    pub host: Way,
    /// Availability in a guest.
    pub guest: Way,
}

/// Availability of a feature on this host or in a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Way {
    /// Result of the check.
    pub state: Health,
    /// Reason why the feature is not available. Empty if it is available.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Change that would make the feature available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Modules that would have to be loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
}

/// Result of the check of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    /// The check ran and succeeded.
    Works,
    /// The check was skipped because a module, a program or a privilege is missing.
    Lacking,
    /// The check ran and failed.
    Fails,
    /// The check did not run because no agent started or the agent was lost.
    Untried,
}

impl Diagnosis {
    /// Whether this machine can run every lab, on this host or in a guest.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let mut needed = self.findings.iter().filter(|finding| finding.needed);
        needed.all(Finding::is_there)
    }

    /// Returns the exit code of the diagnosis: 0, or 3 if this machine cannot run every lab.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.is_well() {
            exit_code::SUCCESS
        } else {
            exit_code::MACHINE
        }
    }

    /// Returns the one command that loads all modules that this host lacks. `None` if it lacks
    /// none.
    #[must_use]
    pub fn modprobe(&self) -> Option<String> {
        let mut modules: Vec<&str> = Vec::new();
        for module in self.findings.iter().flat_map(|found| &found.host.modules) {
            if !modules.contains(&module.as_str()) {
                modules.push(module);
            }
        }
        modprobe(&modules)
    }
}

impl Finding {
    /// Whether the feature is available on this host or in a guest.
    #[must_use]
    pub fn is_there(&self) -> bool {
        [&self.host, &self.guest]
            .iter()
            .any(|way| way.state == Health::Works)
    }
}

impl Way {
    fn works() -> Self {
        Self {
            state: Health::Works,
            reason: String::new(),
            remedy: None,
            modules: Vec::new(),
        }
    }

    fn but(state: Health, reason: String, remedy: Option<String>) -> Self {
        Self {
            state,
            reason,
            remedy,
            ..Self::works()
        }
    }

    fn lacks(missing: &Missing) -> Self {
        let modules = missing.modules.iter().map(|lack| lack.name.clone());
        Self {
            modules: modules.collect(),
            ..Self::but(Health::Lacking, missing.summary(), missing.remedy())
        }
    }
}

/// Checks this machine: its own kernel, and a guest with the newest kernel in the cache. The checks
/// on this host run at the same time. All labs are removed afterwards.
pub async fn examine(host: &Host, cache: Result<Cache, GuestError>) -> Diagnosis {
    let trials = trials::all();
    let ((surroundings, here), (guest, there)) =
        tokio::join!(examine_host(host, &trials), examine_guest(cache, &trials));
    let findings = trials.iter().zip(here.into_iter().zip(there));
    Diagnosis {
        root: geteuid().is_root(),
        surroundings,
        guest,
        findings: findings
            .map(|(trial, (host, guest))| Finding {
                feature: trial.name.to_owned(),
                needed: trial.dropped.is_none(),
                host,
                guest,
            })
            .collect(),
    }
}

async fn examine_host(host: &Host, trials: &[Trial]) -> (Option<Surroundings>, Vec<Way>) {
    match host.start().await {
        Ok(agent) => {
            let tried = trials.iter().map(|trial| on_host(host, &agent, trial));
            let ways = join_all(tried).await;
            (Some(agent.surroundings().clone()), ways)
        }
        Err(error) => (None, unstarted(trials, &error)),
    }
}

async fn on_host(host: &Host, agent: &Agent, trial: &Trial) -> Way {
    if let Err(missing) = host.missing(&trial.plan) {
        return Way::lacks(&missing);
    }
    // Without the trace of drops, the result has the reason and the help.
    if trial.dropped.is_some()
        && let Err(why) = drops::ask()
    {
        let remedy = Some(why.remedy().to_owned());
        return Way::but(Health::Lacking, why.to_string(), remedy);
    }
    if Needs::of(&trial.plan).ipvs_by().is_none() {
        return attempt(agent, trial).await;
    }
    match host.for_ipvs().start().await {
        Ok(agent) => attempt(&agent, trial).await,
        Err(error) => failed(&error),
    }
}

async fn examine_guest(
    cache: Result<Cache, GuestError>,
    trials: &[Trial],
) -> (GuestDiagnosis, Vec<Way>) {
    let mut about = GuestDiagnosis::default();
    let ways = match try_guest(cache, trials, &mut about).await {
        Ok(ways) => ways,
        Err(error) => {
            about.reason = error.to_string();
            let remedy = match &error {
                KernelError::Guest(error) => error.remedy(),
                _ => None,
            };
            about.remedy = about.remedy.or(remedy);
            let untried = || Way::but(Health::Untried, "there is no guest".to_owned(), None);
            trials.iter().map(|_| untried()).collect()
        }
    };
    (about, ways)
}

async fn try_guest(
    cache: Result<Cache, GuestError>,
    trials: &[Trial],
    about: &mut GuestDiagnosis,
) -> Result<Vec<Way>, KernelError> {
    let (version, lacks) = guest::qemu_version().await?;
    about.qemu = Some(version);
    about.qemu_lacks = lacks;
    let cache = cache?;
    if guest::kept(&cache).is_empty() {
        // Reports whether a kernel can be downloaded, or why not.
        let package = guest::find(&Wanted::Newest).await?;
        about.remedy = Some("run `svclab kernel fetch --boot`".to_owned());
        return Err(GuestError::NoKernel {
            wanted: package.release,
            why: "it has not been fetched yet".to_owned(),
        }
        .into());
    }
    let guest = Guest::new(cache, &Wanted::Newest).await?;
    about.kernel = Some(guest.release().to_owned());
    let agent = guest.start().await?;
    about.kvm = Some(guest.kvm().await?);
    // In sequence, because a guest has 1 processor.
    let mut ways = Vec::new();
    for trial in trials {
        ways.push(match guest.missing(&trial.plan) {
            Ok(()) => attempt(&agent, trial).await,
            Err(missing) => Way::lacks(&missing),
        });
    }
    Ok(ways)
}

async fn attempt(agent: &Agent, trial: &Trial) -> Way {
    let tried = async {
        let mut session = agent.build(trial.plan.clone()).await?;
        session.probe().await
    };
    match tried.await {
        Ok(evidence) => match trial.judge(&evidence) {
            Ok(()) => Way::works(),
            Err(reason) => Way::but(Health::Fails, reason, None),
        },
        Err(error) => failed(&error),
    }
}

fn failed(error: &KernelError) -> Way {
    let (state, remedy) = match error {
        KernelError::Lost(_)
        | KernelError::Start { .. }
        | KernelError::Protocol { .. }
        | KernelError::NoRoom(_)
        | KernelError::Guest(_)
        | KernelError::GuestLacks { .. }
        | KernelError::Nowhere { .. } => (Health::Untried, None),
        KernelError::Unable(failure) | KernelError::Failed(failure) => {
            (Health::Fails, failure.remedy.clone())
        }
        KernelError::Missing(missing) | KernelError::HostLacks(missing) => {
            (Health::Lacking, missing.remedy())
        }
    };
    Way::but(state, error.to_string(), remedy)
}

/// Returns the results if no agent started. The first result has the reason, the others only state
/// that there is no agent.
fn unstarted(trials: &[Trial], error: &KernelError) -> Vec<Way> {
    let untried = || {
        let reason = "there is no agent to try it with".to_owned();
        Way::but(Health::Untried, reason, None)
    };
    let mut ways: Vec<Way> = trials.iter().map(|_| untried()).collect();
    if let Some(first) = ways.first_mut() {
        *first = Way {
            state: Health::Fails,
            ..failed(error)
        };
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(host: Way, guest: Way) -> Finding {
        Finding {
            feature: "IPVS".to_owned(),
            needed: true,
            host,
            guest,
        }
    }

    fn lacking(modules: &[&str]) -> Way {
        Way {
            modules: modules.iter().map(|&name| name.to_owned()).collect(),
            ..Way::but(Health::Lacking, "not loaded".to_owned(), None)
        }
    }

    #[test]
    fn one_of_the_two_ways_is_enough() {
        let mut diagnosis = Diagnosis {
            root: false,
            surroundings: None,
            guest: GuestDiagnosis::default(),
            findings: vec![
                finding(Way::works(), lacking(&[])),
                finding(lacking(&["ip_vs", "dummy"]), Way::works()),
            ],
        };
        assert_eq!(diagnosis.exit_code(), 0);
        assert_eq!(
            diagnosis.modprobe().as_deref(),
            Some("modprobe -a ip_vs dummy")
        );
        diagnosis
            .findings
            .push(finding(lacking(&["dummy"]), lacking(&["vxlan"])));
        assert_eq!(diagnosis.exit_code(), 3);
        // Modules that a guest lacks are not loaded on this host.
        assert_eq!(
            diagnosis.modprobe().as_deref(),
            Some("modprobe -a ip_vs dummy")
        );
    }

    #[test]
    fn what_no_lab_needs_may_lack() {
        let diagnosis = Diagnosis {
            root: false,
            surroundings: None,
            guest: GuestDiagnosis::default(),
            findings: vec![Finding {
                needed: false,
                ..finding(lacking(&[]), lacking(&[]))
            }],
        };
        assert_eq!(diagnosis.exit_code(), 0);
    }

    #[test]
    fn without_an_agent_the_first_says_why() {
        let error = KernelError::Start {
            program: "svclab".to_owned(),
            source: std::sync::Arc::new(std::io::ErrorKind::NotFound.into()),
        };
        let ways = unstarted(&trials::all(), &error);
        assert_eq!(ways[0].state, Health::Fails);
        assert!(ways[0].reason.contains("cannot start the agent"));
        let others = &ways[1..];
        assert!(others.iter().all(|way| way.state == Health::Untried));
    }
}
