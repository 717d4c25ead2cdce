//! Patches: the changes that axis values and steps make to documents.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use crate::lab::reference::{DocumentRef, ObjectKind};

/// JSON object with the key order of the document.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

/// Change to one document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PatchShape")]
pub enum Patch {
    /// Merges into a document as `kubectl patch --type merge` does: objects merge, lists are
    /// replaced, null deletes (RFC 7386).
    Merge {
        /// Document that the patch changes.
        target: DocumentRef,
        /// Content of the patch.
        merge: JsonObject,
    },
    /// Deletes an object.
    Delete {
        /// Object to delete.
        target: DocumentRef,
    },
    /// Adds an object.
    Add {
        /// Complete object, with `apiVersion` and `kind`.
        object: JsonObject,
    },
    /// Starts the termination of a pod, as `kubectl delete` does.
    Terminate {
        /// Pod to terminate.
        target: DocumentRef,
    },
}

/// Patch in the format of the document.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Patch")]
struct PatchShape {
    /// Document to change: `Lab`, `Node/NAME`, `Pod/NAMESPACE/NAME`, `Service/NAMESPACE/NAME` or
    /// `EndpointSlice/NAMESPACE/NAME`.
    #[serde(default, deserialize_with = "crate::decode::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    patch: Option<DocumentRef>,
    /// Content to merge, as with `kubectl patch --type merge`: maps merge, lists are replaced, null
    /// deletes.
    #[serde(default)]
    merge: Option<JsonObject>,
    /// Object to delete, in the format of `patch`.
    #[serde(default, deserialize_with = "crate::decode::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    delete: Option<DocumentRef>,
    /// Complete Kubernetes object to add.
    #[serde(default)]
    add: Option<JsonObject>,
    /// Pod to terminate, `Pod/NAMESPACE/NAME`. The pod gets a `deletionTimestamp` and continues to
    /// serve. Its derived endpoints become serving and terminating, and are no longer ready.
    #[serde(default, deserialize_with = "crate::decode::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    terminate: Option<DocumentRef>,
}

impl TryFrom<PatchShape> for Patch {
    type Error = &'static str;

    fn try_from(shape: PatchShape) -> Result<Self, Self::Error> {
        const ONE_OF: &str = "a patch has only one of `patch` with `merge`, `delete`, `add` or \
            `terminate`; write separate patches";
        if let Some(target) = shape.terminate {
            let rest = (shape.patch, shape.merge, shape.delete, shape.add);
            let (None, None, None, None) = rest else {
                return Err(ONE_OF);
            };
            return match &target {
                DocumentRef::Object {
                    kind: ObjectKind::Pod,
                    ..
                } => Ok(Self::Terminate { target }),
                _ => Err("only a pod can terminate; write `Pod/NAMESPACE/NAME`"),
            };
        }
        match (shape.patch, shape.merge, shape.delete, shape.add) {
            (Some(target), Some(merge), None, None) => Ok(Self::Merge { target, merge }),
            (None, None, Some(DocumentRef::Lab), None) => Err("the lab itself cannot be deleted"),
            (None, None, Some(target), None) => Ok(Self::Delete { target }),
            (None, None, None, Some(object)) => Ok(Self::Add { object }),
            (Some(_), None, None, None) => Err("`patch` requires `merge`, the content to merge"),
            (None, Some(_), None, None) => Err("`merge` requires `patch`, the document to change"),
            (None, None, None, None) => {
                Err("empty patch; write `patch` and `merge`, `delete`, `add` or `terminate`")
            }
            _ => Err(ONE_OF),
        }
    }
}

impl JsonSchema for Patch {
    fn schema_name() -> Cow<'static, str> {
        PatchShape::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PatchShape::json_schema(generator)
    }
}
