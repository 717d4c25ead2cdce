//! Steps: changes to a running case and the probes after them.

use indexmap::IndexMap;
use schemars::JsonSchema;

use crate::lab::patch::Patch;
use crate::lab::probe::Probe;

/// Change to a running case.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepSpec {
    /// Name of the step, for `across` of probes and for `expect`.
    pub name: String,
    /// Patches that are applied at once, in the format of an axis value. A deleted pod disappears
    /// immediately: its interface is removed before its servers can send anything. A step cannot
    /// add or delete a node.
    pub change: Vec<Patch>,
    /// Probes to run after all components have applied the change, by name.
    #[serde(default)]
    pub probes: IndexMap<String, Probe>,
}
