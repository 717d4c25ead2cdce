//! What is known of a lab that stands.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name and version of the JSON format.
pub const SCHEMA: &str = "svclab/ps/v1";

/// The document that `svclab ps --format json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// `svclab/ps/v1`.
    pub schema: String,
    /// The labs that stand, by name.
    pub labs: Vec<About>,
}

/// One lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct About {
    /// `LAB/axis=value,axis=value`; the lab's name when it has no axes.
    pub case: String,
    /// The lab's name.
    pub lab: String,
    /// How the case was named on the command line, which may be by a file's path.
    pub named: String,
    /// Whether it stands.
    pub state: State,
    /// `uname -r` of the kernel that it stands on; none while it is built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Whether that is a guest's.
    pub guest: bool,
    /// When it was begun, in UTC: `2026-11-22T06:40:11Z`.
    pub since: String,
    /// Its namespaces, in the order in which they were made.
    pub namespaces: Vec<String>,
    /// The process that holds it.
    pub holder: u32,
    /// The svclab that holds it.
    pub svclab: String,
}

/// How far a lab has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being built.
    Building,
    /// It stands.
    Standing,
}

impl About {
    /// The kernel as people read it.
    #[must_use]
    pub fn kernel_words(&self) -> String {
        match &self.kernel {
            None => "being built".to_owned(),
            Some(kernel) if self.guest => format!("Linux {kernel}, a guest"),
            Some(kernel) => format!("Linux {kernel}"),
        }
    }
}

impl About {
    /// How the lab was named on the command line.
    #[must_use]
    pub fn named_lab(&self) -> &str {
        let case = self.case.strip_prefix(&self.lab).unwrap_or_default();
        self.named.strip_suffix(case).unwrap_or(&self.named)
    }
}

/// The document of these labs.
#[must_use]
pub fn document(labs: Vec<About>) -> Document {
    Document {
        schema: SCHEMA.to_owned(),
        labs,
    }
}
