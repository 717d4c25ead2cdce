//! Errors of a bisection and the help for each.

use thiserror::Error;

use super::pair::PairError;
use super::symptom::Indistinguishable;
use super::unexamined::Unexamined;
use svclab_model::protocol::Failure;
use svclab_runner::kernel::KernelError;

/// Reason why a bisection has no result.
#[derive(Debug, Error)]
pub enum BisectError {
    /// The plans cannot be merged.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The plans have no differences.
    #[error(
        "{good} and {bad} have no differences{}{unexamined}",
        if unexamined.not_tried.is_empty() { "" } else { " that can be tried" }
    )]
    NoDifferences {
        /// Name of the good side.
        good: String,
        /// Name of the bad side.
        bad: String,
        /// Differences and state that no trial includes.
        unexamined: Box<Unexamined>,
    },
    /// The results of both sides cannot be separated.
    #[error(
        "{reason}: {good} and {bad} have {differences}; outcomes in good: {outcomes}{unexamined}"
    )]
    Indistinguishable {
        /// Whether they are equal or differ too little.
        reason: Indistinguishable,
        /// Name of the good side.
        good: String,
        /// Name of the bad side.
        bad: String,
        /// Number of differences: `3 differences`.
        differences: String,
        /// Outcomes of the probes in good.
        outcomes: String,
        /// Differences and state that no trial includes.
        unexamined: Box<Unexamined>,
    },
    /// The sides have no common probe, or not the requested one.
    #[error("{good} and {bad} have no common probe{}", requested_hint(requested.as_ref(), common))]
    NoProbe {
        /// Name of the good side.
        good: String,
        /// Name of the bad side.
        bad: String,
        /// Name of the requested probe.
        requested: Option<String>,
        /// Names of the common probes.
        common: Vec<String>,
    },
    /// The good or the bad side cannot be built.
    #[error("cannot build {name}: {why}")]
    BuildFailed {
        /// Name of the side.
        name: String,
        /// Error message of the kernel.
        why: String,
    },
    /// The probes cannot run on the good or the bad side.
    #[error("cannot run the probes of {name}: {failure}")]
    NotProbed {
        /// Name of the side.
        name: String,
        /// Failure of the probes.
        failure: Failure,
    },
    /// The verification failed repeatedly.
    #[error(
        "no stable result: the outcomes of {probe} differ between trials more than chance \
         explains, as on a busy machine"
    )]
    Unstable {
        /// Probe name.
        probe: String,
    },
    /// A trial produced no evidence.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

fn requested_hint(wanted: Option<&String>, there: &[String]) -> String {
    match wanted {
        Some(wanted) if !there.is_empty() => {
            format!(" named `{wanted}`; available: {}", there.join(", "))
        }
        Some(wanted) => format!("; requested: `{wanted}`"),
        None => String::new(),
    }
}

impl BisectError {
    /// Returns the help for this error.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Indistinguishable { unexamined, .. } | Self::NoDifferences { unexamined, .. }
                if !unexamined.not_tried.is_empty() =>
            {
                Some("examine the differences that were not tried".to_owned())
            }
            Self::Indistinguishable { .. } => Some(
                "add a probe to the lab that shows the failure, or check that `--good` passes and \
                 `--bad` fails"
                    .to_owned(),
            ),
            Self::NoDifferences { .. } => Some(
                "compare other cases or files; `svclab diff` prints the differences of two \
                 dumps"
                    .to_owned(),
            ),
            Self::NoProbe { .. } => Some(
                "select cases with the same probes, or a common probe with `--probe`; probes of \
                 steps are ignored"
                    .to_owned(),
            ),
            Self::Unstable { .. } => Some("repeat the bisection on an idle machine".to_owned()),
            Self::BuildFailed { .. } => Some(
                "run this side alone to find the error; bisect requires that good and bad can be \
                 built"
                    .to_owned(),
            ),
            Self::NotProbed { failure, .. } => failure.remedy.clone(),
            Self::Pair(_) | Self::Kernel(_) => None,
        }
    }
}

pub(super) fn describe_count(differences: usize) -> String {
    match differences {
        1 => "1 difference".to_owned(),
        _ => format!("{differences} differences"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bisect::symptom::MAX_CONNECTIONS;
    use svclab_model::protocol::FailureKind;

    #[test]
    fn bisect_error_each_variant_has_message_and_help() {
        let (good, bad) = ("lab/good".to_owned(), "lab/bad".to_owned());
        let alike = |alike| BisectError::Indistinguishable {
            reason: alike,
            good: good.clone(),
            bad: bad.clone(),
            differences: describe_count(3),
            outcomes: "call connected to pod/default/web".to_owned(),
            unexamined: Box::default(),
        };
        let untried = Unexamined {
            not_tried: vec!["only in bad: `qdisc netem` of eth0".to_owned()],
            not_collected: vec!["tracked connections".to_owned(), "BPF programs".to_owned()],
        };
        let no_probe = |wanted: Option<&str>, common: &[&str]| BisectError::NoProbe {
            good: good.clone(),
            bad: bad.clone(),
            requested: wanted.map(str::to_owned),
            common: common.iter().map(|name| (*name).to_owned()).collect(),
        };
        let errors = [
            alike(Indistinguishable::Same),
            alike(Indistinguishable::TooSimilar(MAX_CONNECTIONS)),
            BisectError::NoDifferences {
                good: good.clone(),
                bad: bad.clone(),
                unexamined: Box::default(),
            },
            BisectError::NoDifferences {
                good: good.clone(),
                bad: bad.clone(),
                unexamined: Box::new(untried),
            },
            no_probe(None, &[]),
            no_probe(Some("call"), &[]),
            no_probe(Some("call"), &["other", "third"]),
            BisectError::BuildFailed {
                name: bad.clone(),
                why: "iptables-restore: line 3 failed".to_owned(),
            },
            BisectError::NotProbed {
                name: bad.clone(),
                failure: Failure {
                    kind: FailureKind::Input,
                    message: "cannot start probe call from node-1: Address already in use"
                        .to_owned(),
                    remedy: Some("use fewer connections".to_owned()),
                    rejected: None,
                },
            },
            BisectError::Unstable {
                probe: "call".to_owned(),
            },
        ];
        let texts = errors.iter().map(|error| {
            let remedy = error.help();
            let remedy = remedy.map(|remedy| format!("\n  help: {remedy}"));
            format!("{error}{}", remedy.unwrap_or_default())
        });
        insta::assert_snapshot!(texts.collect::<Vec<_>>().join("\n"));
    }
}
