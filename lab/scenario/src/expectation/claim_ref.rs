//! References from a row of `expect` to claims of the lab's source.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::expectation::Expected;

/// Reference to a claim: its identifier, alone or with the claim's own expectations for these
/// cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    /// Identifier of the claim, declared in `spec.claims`.
    pub id: String,
    /// Expectations of the claim for these cases, judged with the same evidence. If `None`, the
    /// claim is confirmed when the row's own expectations hold.
    pub says: Option<Expected>,
    /// Part of the claim that the row refers to, for a claim with several statements.
    pub part: Option<String>,
}

/// Reference to a claim with its own expectations.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Claimed")]
struct ClaimShape {
    /// Identifier of the claim, declared in `spec.claims`.
    id: String,
    /// Expectations of the claim for these cases, in the format of a row. They are confirmed or
    /// refuted independently of the row. When absent, the claim is confirmed if the row's own
    /// expectations hold.
    #[serde(default)]
    says: Option<Expected>,
    /// Part of the claim that the row refers to, for a claim with several statements.
    #[serde(default)]
    part: Option<String>,
}

impl<'de> Deserialize<'de> for ClaimRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ClaimVisitor;

        impl<'de> Visitor<'de> for ClaimVisitor {
            type Value = ClaimRef;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a claim's identifier or {id, says, part}")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> Result<ClaimRef, E> {
                Ok(ClaimRef {
                    id: id.to_owned(),
                    says: None,
                    part: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClaimRef, A::Error> {
                let shape = ClaimShape::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ClaimRef {
                    id: shape.id,
                    says: shape.says,
                    part: shape.part,
                })
            }
        }

        deserializer.deserialize_any(ClaimVisitor)
    }
}

impl JsonSchema for ClaimRef {
    fn schema_name() -> Cow<'static, str> {
        "ClaimRef".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let shape = generator.subschema_for::<ClaimShape>();
        json_schema!({
            "description": "Identifier of a claim, alone or with the claim's expectations for these cases.",
            "anyOf": [{"type": "string"}, shape],
        })
    }
}
