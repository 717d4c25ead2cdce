//! Expectations for a step.

use std::time::Duration;

use schemars::JsonSchema;

/// Expectation for a step, besides its probes.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepExpectation {
    /// Maximum time from the change until the traffic has moved, such as `2s`. Within this time,
    /// the first packet must use a new path. After this time, no packet may use an old path.
    #[serde(deserialize_with = "within")]
    #[schemars(with = "String")]
    pub within: Duration,
}

fn within<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    crate::decode::values::parsed::<D, crate::decode::duration::Bounded>(deserializer)
        .map(|within| within.0)
}
