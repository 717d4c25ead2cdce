//! Defines the errors of an agent.

use serde::{Deserialize, Serialize};

/// Cause of a failure. It selects the advice that the user gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureKind {
    /// No kernel would accept the lab.
    Input,
    /// A real kube-proxy of the lab ended, or did not write its rules.
    KubeProxy,
    /// The host lacks a program, a kernel feature, a privilege, or memory.
    Machine,
    /// The host was too busy for a reliable verdict.
    TooBusy,
    /// Bug in svclab.
    Bug,
}

/// Error of an agent operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Cause of the failure.
    pub kind: FailureKind,
    /// Description of the attempted action and the error of the kernel or program.
    pub message: String,
    /// Advice for the user, with a command if possible. `None` if there is no advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Rejected line of rule text and its namespace. `None` if the failure concerns no rule text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Box<RejectedInput>>,
}

impl Failure {
    /// Creates the failure for a host that is too busy for a verdict on `subject`.
    #[must_use]
    pub fn too_busy(subject: &str, cause: impl std::fmt::Display) -> Self {
        Self {
            kind: FailureKind::TooBusy,
            message: format!("this machine is too busy for a verdict on {subject}: {cause}"),
            remedy: Some(
                "run fewer cases in parallel (`--jobs 1`), or end other programs that keep the \
                 processors busy"
                    .to_owned(),
            ),
            rejected: None,
        }
    }
}

/// Input that a program or the kernel refused to load.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedInput {
    /// Namespace for which the input was loaded.
    pub namespace: String,
    /// Program that rejected the line. If the agent configured the kernel itself, this is the
    /// equivalent command: `sysctl`, `ip route`, `ip rule`, `ip addr` or `ipvsadm`. For a counter
    /// that the kernel lacks, `nstat`.
    pub program: String,
    /// Rejected line. If the agent configured the kernel itself, these are the arguments of the
    /// equivalent command. Empty if the error names no line.
    pub line: String,
    /// Line number in the loaded text, from 1. 0 if the error names no line.
    #[serde(default)]
    pub line_number: usize,
    /// Other lines that the error covers, some of which may be valid. The kernel rejects all of a
    /// chain if one of its rules is invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_lines: Vec<String>,
    /// Error message of the program.
    pub message: String,
}

/// Value of [`RejectedInput::program`] for sysctls, which the agent writes itself.
pub const SYSCTL: &str = "sysctl";
/// Value of [`RejectedInput::program`] for kernel counters. The line is the name of a counter.
pub const NSTAT: &str = "nstat";
/// Value of [`RejectedInput::program`] for routes, which the agent adds itself.
pub const IP_ROUTE: &str = "ip route";
/// Value of [`RejectedInput::program`] for routing rules, which the agent adds itself.
pub const IP_RULE: &str = "ip rule";
/// Value of [`RejectedInput::program`] for addresses, which the agent adds itself.
pub const IP_ADDR: &str = "ip addr";
/// Value of [`RejectedInput::program`] for virtual servers, which the agent adds itself.
pub const IPVSADM: &str = "ipvsadm";
