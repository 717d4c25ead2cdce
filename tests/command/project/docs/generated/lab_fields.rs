//! Renders the reference of the lab file from its JSON schema.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::{NOTE, cell, escape, one_line, table};

/// Returns the chapter.
pub(super) fn render() -> String {
    let schema = svclab_scenario::schema::lab_schema();
    let schema = schema.as_value();
    let mut text = format!(
        "# Fields of a lab\n\n{NOTE}\n\nThis chapter lists every field of the `Lab` document. \
         `svclab schema lab` prints the same as JSON schema. [Lab file](lab-file.md) explains the \
         parts.\n\n- A field without a default is required if its type is **bold**, otherwise \
         optional.\n- *map of* T is an object with free names and values of type T.\n"
    );
    write_type(&mut text, "Lab", schema);
    let types = schema["$defs"].as_object().expect("types");
    for (name, definition) in types {
        write_type(&mut text, name, definition);
    }
    text
}

/// Writes the section of a type.
fn write_type(text: &mut String, name: &str, definition: &Value) {
    let _ = write!(text, "\n## {name}\n");
    if let Some(description) = definition["description"].as_str() {
        for paragraph in description.split("\n\n") {
            let _ = write!(text, "\n{}\n", escape(&one_line(paragraph)));
        }
    }
    if let Some(fields) = definition["properties"].as_object() {
        let required = definition["required"].as_array();
        let required: BTreeSet<&str> = required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let rows = fields
            .iter()
            .map(|(name, field)| row(name, field, required.contains(name.as_str())));
        let others = &definition["additionalProperties"];
        let others = others.is_object().then(|| {
            let kind = type_name(others);
            vec![
                "any other name".to_owned(),
                kind,
                String::new(),
                String::new(),
            ]
        });
        let titles = ["field", "type", "default", "meaning"];
        let _ = write!(text, "\n{}", table(&titles, rows.chain(others)));
    } else if let Some(choices) = values(definition) {
        let rows = choices
            .iter()
            .map(|choice| vec![literal(&choice["const"]), description(choice)]);
        let _ = write!(text, "\n{}", table(&["value", "meaning"], rows));
    } else {
        let _ = write!(text, "\nType: {}.\n", type_name(definition));
    }
}

/// Returns the alternatives of an enumeration.
fn values(definition: &Value) -> Option<&Vec<Value>> {
    let choices = definition["oneOf"].as_array()?;
    let is_value = |choice: &Value| choice.get("const").is_some();
    choices.iter().all(is_value).then_some(choices)
}

fn row(name: &str, field: &Value, is_required: bool) -> Vec<String> {
    let kind = type_name(field);
    let kind = if is_required {
        format!("**{kind}**")
    } else {
        kind
    };
    let default = match field.get("default") {
        None | Some(Value::Null) => String::new(),
        Some(Value::Array(items)) if items.is_empty() => String::new(),
        Some(Value::Object(fields)) if fields.is_empty() => String::new(),
        Some(value) => literal(value),
    };
    vec![format!("`{name}`"), kind, default, description(field)]
}

fn description(value: &Value) -> String {
    cell(value["description"].as_str().unwrap_or_default())
}

/// Renders a value as code.
fn literal(value: &Value) -> String {
    match value.as_str() {
        Some(text) => format!("`{text}`"),
        None => format!("`{value}`"),
    }
}

/// Returns the name of a type, with links to the types of this chapter.
fn type_name(schema: &Value) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        let name = path.rsplit('/').next().expect("a name");
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(value) = schema.get("const") {
        return literal(value);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[key].as_array() {
            let names = choices
                .iter()
                .filter(|choice| choice["type"] != "null")
                .map(type_name);
            return names.collect::<Vec<_>>().join(" or ");
        }
    }
    match &schema["type"] {
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str);
            let names = names.filter(|name| *name != "null");
            names.collect::<Vec<_>>().join(" or ")
        }
        Value::String(name) if name == "array" => {
            format!("list of {}", type_name(&schema["items"]))
        }
        Value::String(name) if name == "object" => {
            format!("map of {}", type_name(&schema["additionalProperties"]))
        }
        Value::String(name) => match (&schema["minimum"], &schema["maximum"]) {
            (Value::Number(minimum), Value::Number(maximum)) => {
                format!("{name}, {minimum} to {maximum}")
            }
            (Value::Number(minimum), _) => format!("{name}, at least {minimum}"),
            _ => name.clone(),
        },
        _ => "any value".to_owned(),
    }
}
