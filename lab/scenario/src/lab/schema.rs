//! Generates the JSON schema of the lab document, for editors.

use schemars::Schema;
use schemars::generate::SchemaSettings;

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

#[cfg(test)]
mod tests {
    use serde_json::Value;

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
        undescribed(lab_schema().as_value(), "", &mut missing);
        assert_eq!(missing, Vec::<String>::new());
    }
}
