//! Result of a verification, as `--format json` prints it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::matches::OneSidedMatches;
use crate::trial::OutcomeCount;
use svclab_diagnostic::exit_code;
use svclab_dump::Difference;
use svclab_model::evidence::RejectedRequest;
use svclab_runner::results::RunError;
use svclab_runner::results::flows::Reason;

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/verification/v1";

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Always `svclab/verification/v1`.
    pub schema: String,
    /// Reference side.
    pub against: SideInfo,
    /// New side, which is compared with the reference.
    pub new: SideInfo,
    /// Number of compared cases.
    pub cases: usize,
    /// Number of compared flows: probes of these cases and of their compared steps.
    pub flows: usize,
    /// Flows whose outcomes differ.
    pub changed: Vec<ChangedFlow>,
    /// Flows whose outcomes differ by chance or not, after the maximum number of draws.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<UndecidedFlow>,
    /// All compared flows, for tables. The document has only their number.
    #[serde(skip)]
    pub compared: Vec<ComparedFlow>,
    /// Services whose endpoints get different shares of the draws, over all flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<SharesDiffer>,
    /// Nodes whose rules differ, whether or not a flow differs.
    pub rules: Vec<RulesDiffer>,
    /// Time at which traffic shifted after steps, for flows where either side recorded a shift.
    /// Informative: does not affect the exit code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shifts: Vec<FlowShift>,
    /// Cases without a result.
    pub failed: Vec<FailedCase>,
    /// Cases, or steps of cases, that were not compared.
    pub not_compared: Vec<NotCompared>,
    /// Whether the run was interrupted. Unfinished cases are not included.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// Program or rules of one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SideInfo {
    /// Path of the program; absent for generated rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Version that the program prints, or for which the rules were generated.
    pub version: String,
    /// Time from the start of kube-proxy until its rules are complete, over all cases and nodes;
    /// absent for generated rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncTimes>,
    /// Time from the change of a step to the first packet on the new path, over all flows that
    /// shifted. For generated rules, this is the time that svclab needs to apply the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shift_times: Option<ShiftTimes>,
    /// Requests that the API servers of the labs refused, by node, before and in steps, over all
    /// cases. Limited to the first 32 different requests per node and case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RejectedRequest>,
}

/// Sync times of kube-proxies in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncTimes {
    /// Number of measured kube-proxies.
    pub proxies: usize,
    /// Minimum.
    pub min_ms: u64,
    /// Median.
    pub median_ms: u64,
    /// Maximum.
    pub max_ms: u64,
}

impl SyncTimes {
    /// Summarizes times in milliseconds. Returns `None` without any.
    #[must_use]
    pub fn from_times(times: Vec<u64>) -> Option<Self> {
        let proxies = times.len();
        let [min_ms, median_ms, max_ms] = min_median_max(times)?;
        Some(Self {
            proxies,
            min_ms,
            median_ms,
            max_ms,
        })
    }
}

/// Times in which traffic shifted, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShiftTimes {
    /// Number of measured flows.
    pub flows: usize,
    /// Minimum.
    pub min_us: u64,
    /// Median.
    pub median_us: u64,
    /// Maximum.
    pub max_us: u64,
}

impl ShiftTimes {
    /// Summarizes times in microseconds. Returns `None` without any.
    #[must_use]
    pub fn from_times(times: Vec<u64>) -> Option<Self> {
        let flows = times.len();
        let [min_us, median_us, max_us] = min_median_max(times)?;
        Some(Self {
            flows,
            min_us,
            median_us,
            max_us,
        })
    }
}

fn min_median_max(mut times: Vec<u64>) -> Option<[u64; 3]> {
    times.sort_unstable();
    Some([
        *times.first()?,
        *times.get(times.len() / 2)?,
        *times.last()?,
    ])
}

/// Time at which the traffic of a flow shifted after a step. It starts at the change. It ends at
/// the first packet on a new path after which no packet uses a removed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowShift {
    /// Case name: `LAB/CASE`.
    pub case: String,
    /// Step name.
    pub step: String,
    /// Probe name.
    pub probe: String,
    /// Microseconds on the reference side; absent if no shift was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_us: Option<u64>,
    /// Microseconds on the new side; absent if no shift was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_us: Option<u64>,
}

/// Flow whose outcomes differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFlow {
    /// Flow.
    #[serde(flatten)]
    pub flow: FlowId,
    /// Outcomes on the reference side.
    pub against: Vec<OutcomeCount>,
    /// Outcomes on the new side.
    pub new: Vec<OutcomeCount>,
    /// Rules that matched packets of only one side; empty if rule matches could not be recorded.
    pub matches: OneSidedMatches,
    /// Upper bound of the probability that equal sides differ this much, per billion; 0 below 1.
    pub error_per_billion: u64,
}

/// Flow for which the maximum number of draws did not decide whether the sides differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndecidedFlow {
    /// Flow.
    #[serde(flatten)]
    pub flow: FlowId,
    /// Outcomes on the reference side.
    pub against: Vec<OutcomeCount>,
    /// Outcomes on the new side.
    pub new: Vec<OutcomeCount>,
    /// Whether one side has a verdict that the other side never has, such as a timeout.
    pub has_other_verdict: bool,
}

/// Flow whose outcomes were compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedFlow {
    /// Flow.
    pub flow: FlowId,
    /// Outcomes on the reference side.
    pub against: Vec<OutcomeCount>,
    /// Outcomes on the new side.
    pub new: Vec<OutcomeCount>,
    /// Whether the outcomes differ more than by chance.
    pub is_changed: bool,
    /// Reason that the lab states for the result; `None` if the lab states none.
    pub reason: Option<Reason>,
}

/// Probe of a case, before its steps or in one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowId {
    /// Case name: `LAB/CASE`.
    pub case: String,
    /// Release of the kernel that ran the case.
    pub kernel: String,
    /// Step after which the probe ran, or across which its connections were open; absent for probes
    /// before the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Probe name.
    pub probe: String,
    /// Source of the connections.
    pub from: String,
    /// Target of the connections.
    pub to: String,
}

/// Service whose endpoints get different shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharesDiffer {
    /// Service and port: `service/default/web:80`.
    pub service: String,
    /// Modes of the kube-proxies, comma-separated.
    pub modes: String,
    /// Cases whose flows were counted.
    pub cases: Vec<String>,
    /// Number of flows that were counted.
    pub flows: usize,
    /// Whether clients were counted instead of connections, because each client stays with its
    /// endpoint.
    pub by_client: bool,
    /// Shares on the reference side.
    pub against: Vec<Share>,
    /// Shares on the new side.
    pub new: Vec<Share>,
    /// Upper bound of the probability that equal sides differ this much, per billion; 0 below 1.
    pub error_per_billion: u64,
}

/// Share of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Endpoint; absent for draws that reached none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Number of connections or clients.
    pub draws: u64,
}

/// Node whose rules differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RulesDiffer {
    /// Case name: `LAB/CASE`.
    pub case: String,
    /// Step after which the rules differ but did not before; absent for differences before the
    /// first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Node name.
    pub node: String,
    /// Differences of the rules.
    pub differences: Vec<Difference>,
}

/// Side of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SideName {
    /// Reference side.
    Against,
    /// New side.
    New,
}

/// Case without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedCase {
    /// Case name: `LAB/CASE`.
    pub case: String,
    /// Side that failed.
    pub side: SideName,
    /// Error of the run.
    pub error: RunError,
}

/// Cases that were not compared, or only in part, for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotCompared {
    /// Case names: `LAB/CASE`.
    pub cases: Vec<String>,
    /// First step that was not compared; absent if no part of the cases was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    /// Reason.
    pub reason: String,
}

impl Verification {
    /// Returns the exit code, in the order of [`exit_code`]: 130 if the run was interrupted. Else
    /// the code of the most severe error of a failed case. Else 1 if a flow or share differs, or an
    /// undecided flow has a verdict on one side only. Else 4 if nothing was compared, and 0
    /// otherwise.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.interrupted {
            return exit_code::INTERRUPTED;
        }
        let is_in_doubt = self.undecided.iter().any(|flow| flow.has_other_verdict);
        let is_changed = !self.changed.is_empty() || !self.shares.is_empty();
        let kinds = self.failed.iter().map(|failed| failed.error.kind);
        match kinds.max() {
            Some(trouble) => trouble.exit_code(),
            None if is_changed || is_in_doubt => exit_code::FAILED,
            None if self.cases == 0 => exit_code::NOTHING_SELECTED,
            None => exit_code::SUCCESS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_runner::results::ErrorKind;

    fn empty_verification() -> Verification {
        let ran = || SideInfo {
            program: None,
            version: "v1.30".to_owned(),
            sync: None,
            shift_times: None,
            refused: Vec::new(),
        };
        Verification {
            schema: SCHEMA.to_owned(),
            against: ran(),
            new: ran(),
            cases: 0,
            flows: 0,
            changed: Vec::new(),
            undecided: Vec::new(),
            compared: Vec::new(),
            shares: Vec::new(),
            rules: Vec::new(),
            shifts: Vec::new(),
            failed: Vec::new(),
            not_compared: Vec::new(),
            interrupted: false,
        }
    }

    #[test]
    fn exit_code_follows_most_severe_error() {
        let mut verification = empty_verification();
        assert_eq!(verification.exit_code(), exit_code::NOTHING_SELECTED);
        verification.cases = 3;
        assert_eq!(verification.exit_code(), exit_code::SUCCESS);
        verification.shares.push(SharesDiffer {
            service: "service/default/web:80".to_owned(),
            modes: "iptables".to_owned(),
            cases: Vec::new(),
            flows: 1,
            by_client: false,
            against: Vec::new(),
            new: Vec::new(),
            error_per_billion: 0,
        });
        assert_eq!(verification.exit_code(), exit_code::FAILED);
        // Errors have priority over differences. The order of the errors does not matter.
        for (trouble, code) in [
            (ErrorKind::Machine, exit_code::HOST_UNABLE),
            (ErrorKind::Input, exit_code::HOST_UNABLE),
            (ErrorKind::Lost, exit_code::AGENT_LOST),
            (ErrorKind::Bug, exit_code::BUG),
            (ErrorKind::Machine, exit_code::BUG),
        ] {
            verification.failed.push(FailedCase {
                case: "lab".to_owned(),
                side: SideName::Against,
                error: RunError {
                    kind: trouble,
                    message: String::new(),
                    remedy: None,
                },
            });
            assert_eq!(verification.exit_code(), code, "{trouble:?}");
        }
        verification.interrupted = true;
        assert_eq!(verification.exit_code(), exit_code::INTERRUPTED);
    }
}
