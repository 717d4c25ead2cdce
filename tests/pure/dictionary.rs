//! Compares a dictionary of the fuzzer with the schema from which its words come.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

fn read(path: &str) -> String {
    let path = svclab_test_support::root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Adds the names of fields and the values of enumerations to `words`.
fn collect_words(schema: &Value, words: &mut BTreeSet<String>) {
    if let Value::Object(object) = schema {
        let fields = object.get("properties").and_then(Value::as_object);
        words.extend(fields.into_iter().flatten().map(|(name, _)| name.clone()));
        let values = object.get("enum").and_then(Value::as_array);
        let values = values.into_iter().flatten().chain(object.get("const"));
        words.extend(values.filter_map(Value::as_str).map(str::to_owned));
    }
    match schema {
        Value::Object(object) => object.values().for_each(|part| collect_words(part, words)),
        Value::Array(parts) => parts.iter().for_each(|part| collect_words(part, words)),
        _ => {}
    }
}

#[test]
fn dictionary_of_labs_contains_words_of_schema() {
    let schema = serde_json::from_str(&read("tests/schema/lab.v1.json")).expect("JSON");
    let mut words = BTreeSet::new();
    collect_words(&schema, &mut words);
    assert!(words.contains("loadBalancers") && words.contains("iptables"));
    let dictionary = read("tests/fuzz/dictionaries/lab_file");
    let (_, part) = dictionary
        .split_once("# Fields and values of the Lab document.")
        .expect("the part with the words of the schema");
    let listed = part.lines().filter(|line| line.starts_with('"'));
    let listed: BTreeSet<String> = listed
        .map(|line| line.trim_matches('"').to_owned())
        .collect();
    let difference = |these: &BTreeSet<String>, others: &BTreeSet<String>| -> Vec<String> {
        these.difference(others).cloned().collect()
    };
    assert_eq!(
        (difference(&words, &listed), difference(&listed, &words)),
        (Vec::new(), Vec::new()),
        "words to add to tests/fuzz/dictionaries/lab_file, and words to remove"
    );
}
