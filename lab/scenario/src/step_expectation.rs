//! What is expected of a step.

use std::time::Duration;

use schemars::JsonSchema;

/// What is expected of a step besides its probes.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepExpectation {
    /// How long after the change traffic has moved at the latest, such as `2s`: the
    /// first packet is on a way that there was not before, and none comes later on one
    /// that there is no more.
    #[serde(deserialize_with = "within")]
    #[schemars(with = "String")]
    pub within: Duration,
}

fn within<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    super::values::parsed::<D, super::duration::Bounded>(deserializer).map(|within| within.0)
}
