//! Expected number of a flow's connections with a verdict: a count, or all of them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::expectation::count::Count;

/// Keyword for all connections.
const ALL: &str = "all";

/// Number of a flow's connections with a verdict: `all`, or a count as for probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowCount {
    /// All connections of the case.
    All,
    /// Number or range, independent of the number of connections.
    Count(Count),
}

impl FlowCount {
    /// Returns the expected count for this number of connections.
    #[must_use]
    pub const fn resolve(self, connections: u32) -> Count {
        match self {
            Self::All => Count::exactly(connections),
            Self::Count(count) => count,
        }
    }
}

impl<'de> Deserialize<'de> for FlowCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FlowCountVisitor;

        impl Visitor<'_> for FlowCountVisitor {
            type Value = FlowCount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`all` or a count: `4`, \"2..6\" or \">=1\"")
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<FlowCount, E> {
                Count::deserialize(de::value::U64Deserializer::new(n)).map(FlowCount::Count)
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<FlowCount, E> {
                Count::deserialize(de::value::I64Deserializer::new(n)).map(FlowCount::Count)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<FlowCount, E> {
                if text == ALL {
                    return Ok(FlowCount::All);
                }
                text.parse().map(FlowCount::Count).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(FlowCountVisitor)
    }
}

impl JsonSchema for FlowCount {
    fn schema_name() -> Cow<'static, str> {
        "FlowCount".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let count = generator.subschema_for::<Count>();
        json_schema!({
            "description": "Number of connections of the flow: `all` or a count.",
            "anyOf": [{"const": ALL}, count],
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flow_count_all_resolves_to_connections() {
        let read = |json| serde_json::from_value::<FlowCount>(json).map(|count| count.resolve(7));
        assert_eq!(read(json!("all")).ok(), Some(Count::exactly(7)));
        assert_eq!(read(json!(4)).ok(), Some(Count::exactly(4)));
        assert_eq!(read(json!("2..6")).ok(), Count::between(2, 6).ok());
        let error = read(json!("every")).expect_err("not a count");
        insta::assert_snapshot!(error, @r#"`every` is not a count; write `4`, "2..6" (both included) or ">=1""#);
    }
}
