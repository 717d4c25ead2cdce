//! What a row of `expect` has to do with what the lab's source claims.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::expectation::Expected;

/// A claim a row speaks of: its identifier, or the identifier and what the claim
/// says of these cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    /// The claim's identifier, declared in `spec.claims`.
    pub id: String,
    /// What the claim says of these cases, confirmed or refuted by the same
    /// evidence; without it the claim is confirmed when the row's own
    /// expectations hold.
    pub says: Option<Expected>,
    /// The part of the claim that is meant, where it says several things.
    pub part: Option<String>,
}

/// A claim with what it says, as written.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Claimed")]
struct ClaimShape {
    /// The claim's identifier, declared in `spec.claims`.
    id: String,
    /// What the claim says of these cases, in the words of a row. It is
    /// confirmed or refuted by itself.
    #[serde(default)]
    says: Option<Expected>,
    /// The part of the claim that is meant.
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
            "description": "A claim's identifier, alone or with what the claim says of these cases.",
            "anyOf": [{"type": "string"}, shape],
        })
    }
}
