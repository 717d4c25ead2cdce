//! The JSON schema of the lab document, for editors: fields, types, words and
//! what they mean.

use schemars::Schema;
use schemars::generate::SchemaSettings;

use super::lab::{API_VERSION, KIND, Lab};

/// The schema of a document of kind `Lab`, in JSON Schema 2020-12.
#[must_use]
pub fn lab() -> Schema {
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
