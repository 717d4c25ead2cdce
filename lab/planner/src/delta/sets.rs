//! Compares the sets of two plans.

use svclab_model::plan::delta::SetsChange;
use svclab_ruleset::ipset::saved::Sets;

/// Returns the changes from the current sets to the wanted sets. `None` if they are equal.
///
/// # Errors
///
/// Returns a message if the type or the options of a set change.
pub fn diff(current: &Sets, wanted: &Sets) -> Result<Option<SetsChange>, String> {
    let mut created = Sets::new();
    let mut change = SetsChange {
        has_sets: !wanted.is_empty(),
        ..SetsChange::default()
    };
    for (name, set) in wanted {
        let Some(old) = current.get(name) else {
            created.insert(name.clone(), set.clone());
            continue;
        };
        if old.creation() != set.creation() {
            return Err(format!("the type or options of {name} change"));
        }
        for (entry, options) in &set.entries {
            let (old, new) = (old.entries.get(entry), options.suffix());
            if old.is_some_and(|old| old.suffix() == new) {
                continue;
            }
            if old.is_some() {
                change.delete.push((name.clone(), entry.clone()));
            }
            change.add.push((name.clone(), format!("{entry}{new}")));
        }
        let removed = old
            .entries
            .keys()
            .filter(|entry| !set.entries.contains_key(*entry));
        change
            .delete
            .extend(removed.map(|entry| (name.clone(), entry.clone())));
    }
    change.create = created.into();
    // In the input, a set of sets follows the sets that it refers to, so the order of deletion is
    // reversed.
    let removed = current
        .keys()
        .rev()
        .filter(|name| !wanted.contains_key(*name));
    change.destroy = removed.cloned().collect();
    let unchanged = SetsChange {
        has_sets: change.has_sets,
        ..SetsChange::default()
    };
    Ok((change != unchanged).then_some(change))
}
