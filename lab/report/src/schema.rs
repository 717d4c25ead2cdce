//! Generates the JSON schemas of all machine-readable output.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use crate::commands::claims::{self, Claims};
use crate::commands::explain::{self, Journeys};
use crate::commands::replay::{self, ReplayDocument};
use crate::commands::{diff, doctor, ps, why};
use crate::formats::evidence::{self, EvidenceDocument};
use svclab_experiment::bisect::{self, Bisection};
use svclab_experiment::verify::{self, Verification};
use svclab_model::evidence::Verdict;

/// Returns the schema of `svclab run --format json`, in JSON Schema 2020-12.
#[must_use]
pub fn results() -> Schema {
    let mut schema = schema_for::<crate::results::Document>(crate::results::SCHEMA);
    // The generated schema of a map of verdicts allows any key.
    if let Some(observed) = schema.pointer_mut("/$defs/Observed") {
        for verdict in Verdict::ALL {
            observed["properties"][verdict.name()] = json!({
                "description": format!(
                    "Number of attempts with verdict `{verdict}`; absent if zero."
                ),
                "type": "integer",
                "format": "uint32",
                "minimum": 0,
            });
        }
        observed["additionalProperties"] = Value::Bool(false);
    }
    schema
}

/// Returns the schema of `svclab claims --format json`.
#[must_use]
pub fn claims() -> Schema {
    schema_for::<Claims>(claims::SCHEMA)
}

/// Returns the schema of `svclab doctor --format json`.
#[must_use]
pub fn doctor() -> Schema {
    schema_for::<doctor::DoctorDocument>(doctor::SCHEMA)
}

/// Returns the schema of `svclab diff --format json`.
#[must_use]
pub fn diff() -> Schema {
    schema_for::<diff::DiffDocument>(diff::SCHEMA)
}

/// Returns the schema of `svclab explain --format json`.
#[must_use]
pub fn journeys() -> Schema {
    schema_for::<Journeys>(explain::SCHEMA)
}

/// Returns the schema of `svclab replay --format json`.
#[must_use]
pub fn replayed() -> Schema {
    schema_for::<ReplayDocument>(replay::SCHEMA)
}

/// Returns the schema of a case's `evidence.json.gz`, which `svclab run --report` writes.
#[must_use]
pub fn evidence() -> Schema {
    schema_for::<EvidenceDocument<'_>>(evidence::SCHEMA)
}

/// Returns the schema of `svclab ps --format json`.
#[must_use]
pub fn ps() -> Schema {
    schema_for::<ps::PsDocument>(ps::SCHEMA)
}

/// Returns the schema of `svclab verify --format json`.
#[must_use]
pub fn verification() -> Schema {
    schema_for::<Verification>(verify::SCHEMA)
}

/// Returns the schema of `svclab why --format json`.
#[must_use]
pub fn why() -> Schema {
    schema_for::<why::Document>(why::SCHEMA)
}

/// Returns the schema of `svclab bisect --format json`.
#[must_use]
pub fn bisection() -> Schema {
    schema_for::<Bisection>(bisect::SCHEMA)
}

fn schema_for<T: JsonSchema>(format: &str) -> Schema {
    let mut schema = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>();
    if let Some(property) = schema.pointer_mut("/properties/schema") {
        property["const"] = format.into();
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tests::render_run;
    use crate::{Format, Options};

    fn run() -> Value {
        let json = render_run(Format::Json, Options::default());
        serde_json::from_str(&json).unwrap()
    }

    fn validation_errors(schema: &Schema, document: &Value) -> Vec<String> {
        let validator = jsonschema::draft202012::new(schema.as_value()).unwrap();
        validator
            .iter_errors(document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect()
    }

    /// Rewrites the published schemas if `UPDATE_SCHEMA` is set.
    #[test]
    fn schemas_published_files_are_current() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/schema");
        for (name, schema) in [
            ("results.v1.json", results()),
            ("claims.v1.json", claims()),
            ("diff.v1.json", super::diff()),
            ("journeys.v1.json", super::journeys()),
            ("evidence.v1.json", super::evidence()),
            ("ps.v1.json", ps()),
            ("verification.v1.json", verification()),
            ("why.v1.json", super::why()),
            ("bisection.v1.json", bisection()),
            ("replay.v1.json", replayed()),
            ("doctor.v1.json", super::doctor()),
            ("lab.v1.json", svclab_scenario::schema::lab_schema()),
            (
                "lab-file.v1.json",
                svclab_scenario::schema::lab_file_schema(),
            ),
        ] {
            let now = serde_json::to_string_pretty(&schema).unwrap() + "\n";
            let file = folder.join(name);
            if std::env::var_os("UPDATE_SCHEMA").is_some() {
                std::fs::write(&file, &now).unwrap();
            }
            let published = std::fs::read_to_string(&file).unwrap();
            assert!(
                published == now,
                "{name} is out of date: UPDATE_SCHEMA=1 cargo test -p svclab-report schema"
            );
        }
    }

    #[test]
    fn schemas_printed_documents_are_valid() {
        assert_eq!(validation_errors(&results(), &run()), Vec::<String>::new());
        let document = claims::document(claims::tests::all_statuses());
        let document = serde_json::to_value(document).unwrap();
        assert_eq!(
            validation_errors(&claims(), &document),
            Vec::<String>::new()
        );
        let document = serde_json::to_value(crate::commands::verify::tests::document()).unwrap();
        assert_eq!(
            validation_errors(&verification(), &document),
            Vec::<String>::new()
        );
        let document = serde_json::to_value(crate::commands::bisect::tests::document()).unwrap();
        assert_eq!(
            validation_errors(&bisection(), &document),
            Vec::<String>::new()
        );
        let document = serde_json::to_value(diff::tests::document()).unwrap();
        assert_eq!(
            validation_errors(&super::diff(), &document),
            Vec::<String>::new()
        );
    }

    #[test]
    fn diff_schema_rejects_invalid_documents() {
        let document = serde_json::to_value(diff::tests::document()).unwrap();
        for (pointer, value) in [
            ("/schema", Value::from(crate::results::SCHEMA)),
            ("/same", Value::Null),
            ("/differences/0/location/of", Value::from("house")),
            ("/differences/0/change", Value::from("gone")),
            ("/differences/0/owner", json!({"unknown": "x"})),
        ] {
            let mut document = document.clone();
            *document.pointer_mut(pointer).unwrap() = value;
            assert!(
                !validation_errors(&super::diff(), &document).is_empty(),
                "{pointer}"
            );
        }
    }

    #[test]
    fn bisection_schema_rejects_invalid_documents() {
        let document = serde_json::to_value(crate::commands::bisect::tests::document()).unwrap();
        for (pointer, value) in [
            ("/schema", Value::from(crate::results::SCHEMA)),
            ("/breaks/0/0/kind", Value::from("house")),
            ("/fixes", Value::Null),
            ("/trials/0/class", Value::from("fine")),
            ("/symptom/detail", Value::Null),
        ] {
            let mut document = document.clone();
            *document.pointer_mut(pointer).unwrap() = value;
            assert!(
                !validation_errors(&bisection(), &document).is_empty(),
                "{pointer}"
            );
        }
    }

    #[test]
    fn results_schema_rejects_invalid_documents() {
        let wrong = [
            ("/schema", Value::from("svclab/results/v2")),
            ("/cases/0/result", Value::from("skip")),
            ("/cases/0/durationMs", Value::from("3 s")),
            ("/cases/0/claims/0/verdict", Value::Null),
            ("/cases/3/location/line", Value::from("31")),
            ("/cases/3/probes/0/observed/connected", Value::from("seven")),
            ("/cases/3/probes/0/observed/seenSources", Value::from(1)),
            (
                "/cases/3/probes/0/observed",
                json!({"endpoints": [], "seenSources": [], "lost": 1}),
            ),
            ("/cases/4/error/kind", Value::from("other")),
            ("/summary/passed", Value::Null),
        ];
        for (pointer, value) in wrong {
            let mut document = run();
            *document.pointer_mut(pointer).unwrap() = value;
            assert!(
                !validation_errors(&results(), &document).is_empty(),
                "{pointer}"
            );
        }
    }

    #[test]
    fn claims_schema_rejects_invalid_documents() {
        let document = claims::document(claims::tests::all_statuses());
        for (pointer, value) in [
            ("/schema", Value::from(crate::results::SCHEMA)),
            ("/claims/0/verdict", Value::from("maybe")),
            ("/claims/0/cases", Value::Null),
            ("/claims/1/reason", Value::Null),
        ] {
            let mut document = serde_json::to_value(&document).unwrap();
            *document.pointer_mut(pointer).unwrap() = value;
            assert!(
                !validation_errors(&claims(), &document).is_empty(),
                "{pointer}"
            );
        }
    }
}
