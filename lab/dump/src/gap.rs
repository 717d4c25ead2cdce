//! Defines the parts of a bundle that are not read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// File or directory of a bundle that is not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// Name of the file, or of the directory with the number of its files.
    pub name: String,
    /// Reason.
    pub reason: String,
    /// Possible effect on results. Empty if no effect is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub affects: String,
    /// Whether a comparison without the content is not complete. Reports do not contain this.
    #[serde(skip)]
    pub is_uncompared: bool,
}

impl Gap {
    /// Whether packets may go another way because of what is not read.
    #[must_use]
    pub const fn may_affect_packets(&self) -> bool {
        !self.affects.is_empty()
    }

    /// Returns the name with the reason and the effect.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self {
            name,
            reason,
            affects,
            is_uncompared: _,
        } = self;
        if affects.is_empty() {
            format!("{name}: {reason}")
        } else {
            format!("{name}: {reason}; {affects}")
        }
    }
}
