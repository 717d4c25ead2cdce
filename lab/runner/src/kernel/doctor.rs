//! What this machine can run, on this host and in a guest, found out by trying:
//! each trial is a tiny lab in one agent. Nothing is tried that would have to
//! load a module, and no kernel is fetched.

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
    /// What there is of guests.
    pub guest: GuestDiagnosis,
    /// What was found, the plainest first.
    pub findings: Vec<Finding>,
}

/// What there is of guests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestDiagnosis {
    /// The version of QEMU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<String>,
    /// Parts of QEMU's confinement that this machine refuses.
    #[serde(default, skip_serializing_if = "Lacks::is_empty")]
    pub qemu_lacks: Lacks,
    /// What is known of KVM; absent when no guest was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm: Option<Kvm>,
    /// The kernel that was booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Why there is no guest; empty when there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What would change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// One thing that a lab may need, or be explained better with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it is.
    pub feature: String,
    /// Whether a lab may need it to run. What it does not, tells more of labs that run.
    pub needed: bool,
    /// Whether this host has it.
    pub host: Way,
    /// Whether a guest has it.
    pub guest: Way,
}

/// One of the two ways in which a lab may get what it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Way {
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
    /// It was tried and worked.
    Works,
    /// It was not tried because a module, a program or a right is not there.
    Lacking,
    /// It was tried and did not work.
    Fails,
    /// It could not be tried because no agent came up or lived.
    Untried,
}

impl Diagnosis {
    /// Whether every lab can run here, one way or the other.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let mut needed = self.findings.iter().filter(|finding| finding.needed);
        needed.all(Finding::is_there)
    }

    /// The exit code that says so: 0, or 3 for a machine that cannot.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.is_well() {
            exit_code::SUCCESS
        } else {
            exit_code::MACHINE
        }
    }

    /// The one command that loads every module that this host was found
    /// lacking.
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
    /// Whether one of the two ways has it.
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

/// Examines this machine: its own kernel, and a guest with the newest kernel
/// that is kept in that cache. All trials of a kernel run at once; everything is
/// gone afterwards.
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
    // Why it is not told is told with what would change that.
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
        // Whether there is one to fetch, or why there is not.
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
    // One after another: a guest has one processor.
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

/// The first says why there is no agent, the others that there is none.
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
        // What a guest lacks is loaded by nobody here.
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
