//! What a comparison came to, as `--format json` prints it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::met::OnlyMet;
use super::tally::Outcome;
use svclab_diagnostic::exit_code;
use svclab_dump::Difference;
use svclab_model::evidence::Refused;
use svclab_runner::results::RunError;

/// The name and version of this format.
pub const SCHEMA: &str = "svclab/verification/v1";

/// What a comparison came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// `svclab/verification/v1`.
    pub schema: String,
    /// What was compared against.
    pub against: Ran,
    /// What is compared.
    pub new: Ran,
    /// How many cases were compared.
    pub cases: usize,
    /// How many flows: probes of those cases, and of the steps of theirs that were compared.
    pub flows: usize,
    /// The flows that go elsewhere.
    pub changed: Vec<Changed>,
    /// Services of which an endpoint gets another share of the draws, over all flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<SharesDiffer>,
    /// Where rules differ, whether or not a flow does.
    pub rules: Vec<RulesDiffer>,
    /// When traffic moved after steps, of those flows of which it was seen on either side.
    /// It is told, and judged by nobody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
    /// Cases that came to no result.
    pub failed: Vec<Failed>,
    /// Cases, or steps of cases, that were not compared.
    pub not_compared: Vec<NotCompared>,
    /// Whether it was interrupted: cases that had not ended are not among these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// What ran on one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ran {
    /// The program by its path; none for generated rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Its version, as it says or as the rules were generated for.
    pub version: String,
    /// From its start to rules for everything, in each case and node; none for
    /// generated rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// From the change of a step to the first packet on the new way, of each flow that
    /// moved. Generated rules are changed by svclab, whose time it is then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
    /// What it asked the labs' API servers for and was refused, before steps and in them,
    /// by node, in all cases together; of each node and case the first 32 different
    /// requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
}

/// How long kube-proxies took, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sync {
    /// How many were timed.
    pub proxies: usize,
    /// The shortest time.
    pub least_ms: u64,
    /// The middle one.
    pub median_ms: u64,
    /// The longest.
    pub most_ms: u64,
}

impl Sync {
    /// Of all times, in milliseconds; none without any.
    #[must_use]
    pub fn of(mut times: Vec<u64>) -> Option<Self> {
        times.sort_unstable();
        Some(Self {
            proxies: times.len(),
            least_ms: *times.first()?,
            median_ms: *times.get(times.len() / 2)?,
            most_ms: *times.last()?,
        })
    }
}

/// How long traffic took to move, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Moving {
    /// Of how many flows.
    pub flows: usize,
    /// The shortest time.
    pub least_us: u64,
    /// The middle one.
    pub median_us: u64,
    /// The longest.
    pub most_us: u64,
}

impl Moving {
    /// Of all times, in microseconds; none without any.
    #[must_use]
    pub fn of(mut times: Vec<u64>) -> Option<Self> {
        times.sort_unstable();
        Some(Self {
            flows: times.len(),
            least_us: *times.first()?,
            median_us: *times.get(times.len() / 2)?,
            most_us: *times.last()?,
        })
    }
}

/// When the traffic of a flow moved after a step: from the change to the first packet on a
/// way that there was not before, from which on none took one that there is no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// The case.
    pub case: String,
    /// The step.
    pub step: String,
    /// The probe.
    pub probe: String,
    /// In microseconds, with what is compared against; none where it was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_us: Option<u64>,
    /// In microseconds, with what is compared; none where it was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_us: Option<u64>,
}

/// A flow that goes elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// Where.
    #[serde(flatten)]
    pub flow: Flow,
    /// What became of its connections before.
    pub against: Vec<Times>,
    /// What becomes of them now.
    pub new: Vec<Times>,
    /// The rules that only one side's packets met; empty where they could not be
    /// watched.
    pub met: OnlyMet,
    /// With which probability it would look so if nothing had changed, at most, in
    /// billionths: 0 where there is no doubt.
    pub chance_in_billion: u64,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// The case.
    pub case: String,
    /// The kernel that it ran in.
    pub kernel: String,
    /// The step after which it was tried, or across which it was open; none of what comes
    /// before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The probe.
    pub probe: String,
    /// Who called.
    pub from: String,
    /// Whom.
    pub to: String,
}

/// An outcome, and how often it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Times {
    /// What became of connections.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Of how many.
    pub connections: u64,
}

/// A service whose endpoints get other shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharesDiffer {
    /// The service and its port: `service/default/web:80`.
    pub service: String,
    /// Modes of the kube-proxies.
    pub modes: String,
    /// Cases whose flows were counted.
    pub cases: Vec<String>,
    /// Number of flows that were counted.
    pub flows: usize,
    /// Whether the shares are of clients, which stay with their endpoint, and not of
    /// connections.
    pub by_client: bool,
    /// Shares with what is compared against.
    pub against: Vec<Share>,
    /// Shares with what is compared.
    pub new: Vec<Share>,
    /// Probability that equal sides differ so much, at most, in billionths; 0 below one.
    pub chance_in_billion: u64,
}

/// What one endpoint got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// The endpoint; absent for draws that reached none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Number of connections or clients.
    pub draws: u64,
}

/// A node whose rules differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RulesDiffer {
    /// The case.
    pub case: String,
    /// The step after which they do, and did not before; none of what comes before the
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The node.
    pub node: String,
    /// In what.
    pub differences: Vec<Difference>,
}

/// Which side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SideOf {
    /// What is compared against.
    Against,
    /// What is compared.
    New,
}

/// A case that came to no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// The case.
    pub case: String,
    /// With which side.
    pub side: SideOf,
    /// Why.
    pub error: RunError,
}

/// Cases that were not compared, or not wholly, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotCompared {
    /// Which.
    pub cases: Vec<String>,
    /// The first step that was not compared: what comes before it was. None where nothing
    /// of a case was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    /// Why.
    pub because: String,
}

impl Verification {
    /// The exit code, in the order of [`exit_code`]: 130 if it was interrupted, else that of
    /// the worst trouble of a case that failed, else 1 if a flow goes elsewhere or a share
    /// differs, else 4 if nothing was compared, else 0.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.interrupted {
            return exit_code::INTERRUPTED;
        }
        let troubles = self.failed.iter().map(|failed| failed.error.trouble);
        match troubles.max() {
            Some(trouble) => trouble.exit_code(),
            None if !self.changed.is_empty() || !self.shares.is_empty() => exit_code::FAILED,
            None if self.cases == 0 => exit_code::NOTHING,
            None => exit_code::SUCCESS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_runner::results::Trouble;

    fn nothing() -> Verification {
        let ran = || Ran {
            program: None,
            version: "v1.30".to_owned(),
            sync: None,
            moving: None,
            refused: Vec::new(),
        };
        Verification {
            schema: SCHEMA.to_owned(),
            against: ran(),
            new: ran(),
            cases: 0,
            flows: 0,
            changed: Vec::new(),
            shares: Vec::new(),
            rules: Vec::new(),
            moved: Vec::new(),
            failed: Vec::new(),
            not_compared: Vec::new(),
            interrupted: false,
        }
    }

    #[test]
    fn exit_code_is_that_of_the_worst() {
        let mut verification = nothing();
        assert_eq!(verification.exit_code(), exit_code::NOTHING);
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
            chance_in_billion: 0,
        });
        assert_eq!(verification.exit_code(), exit_code::FAILED);
        // Whatever differs, and whichever failed first.
        for (trouble, code) in [
            (Trouble::Machine, exit_code::MACHINE),
            (Trouble::Input, exit_code::MACHINE),
            (Trouble::Lost, exit_code::LOST),
            (Trouble::Bug, exit_code::BUG),
            (Trouble::Machine, exit_code::BUG),
        ] {
            verification.failed.push(Failed {
                case: "lab".to_owned(),
                side: SideOf::Against,
                error: RunError {
                    trouble,
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
