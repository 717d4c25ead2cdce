//! Defines the document that describes running labs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name and version of the JSON format.
pub const SCHEMA: &str = "svclab/ps/v1";

/// Output of `svclab ps --format json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PsDocument {
    /// Always `svclab/ps/v1`.
    pub schema: String,
    /// Running labs, sorted by name.
    pub labs: Vec<LabInfo>,
}

/// Running lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabInfo {
    /// Case name: `LAB/axis=value,axis=value`; `LAB` for a lab without axes.
    pub case: String,
    /// Lab name.
    pub lab: String,
    /// Case as given on the command line, possibly with a file path.
    pub named: String,
    /// State of the lab.
    pub state: State,
    /// Release of the kernel (`uname -r`); absent while the lab is built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Whether this is the kernel of a guest.
    pub guest: bool,
    /// Start time in UTC: `2026-11-22T06:40:11Z`.
    pub since: String,
    /// Names of the namespaces, in the order of their creation.
    pub namespaces: Vec<String>,
    /// Process ID of the daemon.
    pub daemon_pid: u32,
    /// svclab version of the daemon.
    pub svclab: String,
}

/// State of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The lab is being built.
    Building,
    /// The lab is running.
    Running,
}

impl LabInfo {
    /// Describes the kernel for people.
    #[must_use]
    pub fn describe_kernel(&self) -> String {
        match &self.kernel {
            None => "being built".to_owned(),
            Some(kernel) if self.guest => format!("Linux {kernel} (guest)"),
            Some(kernel) => format!("Linux {kernel}"),
        }
    }
}

impl LabInfo {
    /// Returns the lab as given on the command line.
    #[must_use]
    pub fn named_lab(&self) -> &str {
        let case = self.case.strip_prefix(&self.lab).unwrap_or_default();
        self.named.strip_suffix(case).unwrap_or(&self.named)
    }
}

/// Builds the JSON document.
#[must_use]
pub fn document(labs: Vec<LabInfo>) -> PsDocument {
    PsDocument {
        schema: SCHEMA.to_owned(),
        labs,
    }
}
