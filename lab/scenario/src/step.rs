//! What changes while a case stands, and what is tried after it.

use indexmap::IndexMap;
use schemars::JsonSchema;

use super::patch::Patch;
use super::probe::Probe;

/// A change of a lab that stands.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// How it is called: by probes that stay open across it, and by `expect`.
    pub name: String,
    /// What changes, all at once: patches as those of an axis. A pod that is deleted is
    /// gone at once: its interface goes before its servers could say a word. A node
    /// neither comes nor goes.
    pub change: Vec<Patch>,
    /// The exchanges to attempt once everybody has taken note of the change.
    #[serde(default)]
    pub probes: IndexMap<String, Probe>,
}
