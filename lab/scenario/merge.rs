//! Merge patches on trees (RFC 7386, what `kubectl patch --type merge` does).
//! Every value keeps the place where it was written, so an error in a patched
//! document points at the patch where the patch is to blame.

use std::sync::Arc;

use super::tree::{Entry, Map, Tree, Value};

/// The tree that results from merging `patch` into `target`: maps merge, null
/// deletes, anything else replaces.
pub(super) fn merged(target: &Tree, patch: &Tree) -> Tree {
    let Value::Map(changes) = &patch.value else {
        return patch.clone();
    };
    let (span, mut map) = match &target.value {
        Value::Map(map) => (target.span, Map::clone(map)),
        // A patch's map in place of something else is the patch's, nulls left out.
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
                value: merged(&old.value, &change.value),
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

/// What merging `tree` into nothing gives. Nulls in lists stay, as in the RFC.
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
