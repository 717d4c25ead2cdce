//! Tests the effect of each field that svclab reads. `objects.yaml` and `lab.yaml` list the fields
//! with their effects. The fields are read from the types, so a new field of the API or of the lab
//! document must be listed.

mod output;
mod reflect;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{NetworkPolicy, ServiceCIDR};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use output::{LabOutput, lab_output};
use reflect::{example, fields};

const BASE: &str = include_str!("base.yaml");
const OBJECTS: &str = include_str!("objects.yaml");
const LAB: &str = include_str!("lab.yaml");

/// Entries by the path of their field.
type Rows = BTreeMap<String, Value>;

fn yaml(text: &str) -> Value {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("the text is YAML");
    documents.pop().expect("the text has a document")
}

fn base() -> Vec<Value> {
    serde_saphyr::from_multiple(BASE).expect("the text is YAML")
}

/// Returns the entries of a kind of object: its own, and those that it shares with other kinds.
fn entries(kind: &str) -> Rows {
    let table = yaml(OBJECTS);
    let entries_of = |name: &str, before: &str| -> Vec<(String, Value)> {
        let map = table[name].as_object().expect("the entries are a map");
        let entries = map.iter();
        entries
            .map(|(path, entry)| (format!("{before}{path}"), entry.clone()))
            .collect()
    };
    let mut entries = entries_of("Metadata", "");
    if kind == "Pod" {
        entries.extend(entries_of("Container", "spec.containers."));
        entries.extend(entries_of("Container", "spec.initContainers."));
    }
    entries.extend(entries_of(kind, ""));
    entries.into_iter().collect()
}

/// Returns the index of the base document that the tests change for a kind.
fn document_of(kind: &str) -> usize {
    let name = match kind {
        "Node" => "node-3",
        "Pod" | "Service" => "web",
        "EndpointSlice" => "sliced-1",
        "ServiceCIDR" => "services",
        _ => "deny",
    };
    position(&base(), kind, name)
}

fn position(documents: &[Value], kind: &str, name: &str) -> usize {
    let is_wanted =
        |document: &Value| document["kind"] == kind && document["metadata"]["name"] == name;
    documents
        .iter()
        .position(is_wanted)
        .expect("the base has the object")
}

/// Applies a JSON merge patch (RFC 7396).
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let map = into.as_object_mut().expect("the value is a map");
    for (key, value) in patch {
        if value.is_null() {
            map.shift_remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Sets the field at a path, in the first element of lists. Null removes the field. Missing lists
/// are created where `like` has a list.
fn set(value_at_path: &mut Value, path: &[&str], value: &Value, like: &Value) {
    let (key, rest) = path.split_first().expect("the path is not empty");
    if value_at_path.is_null() {
        *value_at_path = if like.is_array() {
            Value::Array(Vec::new())
        } else {
            Value::Object(Map::new())
        };
    }
    if let Value::Array(items) = value_at_path {
        let index = key.parse().ok();
        let (element, path) = index.map_or((0, path), |index: usize| (index, rest));
        if items.len() <= element {
            items.resize(element + 1, Value::Null);
        }
        set(&mut items[element], path, value, &like[0]);
        return;
    }
    let map = value_at_path.as_object_mut().expect("the value is a map");
    if !rest.is_empty() {
        let inside = map.entry((*key).to_owned()).or_insert(Value::Null);
        set(inside, rest, value, &like[*key]);
    } else if value.is_null() {
        map.shift_remove(*key);
    } else {
        map.insert((*key).to_owned(), value.clone());
    }
}

/// Field of a base document, with its lab.
struct Field<'a> {
    documents: Vec<Value>,
    index: usize,
    path: Vec<&'a str>,
    like: Value,
    /// Whether the nodes run a real kube-proxy.
    is_real: bool,
}

impl Field<'_> {
    fn output(&self, value: &Value) -> LabOutput {
        let mut documents = self.documents.clone();
        set(&mut documents[self.index], &self.path, value, &self.like);
        lab_output(&documents, self.is_real)
    }
}

/// Returns the errors of the entry of a field. `generated` are values of the field's type.
fn entry_errors(mut field: Field<'_>, entry: &Value, generated: &[Value]) -> Vec<String> {
    let mut errors = Vec::new();
    if let Some(reason) = entry.as_str() {
        if !reason.starts_with("inert ") {
            errors.push("has neither an effect nor a reason for none".to_owned());
        }
        let before = lab_output(&field.documents, false);
        for value in generated {
            let now = field.output(value);
            if now != before {
                errors.push(format!("is not inert: {}", first_difference(&before, &now)));
            }
        }
        return errors;
    }
    if let Some(patch) = entry.get("lab") {
        merge(&mut field.documents[0], &json!({"spec": patch}));
    }
    for (name, patch) in entry["and"].as_object().into_iter().flatten() {
        let (kind, name) = name.split_once('/').expect("the key is KIND/NAME");
        let index = position(&field.documents, kind, name);
        merge(&mut field.documents[index], patch);
    }
    if let Some(patch) = entry.get("with") {
        merge(&mut field.documents[field.index], patch);
    }
    field.is_real = entry["real"] == true;
    let values = |key: &str| entry[key].as_array().cloned().unwrap_or_default();
    if let [first, second] = values("obeyed").as_slice() {
        let [first, second] = [first, second].map(|value| field.output(value));
        if !first.errors.is_empty() {
            errors.push(format!("is rejected: {:?}", first.errors));
        }
        if first == second {
            errors.push("has no effect".to_owned());
        }
    }
    if let [first, second] = values("inert").as_slice() {
        let [first, second] = [first, second].map(|value| field.output(value));
        for seen in [&first, &second] {
            if !seen.errors.is_empty() {
                errors.push(format!("is rejected: {:?}", seen.errors));
            }
        }
        if first.plans != second.plans {
            errors.push(format!(
                "is not inert: {}",
                first_difference(&first, &second)
            ));
        }
    }
    let absent = field.output(&Value::Null);
    for value in values("refused") {
        if field.output(&value).errors.is_empty() {
            errors.push(format!("is not rejected: {value}"));
        }
    }
    for value in values("warned") {
        let with = field.output(&value);
        let without = if value.is_null() {
            lab_output(&base(), false)
        } else {
            absent.clone()
        };
        if !with
            .warnings
            .iter()
            .any(|warning| !without.warnings.contains(warning))
        {
            errors.push(format!(
                "causes no further warning: {value}: {:?}",
                with.warnings
            ));
        }
    }
    let known = ["obeyed", "inert", "refused", "warned"];
    if known.iter().all(|key| values(key).is_empty()) {
        errors.push("has neither an effect nor a reason for none".to_owned());
    }
    errors
}

/// Returns the first lines that differ, or the messages if these differ.
fn first_difference(before: &LabOutput, now: &LabOutput) -> String {
    if before.errors != now.errors || before.warnings != now.warnings {
        return format!("{:?} {:?}", now.errors, now.warnings);
    }
    let pair = before.plans.lines().zip(now.plans.lines());
    let mut pairs = pair.chain(before.checks.lines().zip(now.checks.lines()));
    let (a, b) = pairs.find(|(a, b)| a != b).unwrap_or_default();
    let offset = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let cut = |line: &str| {
        line.chars()
            .skip(offset.saturating_sub(20))
            .take(60)
            .collect::<String>()
    };
    format!("`{}` is `{}`", cut(a), cut(b))
}

/// Returns the errors of the entries of a kind of object.
fn errors_of_kind<T: DeserializeOwned + Serialize>(kind: &str) -> Vec<String> {
    let entries = entries(kind);
    let examples = [false, true].map(example::<T>);
    let index = document_of(kind);
    let mut errors = unlisted(kind, &fields::<T>(), &entries);
    // Fields are tested separately only if changing all inert fields together has an effect.
    let inert = |entry: &Value| {
        entry
            .as_str()
            .is_some_and(|text| text.starts_with("inert "))
    };
    let before = lab_output(&base(), false);
    let are_inert = examples.iter().all(|like| {
        let mut documents = base();
        for (name, _) in entries.iter().filter(|(_, entry)| inert(entry)) {
            let path: Vec<&str> = name.split('.').collect();
            set(&mut documents[index], &path, &value_at(like, &path), like);
        }
        lab_output(&documents, false) == before
    });
    for (name, entry) in &entries {
        if are_inert && inert(entry) {
            continue;
        }
        let path: Vec<&str> = name.split('.').collect();
        let generated = examples.each_ref().map(|like| value_at(like, &path));
        let field = Field {
            documents: base(),
            index,
            path,
            like: examples[0].clone(),
            is_real: false,
        };
        let errors_of_field = entry_errors(field, entry, &generated);
        errors.extend(
            errors_of_field
                .iter()
                .map(|error| format!("{kind} {name} {error}")),
        );
    }
    errors
}

/// Returns the value at a path of an object whose lists have one element.
fn value_at(object: &Value, path: &[&str]) -> Value {
    let mut value = object;
    for key in path {
        if value.is_array() {
            value = &value[0];
        }
        value = &value[*key];
    }
    value.clone()
}

/// Returns the fields without an entry, and the entries without a field. An entry covers its field
/// and the fields below.
fn unlisted(kind: &str, fields: &BTreeSet<String>, entries: &Rows) -> Vec<String> {
    let covers = |entry: &str, field: &str| {
        let rest = field.strip_prefix(entry);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let without_field = entries
        .keys()
        .filter(|entry| !fields.iter().any(|field| covers(entry, field)))
        .map(|entry| format!("{kind}: there is no field {entry}"));
    // A field whose subfields are listed needs no entry.
    let below = |field: &str| {
        let inside = format!("{field}.");
        entries.keys().any(|entry| entry.starts_with(&inside))
    };
    let without_entry = fields
        .iter()
        .filter(|field| !entries.keys().any(|entry| covers(entry, field)) && !below(field))
        .map(|field| format!("{kind}: no effect of {field} is listed"));
    without_field.chain(without_entry).collect()
}

#[test]
fn base_has_no_errors_or_warnings() {
    let seen = lab_output(&base(), false);
    assert_eq!((seen.errors, seen.warnings), (Vec::new(), Vec::new()));
}

fn assert_listed<T: DeserializeOwned + Serialize>(kind: &str) {
    let errors = errors_of_kind::<T>(kind);
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn node_fields_have_listed_effects() {
    assert_listed::<Node>("Node");
}

#[test]
fn pod_fields_have_listed_effects() {
    assert_listed::<Pod>("Pod");
}

#[test]
fn service_fields_have_listed_effects() {
    assert_listed::<Service>("Service");
}

#[test]
fn endpoint_slice_fields_have_listed_effects() {
    assert_listed::<EndpointSlice>("EndpointSlice");
}

#[test]
fn other_object_fields_have_listed_effects() {
    assert_listed::<ServiceCIDR>("ServiceCIDR");
    assert_listed::<NetworkPolicy>("NetworkPolicy");
}

/// Returns the fields of each type of the lab document, as listed in its schema.
fn fields_of_schema() -> BTreeMap<String, BTreeSet<String>> {
    let schema =
        serde_json::to_value(svclab_scenario::schema::lab_schema()).expect("the schema is JSON");
    let definitions = schema["$defs"]
        .as_object()
        .expect("the schema has definitions");
    let all_definitions = definitions
        .iter()
        .map(|(name, schema)| (name.as_str(), schema));
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, schema) in all_definitions.chain([("Lab", &schema)]) {
        let alternatives = ["anyOf", "oneOf"].map(|key| schema[key].as_array());
        let alternatives = alternatives.into_iter().flatten().flatten();
        for schema in alternatives.chain([schema]) {
            let properties = schema["properties"].as_object();
            for property in properties.into_iter().flat_map(|map| map.keys()) {
                let fields_of_type = fields.entry(name.to_owned()).or_default();
                fields_of_type.insert(property.clone());
            }
        }
    }
    fields
}

#[test]
fn lab_document_fields_have_listed_effects() {
    let table = yaml(LAB);
    let table = table.as_object().expect("the table is a map");
    let of_table: BTreeMap<String, BTreeSet<String>> = table
        .iter()
        .map(|(name, of)| {
            let fields = of["fields"].as_object().expect("the type has fields");
            (name.clone(), fields.keys().cloned().collect())
        })
        .collect();
    assert_eq!(of_table, fields_of_schema());
    let mut errors = Vec::new();
    for (name, of) in table {
        let mut documents = base();
        if let Some(patch) = of.get("lab") {
            merge(&mut documents[0], &json!({"spec": patch}));
        }
        let place = of["at"].as_str().expect("the type has a path");
        for (key, entry) in of["fields"].as_object().expect("the type has fields") {
            let entry = match entry {
                Value::String(text) => {
                    let name = text.strip_prefix("of ").expect("the text is `of TYPE`");
                    assert!(table.contains_key(name), "{name}");
                    continue;
                }
                Value::Array(_) => json!({"obeyed": entry}),
                entry => entry.clone(),
            };
            let parts = place.split('.').filter(|part| !part.is_empty());
            let field = Field {
                documents: documents.clone(),
                index: 0,
                path: parts.chain([key.as_str()]).collect(),
                like: Value::Null,
                is_real: false,
            };
            let errors_of_field = entry_errors(field, &entry, &[]);
            errors.extend(
                errors_of_field
                    .iter()
                    .map(|error| format!("{name} {key} {error}")),
            );
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
