//! Generates the JSON schemas of the lab document and of a lab's file, for editors.

use schemars::generate::SchemaSettings;
use schemars::{Schema, json_schema};
use serde_json::{Value, json};

use crate::lab::reference::ObjectKind;
use crate::lab::{API_VERSION, KIND, Lab};

/// Returns the schema of a `Lab` document, in JSON Schema 2020-12.
#[must_use]
pub fn lab_schema() -> Schema {
    let mut schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Lab>();
    let constants = [("apiVersion", API_VERSION), ("kind", KIND)];
    for (field, value) in constants {
        let pointer = format!("/properties/{field}");
        if let Some(property) = schema.pointer_mut(&pointer).and_then(|p| p.as_object_mut()) {
            property.insert("const".to_owned(), value.into());
        }
    }
    schema
}

/// Returns the schema of every document in the file of a lab, in JSON Schema 2020-12. The fields of
/// a `Lab` are strict. Of Kubernetes objects, only version, kind and name are.
#[must_use]
pub fn lab_file_schema() -> Schema {
    let mut lab = lab_schema();
    let definitions = lab.remove("$defs").unwrap_or_default();
    let meta_schema = lab.remove("$schema");
    let mut schema = json_schema!({
        "$schema": meta_schema,
        "title": "LabFile",
        "description": "Document in the file of a lab: the `Lab`, or a Kubernetes object.",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "if": {
            "anyOf": [
                {"properties": {"kind": {"const": KIND}}, "required": ["kind"]},
                {"properties": {"apiVersion": {"pattern": "^svclab/"}}, "required": ["apiVersion"]},
            ],
        },
        "then": {"$ref": "#/$defs/Lab"},
        "else": {"$ref": "#/$defs/KubernetesObject"},
        "$defs": definitions,
    });
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        definitions.insert(KIND.to_owned(), lab.to_value());
        definitions.insert("KubernetesObject".to_owned(), object_schema());
    }
    schema
}

/// Returns the schema of a Kubernetes object.
fn object_schema() -> Value {
    let rules = ObjectKind::ALL.map(|kind| {
        let group = kind.group().replace('.', "\\.");
        // Other groups have kinds with the same names.
        let versions = match kind {
            ObjectKind::EndpointSlice | ObjectKind::ServiceCidr => {
                format!("^({group}/v1(beta1)?|(?!{group}/).*)$")
            }
            ObjectKind::Node | ObjectKind::Pod | ObjectKind::Service => "^v1$|/".to_owned(),
        };
        json!({
            "if": {"properties": {"kind": {"const": kind.name()}}},
            "then": {
                "properties": {
                    "apiVersion": {"pattern": versions},
                    "metadata": {"required": ["name"]},
                },
                "required": ["metadata"],
            },
        })
    });
    json!({
        "description": "Kubernetes object, or a `List` of objects, in the format of `kubectl get -o yaml`.",
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string", "description": "API version of the object."},
            "kind": {"type": "string", "minLength": 1, "description": "Kind of the object."},
            "metadata": {
                "type": "object",
                "description": "Metadata with the name of the object.",
                "properties": {
                    "name": {"type": "string", "description": "Name of the object."},
                    "namespace": {"type": "string", "description": "Kubernetes namespace; default `default`."},
                    "labels": {
                        "type": "object",
                        "description": "Labels of the object.",
                        "additionalProperties": {"type": "string"},
                    },
                },
            },
        },
        "required": ["apiVersion", "kind"],
        "allOf": rules,
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::decode::strict;
    use crate::yaml;
    use svclab_diagnostic::source::{FileId, Source};

    fn example() -> Value {
        first(include_str!("../example.yaml"))
    }

    /// Converts the first document of a text to JSON.
    fn first(text: &str) -> Value {
        let source = Source::from_bytes("x", text.into()).expect("a source");
        let trees = yaml::parse(&source, FileId::default()).expect("YAML");
        strict(&trees[0]).expect("JSON")
    }

    #[test]
    fn schema_accepts_example() {
        let schema = jsonschema::validator_for(lab_schema().as_value()).expect("a schema");
        let errors: Vec<String> = schema
            .iter_errors(&example())
            .map(|e| e.to_string())
            .collect();
        assert_eq!(errors, Vec::<String>::new());
    }

    #[test]
    fn schema_accepts_flows_and_refuses_broken_ones() {
        let schema = jsonschema::validator_for(lab_schema().as_value()).expect("a schema");
        let flows = first(include_str!("../flows.yaml"));
        let errors: Vec<String> = schema.iter_errors(&flows).map(|e| e.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
        for (parent, key, value) in [
            ("/spec/flows/call", "expect", Value::Array(Vec::new())),
            ("/spec/flows/call", "conections", 2.into()),
            ("/spec/flows/call/expect/0", "connected", "every".into()),
            ("/spec/flows/call/expect/0", "becuase", "x".into()),
            ("/spec/facts/plain", "fails", "dropped".into()),
        ] {
            let mut broken = flows.clone();
            let map = broken.pointer_mut(parent).and_then(Value::as_object_mut);
            map.expect("a map").insert(key.to_owned(), value);
            assert!(!schema.is_valid(&broken), "{parent}/{key}");
        }
    }

    #[test]
    fn schema_refuses_invalid_lab() {
        let schema = jsonschema::validator_for(lab_schema().as_value()).expect("a schema");
        let broken: [(&str, &str, Value); 9] = [
            ("", "apiVersion", "svclab/v2".into()),
            ("", "extra", 1.into()),
            ("/spec", "axess", Value::Object(serde_json::Map::new())),
            ("/spec", "iptables", "nftt".into()),
            ("/spec/probes/call", "connections", "many".into()),
            ("/spec/probes/call", "connections", 0.into()),
            ("/spec/expect/0/call", "connected", "some".into()),
            ("/spec/expect/0", "call", 7.into()),
            ("/spec/axes/policy", "Local", 7.into()),
        ];
        for (parent, key, value) in broken {
            let mut lab = example();
            let map = lab
                .pointer_mut(parent)
                .and_then(Value::as_object_mut)
                .expect("a map");
            map.insert(key.to_owned(), value);
            assert!(!schema.is_valid(&lab), "{parent}/{key}");
        }
    }

    /// Returns the documents of each lab in `topologies`.
    fn topologies() -> Vec<(PathBuf, Vec<Value>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../topologies");
        let folders = ["", "bench", "conformance"].map(|name| folder.join(name));
        let files = folders
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let files = files.map(|entry| entry.unwrap().path());
        let labs = files.filter(|file| file.extension().is_some_and(|ext| ext == "yaml"));
        labs.map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            let source = Source::from_bytes("x", text.into()).expect("a source");
            let trees = yaml::parse(&source, FileId::default()).expect("YAML");
            let documents = trees.iter().map(|tree| strict(tree).expect("JSON"));
            (file, documents.collect())
        })
        .collect()
    }

    #[test]
    fn file_schema_accepts_all_topologies() {
        let schema = jsonschema::validator_for(lab_file_schema().as_value()).expect("a schema");
        let labs = topologies();
        assert!(labs.len() > 10, "{}", labs.len());
        for (file, documents) in labs {
            for document in &documents {
                let errors: Vec<String> = schema
                    .iter_errors(document)
                    .map(|e| e.to_string())
                    .collect();
                assert_eq!(errors, Vec::<String>::new(), "{}", file.display());
            }
        }
    }

    #[test]
    fn file_schema_refuses_changed_topologies() {
        let schema = jsonschema::validator_for(lab_file_schema().as_value()).expect("a schema");
        let changes: [(&str, &str, Value); 9] = [
            ("Lab", "/spec/kubeProxi", json!({})),
            ("Lab", "/apiVersion", json!("v1")),
            ("Lab", "/kind", json!("Labb")),
            ("Lab", "/spec/loadBalancers", json!("automatic")),
            ("Lab", "/spec/objects", json!("objects.yaml")),
            ("Node", "/apiVersion", json!(1)),
            ("Node", "/metadata/name", Value::Null),
            ("Service", "/apiVersion", json!("v2")),
            ("Pod", "/metadata/labels", json!({"app": 1})),
        ];
        for (file, documents) in topologies() {
            for (kind, pointer, value) in &changes {
                let Some(document) = documents.iter().find(|one| one["kind"] == *kind) else {
                    continue;
                };
                let mut broken = document.clone();
                let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
                let map = broken.pointer_mut(parent).and_then(Value::as_object_mut);
                map.expect("a map").insert((*key).to_owned(), value.clone());
                assert!(!schema.is_valid(&broken), "{} {pointer}", file.display());
            }
        }
    }

    #[test]
    fn file_schema_accepts_other_objects() {
        let schema = jsonschema::validator_for(lab_file_schema().as_value()).expect("a schema");
        for document in [
            json!({"apiVersion": "v1", "kind": "List", "items": []}),
            json!({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "x"}}),
            json!({"apiVersion": "discovery.k8s.io/v1beta1", "kind": "EndpointSlice", "metadata": {"name": "x"}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {}}),
        ] {
            assert!(schema.is_valid(&document), "{document}");
        }
    }

    #[test]
    fn topologies_name_the_schema_of_their_file() {
        for (file, _) in topologies() {
            let text = std::fs::read_to_string(&file).unwrap();
            let first = text.lines().next().unwrap_or_default();
            let path = first.strip_prefix("# yaml-language-server: $schema=");
            let path = path.unwrap_or_else(|| panic!("{}: {first}", file.display()));
            let schema = file.parent().unwrap().join(path);
            assert!(schema.ends_with("tests/schema/lab-file.v1.json"), "{path}");
            assert!(schema.is_file(), "{}", schema.display());
        }
    }

    #[test]
    fn schema_describes_every_field() {
        fn undescribed(schema: &Value, path: &str, missing: &mut Vec<String>) {
            if let Some(map) = schema.as_object() {
                let properties = map.get("properties").and_then(Value::as_object);
                for (name, property) in properties.into_iter().flatten() {
                    let refers = property.get("$ref").is_some();
                    if property.get("description").is_none() && !refers {
                        missing.push(format!("{path}/{name}"));
                    }
                }
                for (key, value) in map {
                    undescribed(value, &format!("{path}/{key}"), missing);
                }
            }
        }
        let mut missing = Vec::new();
        undescribed(lab_file_schema().as_value(), "", &mut missing);
        assert_eq!(missing, Vec::<String>::new());
    }
}
