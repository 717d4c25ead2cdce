//! Redacts a file of Kubernetes objects.

use serde_json::{Map as JsonMap, Value as Json, json};

use crate::check::objects::{PacketEffect, packet_effect};
use crate::lab::reference::{DocumentRef, ObjectKind};
use crate::objects::documents::{Documents, UnmodelledObject, name_span};
use crate::objects::workloads::is_workload;
use crate::redact::key::RedactionKey;
use crate::redact::names::NameKind;
use crate::redact::shape::{
    LABEL_KEYS, NETWORK_POLICY, Shape, UNMODELLED, WORDS, WORKLOAD, object_shape,
};
use crate::sink::Sink;
use crate::yaml::tree::{Map, Scalar, ScalarKind, Tree, Value};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;

/// Redacted objects of a file.
#[derive(Debug, Clone)]
pub struct RedactedObjects {
    /// YAML documents.
    pub text: String,
    /// Number of objects in the text.
    pub count: usize,
    /// Number of dropped objects, which have no effect on packets.
    pub dropped: usize,
    /// Old and new references of the objects that svclab models, such as `Service/default/web`.
    pub renamed: Vec<(DocumentRef, DocumentRef)>,
}

/// Redacts the objects of a file, and returns them with warnings. Objects of kinds that svclab does
/// not model lose all fields but their names. If they have no effect on packets, they are dropped.
/// Workloads keep the fields from which svclab writes pods.
/// Labs are dropped, too, with a warning.
///
/// # Errors
///
/// Returns all errors and then all warnings. A file without objects is an error. Render the
/// diagnostics with the same `sources`.
pub fn redact_objects(
    sources: &Sources,
    key: &RedactionKey,
) -> Result<(RedactedObjects, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut sink = Sink::default();
    let documents = Documents::read(sources, &mut sink);
    for lab in &documents.labs {
        sink.push(
            Diagnostic::warning("the lab is dropped: svclab redacts only Kubernetes objects")
                .with_position(lab.head_span(), "a lab"),
        );
    }
    let mut objects: Vec<Json> = documents
        .objects
        .iter()
        .filter_map(|(reference, tree)| key.redact_object(reference, tree))
        .collect();
    let unmodelled = documents.unmodelled.iter();
    let others: Vec<Json> = unmodelled
        .filter_map(|other| key.redact_unmodelled(other))
        .collect();
    let dropped = documents.unmodelled.len() - others.len();
    objects.extend(others);
    if objects.is_empty() && !sink.has_errors() {
        let diagnostic = Diagnostic::error("the file contains no objects that svclab reads");
        let first = documents.unmodelled.first();
        sink.push(match first {
            Some(other) => diagnostic.with_position(name_span(&other.tree), "dropped"),
            None => diagnostic,
        });
    }
    let mut text = String::new();
    for object in &objects {
        match serde_saphyr::to_string(object) {
            Ok(document) => {
                text.push_str("---\n");
                text.push_str(&document);
            }
            Err(error) => sink.push(Diagnostic::error(format!(
                "cannot write an object: {error}"
            ))),
        }
    }
    if sink.has_errors() {
        return Err(sources.redact(sink.into_inner()));
    }
    let redacted = RedactedObjects {
        text,
        count: objects.len(),
        dropped,
        renamed: documents
            .objects
            .keys()
            .map(|reference| (reference.clone(), key.rename_reference(reference)))
            .collect(),
    };
    Ok((redacted, sources.redact(sink.into_inner())))
}

impl RedactionKey {
    fn rename_reference(&self, reference: &DocumentRef) -> DocumentRef {
        let DocumentRef::Object {
            kind,
            namespace,
            name,
        } = reference
        else {
            return reference.clone();
        };
        let name_kind = match kind {
            ObjectKind::Node => NameKind::Node,
            _ => NameKind::Name,
        };
        let namespace = self.rename(NameKind::Namespace, namespace);
        DocumentRef::object(*kind, &namespace, &self.rename(name_kind, name))
    }

    fn redact_object(&self, reference: &DocumentRef, tree: &Tree) -> Option<Json> {
        let DocumentRef::Object { kind, .. } = reference else {
            return None;
        };
        let fields = self.redact_value(object_shape(*kind), tree)?;
        Some(with_type(kind.api_version(), kind.name(), fields))
    }

    /// Redacts an object of a kind that svclab does not model. `None` if it has no effect on
    /// packets.
    fn redact_unmodelled(&self, object: &UnmodelledObject) -> Option<Json> {
        let UnmodelledObject { kind, group, tree } = object;
        if is_workload(object) {
            let fields = self.redact_value(&WORKLOAD, tree)?;
            return Some(with_type("apps/v1", kind, fields));
        }
        match packet_effect(group, kind) {
            PacketEffect::None => None,
            PacketEffect::Unknown => {
                let kind = self.rename(NameKind::Kind, kind);
                let fields = self.redact_value(&UNMODELLED, tree)?;
                Some(with_type("redacted/v1", &kind, fields))
            }
            PacketEffect::Filters if kind == "NetworkPolicy" && group == "networking.k8s.io" => {
                let fields = self.redact_value(&NETWORK_POLICY, tree)?;
                Some(with_type("networking.k8s.io/v1", kind, fields))
            }
            PacketEffect::Filters | PacketEffect::Replaced(_) => {
                let fields = self.redact_value(&UNMODELLED, tree)?;
                // The name of the group may be private. svclab only distinguishes the core group.
                let version = if group.is_empty() {
                    "v1"
                } else {
                    "redacted/v1"
                };
                Some(with_type(version, kind, fields))
            }
        }
    }

    /// Redacts a value. `None` if it does not have the type of its field.
    fn redact_value(&self, shape: &Shape, tree: &Tree) -> Option<Json> {
        match (shape, &tree.value) {
            (_, Value::Scalar(scalar)) if scalar.kind == ScalarKind::Null => Some(Json::Null),
            (Shape::Constant(text), _) => Some(json!(text)),
            (Shape::Labels, Value::Map(map)) => Some(self.redact_labels(map)),
            (Shape::List(item), Value::Sequence(items)) => {
                let items = items
                    .iter()
                    .filter_map(|tree| self.redact_value(item, tree));
                Some(Json::Array(items.collect()))
            }
            (Shape::Map(fields), Value::Map(map)) => {
                let entries = fields.iter().filter_map(|(name, shape)| {
                    let value = self.redact_value(shape, &map.get(*name)?.value)?;
                    Some(((*name).to_owned(), value))
                });
                Some(Json::Object(entries.collect()))
            }
            (_, Value::Scalar(scalar)) => Some(self.redact_scalar(shape, scalar)),
            (_, Value::Sequence(_) | Value::Map(_)) => None,
        }
    }

    /// Redacts a single value. A value in the place of a list or a map is renamed.
    fn redact_scalar(&self, shape: &Shape, scalar: &Scalar) -> Json {
        let text = scalar.text.trim();
        let kind = match shape {
            Shape::Name(kind) => *kind,
            Shape::Address(_) if matches!(text, "" | "None") => return json!(text),
            Shape::Address(kind) => {
                let address = self.redact_address(text);
                return json!(address.unwrap_or_else(|| self.rename(*kind, text)));
            }
            Shape::LabelKey => return json!(self.redact_label_key(text)),
            Shape::Word if WORDS.contains(&text) => return json!(text),
            Shape::Port if is_port_name(text) && scalar.kind == ScalarKind::String => {
                return json!(text);
            }
            _ => NameKind::Value,
        };
        match (scalar.kind, kind) {
            (ScalarKind::Bool(value), NameKind::Value) => json!(value),
            (ScalarKind::Unsigned(number), NameKind::Value) => json!(number),
            (ScalarKind::Negative(number), NameKind::Value) => json!(number),
            (ScalarKind::Float(number), NameKind::Value) => json!(number),
            _ => json!(self.rename(kind, text)),
        }
    }

    fn redact_labels(&self, map: &Map) -> Json {
        let entries = map.iter().map(|(key, entry)| {
            let kind = if &**key == "kubernetes.io/hostname" {
                NameKind::Node
            } else {
                NameKind::Name
            };
            let value = self.redact_value(&Shape::Name(kind), &entry.value);
            (self.redact_label_key(key), value.unwrap_or_default())
        });
        Json::Object(entries.collect::<JsonMap<String, Json>>())
    }

    fn redact_label_key(&self, key: &str) -> String {
        if LABEL_KEYS.contains(&key) {
            return key.to_owned();
        }
        self.rename(NameKind::Label, key)
    }
}

/// Adds version and kind before the fields of an object.
fn with_type(version: &str, kind: &str, fields: Json) -> Json {
    let mut object = JsonMap::new();
    object.insert("apiVersion".to_owned(), json!(version));
    object.insert("kind".to_owned(), json!(kind));
    if let Json::Object(fields) = fields {
        object.extend(fields);
    }
    Json::Object(object)
}

/// Whether a text can be the name of a port. The comments of kube-proxy contain it.
fn is_port_name(text: &str) -> bool {
    let is_allowed =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    text.len() <= 63 && text.chars().all(is_allowed)
}
