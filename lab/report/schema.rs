//! The JSON schema of the results, for programs that read them.

use schemars::Schema;
use schemars::generate::SchemaSettings;

use super::{Results, SCHEMA};

/// The schema of the document that `--format json` prints, in JSON Schema 2020-12.
#[must_use]
pub fn results() -> Schema {
    let mut schema = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<Results>();
    let format = schema
        .pointer_mut("/properties/schema")
        .and_then(|property| property.as_object_mut());
    if let Some(format) = format {
        format.insert("const".to_owned(), SCHEMA.into());
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::{Format, Options, fixture};

    const PUBLISHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schema/results.v1.json");

    fn document() -> Value {
        let json = fixture::told(Format::Json, Options::default());
        serde_json::from_str(&json).unwrap()
    }

    fn complaints(document: &Value) -> Vec<String> {
        let schema = serde_json::to_value(results()).unwrap();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        validator
            .iter_errors(document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect()
    }

    /// With `UPDATE_SCHEMA` set, publishes it anew.
    #[test]
    fn the_published_schema_is_current() {
        let now = serde_json::to_string_pretty(&results()).unwrap() + "\n";
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(PUBLISHED, &now).unwrap();
        }
        let published = std::fs::read_to_string(PUBLISHED).unwrap();
        assert!(
            published == now,
            "tests/schema/results.v1.json is out of date: UPDATE_SCHEMA=1 cargo test"
        );
    }

    #[test]
    fn results_are_as_the_schema_says() {
        assert_eq!(complaints(&document()), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_result_is_told_from_one() {
        let wrong = [
            ("/schema", Value::from("svclab/results/v2")),
            ("/cases/0/result", Value::from("skip")),
            ("/cases/0/duration_ms", Value::from("3 s")),
            ("/cases/0/claims/0/verdict", Value::Null),
            ("/cases/3/place/line", Value::from("31")),
            ("/cases/3/probes/0/observed/connected", Value::from("seven")),
            ("/cases/3/probes/0/observed/seenSources", Value::from(1)),
            ("/cases/4/error/trouble", Value::from("bad luck")),
            ("/summary/passed", Value::Null),
        ];
        for (at, value) in wrong {
            let mut document = document();
            *document.pointer_mut(at).unwrap() = value;
            assert!(!complaints(&document).is_empty(), "{at}");
        }
    }
}
