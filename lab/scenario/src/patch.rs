//! What the value of an axis, or a step, does to the documents as written.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::reference::{DocumentRef, ObjectKind};

/// A JSON object, in the order it was written.
pub type Object = serde_json::Map<String, serde_json::Value>;

/// One change to the documents.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PatchShape")]
pub enum Patch {
    /// Merges into a document, as `kubectl patch --type merge` does: objects
    /// merge, lists are replaced whole, null deletes (RFC 7386).
    Merge {
        /// The document.
        target: DocumentRef,
        /// What is merged into it.
        merge: Object,
    },
    /// Takes an object away.
    Delete {
        /// The object.
        target: DocumentRef,
    },
    /// Adds an object.
    Add {
        /// The whole object, with its `apiVersion` and `kind`.
        object: Object,
    },
    /// Has a pod begin to terminate, as `kubectl delete` does.
    Terminate {
        /// The pod.
        target: DocumentRef,
    },
}

/// A patch as written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Patch")]
struct PatchShape {
    /// The document to merge into: `Lab`, `Node/NAME`, `Pod/NAMESPACE/NAME`,
    /// `Service/NAMESPACE/NAME` or `EndpointSlice/NAMESPACE/NAME`.
    #[serde(default, deserialize_with = "super::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    patch: Option<DocumentRef>,
    /// What is merged into it, as by `kubectl patch --type merge`: maps merge,
    /// lists are replaced whole, null deletes.
    #[serde(default)]
    merge: Option<Object>,
    /// An object to take away, named as for `patch`.
    #[serde(default, deserialize_with = "super::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    delete: Option<DocumentRef>,
    /// A whole Kubernetes object to add.
    #[serde(default)]
    add: Option<Object>,
    /// A pod that begins to terminate, `Pod/NAMESPACE/NAME`: it has a
    /// `deletionTimestamp` and goes on to serve, and endpoints that are derived from
    /// it are not ready any more but serving and terminating.
    #[serde(default, deserialize_with = "super::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    terminate: Option<DocumentRef>,
}

impl TryFrom<PatchShape> for Patch {
    type Error = &'static str;

    fn try_from(shape: PatchShape) -> Result<Self, Self::Error> {
        const ONE_OF: &str = "a patch is one of `patch` with `merge`, `delete`, `add` or `terminate`; write several patches";
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
                _ => Err("only a pod terminates; name one, `Pod/NAMESPACE/NAME`"),
            };
        }
        match (shape.patch, shape.merge, shape.delete, shape.add) {
            (Some(target), Some(merge), None, None) => Ok(Self::Merge { target, merge }),
            (None, None, Some(DocumentRef::Lab), None) => Err("the lab itself cannot be deleted"),
            (None, None, Some(target), None) => Ok(Self::Delete { target }),
            (None, None, None, Some(object)) => Ok(Self::Add { object }),
            (Some(_), None, None, None) => Err("`patch` needs `merge`: what to merge into it"),
            (None, Some(_), None, None) => Err("`merge` needs `patch`: what to merge it into"),
            (None, None, None, None) => {
                Err("an empty patch; write `patch` and `merge`, `delete`, `add` or `terminate`")
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
