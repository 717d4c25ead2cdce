//! Applies merge patches to trees (RFC 7386, as `kubectl patch --type merge` does). Every value
//! keeps its span, so an error in a value from a patch points at the patch.

use std::sync::Arc;

use crate::yaml::tree::{Entry, Map, Tree, Value};

/// Merges `patch` into `target`: maps merge, null deletes, any other value replaces.
pub(crate) fn apply_merge_patch(target: &Tree, patch: &Tree) -> Tree {
    let Value::Map(changes) = &patch.value else {
        return patch.clone();
    };
    let (span, mut map) = match &target.value {
        Value::Map(map) => (target.span, Map::clone(map)),
        // A map that replaces a value of another type is copied from the patch without its nulls.
        _ => (patch.span, Map::new()),
    };
    for (key, change) in changes.iter() {
        if change.value.is_null() {
            map.shift_remove(key);
            continue;
        }
        let entry = match map.get(key) {
            Some(old) if old.value.as_map().is_some() && change.value.as_map().is_some() => Entry {
                key: old.key,
                value: apply_merge_patch(&old.value, &change.value),
            },
            _ => Entry {
                key: change.key,
                value: without_nulls(&change.value),
            },
        };
        map.insert(Arc::clone(key), entry);
    }
    Tree {
        span,
        value: Value::Map(Arc::new(map)),
    }
}

/// Returns the result of merging `tree` into nothing. Nulls in lists stay, as in the RFC.
fn without_nulls(tree: &Tree) -> Tree {
    let Value::Map(map) = &tree.value else {
        return tree.clone();
    };
    let kept = map
        .iter()
        .filter(|(_, entry)| !entry.value.is_null())
        .map(|(key, entry)| {
            let value = without_nulls(&entry.value);
            (
                Arc::clone(key),
                Entry {
                    key: entry.key,
                    value,
                },
            )
        })
        .collect();
    Tree {
        span: tree.span,
        value: Value::Map(Arc::new(kept)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::decode::strict;
    use crate::yaml;
    use svclab_diagnostic::source::{FileId, Source};

    /// Parses the text of a JSON value, which is valid YAML.
    fn tree(json: &Json) -> Tree {
        let text = json.to_string();
        let source = Source::from_bytes("x", text.into()).expect("a source");
        // The YAML parser omits empty documents, so the value is wrapped in a list.
        let listed = Source::from_bytes("x", format!("[{}]", source.text()).into());
        let trees = yaml::parse(&listed.expect("a source"), FileId::default()).expect("YAML");
        trees[0]
            .node_at(crate::path![0])
            .expect("an element")
            .clone()
    }

    #[test]
    fn merge_rfc_7386_examples_match() {
        let table = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ];
        for (target, patch, result) in table {
            let merged = apply_merge_patch(&tree(&target), &tree(&patch));
            assert_eq!(strict::<Json>(&merged), Ok(result), "{target} with {patch}");
        }
    }

    #[test]
    fn merged_values_keep_spans() {
        let target = tree(&json!({"a": {"b": 1, "c": 2}}));
        let patch = tree(&json!({"padding": 0, "a": {"c": 3}}));
        let merged = apply_merge_patch(&target, &patch);
        let span = |tree: &Tree, path: &[_]| tree.node_at(path).map(|node| node.span);
        let (b, c) = (crate::path!["a", "b"], crate::path!["a", "c"]);
        assert_eq!(span(&merged, b), span(&target, b));
        assert_eq!(span(&merged, c), span(&patch, c));
        assert_ne!(span(&merged, c), span(&target, c));
    }
}
