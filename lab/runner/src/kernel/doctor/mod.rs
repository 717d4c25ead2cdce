//! Checks which features this machine supports, on this host and in a guest. Each check is a tiny
//! lab in one agent. A check that would have to load a module is skipped, and no kernel is
//! downloaded.

mod checks;

use futures_util::future::join_all;
use nix::unistd::geteuid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent::Agent;
use super::agent::drops;
use super::error::KernelError;
use super::error::guest::GuestError;
use super::guest::{self, Cache, DisallowedLayers, Guest, KernelRequest, Kvm};
use super::host::Host;
use super::requirements::{MissingRequirements, modprobe};
use checks::FeatureCheck;
use svclab_diagnostic::exit_code;
use svclab_model::evidence::Environment;
use svclab_planner::requirements::Requirements;

/// Features that this machine supports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// Whether root ran the checks. Labs of root run as a user without privileges, as those of
    /// other users do.
    pub root: bool,
    /// Kernel and programs of this host. Absent if no agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
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
    #[serde(default, skip_serializing_if = "DisallowedLayers::is_empty")]
    pub qemu_unsupported: DisallowedLayers,
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
    pub host: Availability,
    /// Availability in a guest.
    pub guest: Availability,
}

/// Availability of a feature on this host or in a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Availability {
    /// Result of the check.
    pub status: CheckStatus,
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
pub enum CheckStatus {
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
    pub fn can_run_all_labs(&self) -> bool {
        let mut needed = self.findings.iter().filter(|finding| finding.needed);
        needed.all(Finding::is_available)
    }

    /// Returns the exit code of the diagnosis: 0, or 3 if this machine cannot run every lab.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.can_run_all_labs() {
            exit_code::SUCCESS
        } else {
            exit_code::HOST_UNABLE
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
    pub fn is_available(&self) -> bool {
        [&self.host, &self.guest]
            .iter()
            .any(|way| way.status == CheckStatus::Works)
    }
}

impl Availability {
    fn available() -> Self {
        Self {
            status: CheckStatus::Works,
            reason: String::new(),
            remedy: None,
            modules: Vec::new(),
        }
    }

    fn unavailable(status: CheckStatus, reason: String, remedy: Option<String>) -> Self {
        Self {
            status,
            reason,
            remedy,
            ..Self::available()
        }
    }

    fn missing(missing: &MissingRequirements) -> Self {
        let modules = missing.modules.iter().map(|lack| lack.name.clone());
        Self {
            modules: modules.collect(),
            ..Self::unavailable(CheckStatus::Lacking, missing.summary(), missing.remedy())
        }
    }
}

/// Checks this machine: its own kernel, and a guest with the newest kernel in the cache. The checks
/// on this host run at the same time. All labs are removed afterwards.
pub async fn examine(host: &Host, cache: Result<Cache, GuestError>) -> Diagnosis {
    let trials = checks::all_checks();
    let ((surroundings, on_host), (guest, in_guest)) =
        tokio::join!(examine_host(host, &trials), examine_guest(cache, &trials));
    let findings = trials.iter().zip(on_host.into_iter().zip(in_guest));
    Diagnosis {
        root: geteuid().is_root(),
        environment: surroundings,
        guest,
        findings: findings
            .map(|(trial, (host, guest))| Finding {
                feature: trial.name.to_owned(),
                needed: trial.drop_reason.is_none(),
                host,
                guest,
            })
            .collect(),
    }
}

async fn examine_host(
    host: &Host,
    trials: &[FeatureCheck],
) -> (Option<Environment>, Vec<Availability>) {
    match host.start().await {
        Ok(agent) => {
            let checks = trials
                .iter()
                .map(|trial| check_on_host(host, &agent, trial));
            let results = join_all(checks).await;
            (Some(agent.environment().clone()), results)
        }
        Err(error) => (None, without_agent(trials, &error)),
    }
}

async fn check_on_host(host: &Host, agent: &Agent, trial: &FeatureCheck) -> Availability {
    if let Err(missing) = host.check_plan(&trial.plan) {
        return Availability::missing(&missing);
    }
    // Without the trace of drops, the result has the reason and the help.
    if trial.drop_reason.is_some()
        && let Err(error) = drops::check_traceable()
    {
        let remedy = Some(error.remedy().to_owned());
        return Availability::unavailable(CheckStatus::Lacking, error.to_string(), remedy);
    }
    if Requirements::from_plan(&trial.plan)
        .ipvs_requester()
        .is_none()
    {
        return run_check(agent, trial).await;
    }
    match host.with_ipvs_privileges().start().await {
        Ok(agent) => run_check(&agent, trial).await,
        Err(error) => availability_of_error(&error),
    }
}

async fn examine_guest(
    cache: Result<Cache, GuestError>,
    trials: &[FeatureCheck],
) -> (GuestDiagnosis, Vec<Availability>) {
    let mut diagnosis = GuestDiagnosis::default();
    let results = match check_in_guest(cache, trials, &mut diagnosis).await {
        Ok(ways) => ways,
        Err(error) => {
            diagnosis.reason = error.to_string();
            let remedy = match &error {
                KernelError::NoGuest(error) => error.remedy(),
                _ => None,
            };
            diagnosis.remedy = diagnosis.remedy.or(remedy);
            let untried = || {
                Availability::unavailable(
                    CheckStatus::Untried,
                    "no guest is available".to_owned(),
                    None,
                )
            };
            trials.iter().map(|_| untried()).collect()
        }
    };
    (diagnosis, results)
}

async fn check_in_guest(
    cache: Result<Cache, GuestError>,
    trials: &[FeatureCheck],
    diagnosis: &mut GuestDiagnosis,
) -> Result<Vec<Availability>, KernelError> {
    let (version, lacks) = guest::qemu_version().await?;
    diagnosis.qemu = Some(version);
    diagnosis.qemu_unsupported = lacks;
    let cache = cache?;
    if guest::cached_kernels(&cache).is_empty() {
        // Reports whether a kernel can be downloaded, or why not.
        let package = guest::find_package(&KernelRequest::Newest).await?;
        diagnosis.remedy = Some("run `svclab kernel fetch --boot`".to_owned());
        return Err(GuestError::NoKernel {
            wanted: package.release,
            reason: "not downloaded yet".to_owned(),
        }
        .into());
    }
    let guest = Guest::new(cache, &KernelRequest::Newest).await?;
    diagnosis.kernel = Some(guest.release().to_owned());
    let agent = guest.start().await?;
    diagnosis.kvm = Some(guest.kvm().await?);
    // In sequence, because a guest has 1 processor.
    let mut results = Vec::new();
    for trial in trials {
        results.push(match guest.check_plan(&trial.plan) {
            Ok(()) => run_check(&agent, trial).await,
            Err(missing) => Availability::missing(&missing),
        });
    }
    Ok(results)
}

async fn run_check(agent: &Agent, trial: &FeatureCheck) -> Availability {
    let run = async {
        let mut session = agent.build(trial.plan.clone()).await?;
        let mut evidence = session.probe().await?;
        Ok(evidence.stages.pop().unwrap_or_default())
    };
    match run.await {
        Ok(evidence) => match trial.judge(&evidence) {
            Ok(()) => Availability::available(),
            Err(reason) => Availability::unavailable(CheckStatus::Fails, reason, None),
        },
        Err(error) => availability_of_error(&error),
    }
}

fn availability_of_error(error: &KernelError) -> Availability {
    let (state, remedy) = match error {
        KernelError::Lost(_)
        | KernelError::AgentSpawn { .. }
        | KernelError::ProtocolVersion { .. }
        | KernelError::NotEnoughMemory(_)
        | KernelError::NoGuest(_)
        | KernelError::GuestMissing { .. }
        | KernelError::NoKernel { .. } => (CheckStatus::Untried, None),
        KernelError::AgentSetup(failure) | KernelError::RequestFailed(failure) => {
            (CheckStatus::Fails, failure.remedy.clone())
        }
        KernelError::Missing(missing) | KernelError::HostMissing(missing) => {
            (CheckStatus::Lacking, missing.remedy())
        }
    };
    Availability::unavailable(state, error.to_string(), remedy)
}

/// Returns the results if no agent started. The first result has the reason, the others only state
/// that there is no agent.
fn without_agent(trials: &[FeatureCheck], error: &KernelError) -> Vec<Availability> {
    let untried = || {
        let reason = "no agent started".to_owned();
        Availability::unavailable(CheckStatus::Untried, reason, None)
    };
    let mut results: Vec<Availability> = trials.iter().map(|_| untried()).collect();
    if let Some(first) = results.first_mut() {
        *first = Availability {
            status: CheckStatus::Fails,
            ..availability_of_error(error)
        };
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(host: Availability, guest: Availability) -> Finding {
        Finding {
            feature: "IPVS".to_owned(),
            needed: true,
            host,
            guest,
        }
    }

    fn missing_modules(modules: &[&str]) -> Availability {
        Availability {
            modules: modules.iter().map(|&name| name.to_owned()).collect(),
            ..Availability::unavailable(CheckStatus::Lacking, "not loaded".to_owned(), None)
        }
    }

    #[test]
    fn exit_code_host_or_guest_suffices() {
        let mut diagnosis = Diagnosis {
            root: false,
            environment: None,
            guest: GuestDiagnosis::default(),
            findings: vec![
                finding(Availability::available(), missing_modules(&[])),
                finding(
                    missing_modules(&["ip_vs", "dummy"]),
                    Availability::available(),
                ),
            ],
        };
        assert_eq!(diagnosis.exit_code(), 0);
        assert_eq!(
            diagnosis.modprobe().as_deref(),
            Some("modprobe -a ip_vs dummy")
        );
        diagnosis.findings.push(finding(
            missing_modules(&["dummy"]),
            missing_modules(&["vxlan"]),
        ));
        assert_eq!(diagnosis.exit_code(), 3);
        // Modules that a guest lacks are not loaded on this host.
        assert_eq!(
            diagnosis.modprobe().as_deref(),
            Some("modprobe -a ip_vs dummy")
        );
    }

    #[test]
    fn exit_code_unneeded_feature_is_ignored() {
        let diagnosis = Diagnosis {
            root: false,
            environment: None,
            guest: GuestDiagnosis::default(),
            findings: vec![Finding {
                needed: false,
                ..finding(missing_modules(&[]), missing_modules(&[]))
            }],
        };
        assert_eq!(diagnosis.exit_code(), 0);
    }

    #[test]
    fn without_agent_first_result_has_reason() {
        let error = KernelError::AgentSpawn {
            program: "svclab".to_owned(),
            source: std::sync::Arc::new(std::io::ErrorKind::NotFound.into()),
        };
        let results = without_agent(&checks::all_checks(), &error);
        assert_eq!(results[0].status, CheckStatus::Fails);
        assert!(results[0].reason.contains("cannot start the agent"));
        let rest = &results[1..];
        assert!(rest.iter().all(|way| way.status == CheckStatus::Untried));
    }
}
