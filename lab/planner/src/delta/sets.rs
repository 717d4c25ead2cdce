//! Compares the sets of two plans. Output: lines for ipset.

use std::fmt::Write as _;

use indexmap::{IndexMap, IndexSet};

use svclab_model::plan::delta::SetsChange;

/// A set: its type, options and members.
#[derive(Debug, Default)]
pub struct Set<'a> {
    /// Type and options in its `create` line.
    pub creation: &'a str,
    /// Members with their options.
    pub members: IndexSet<&'a str>,
}

/// Returns the changes from the sets of one input for `ipset restore` to those of another. `None`
/// if the inputs are equal.
///
/// # Errors
///
/// Returns a message if a set has another type, or if a line is neither `create` nor `add`.
pub fn diff(current: &str, wanted: &str) -> Result<Option<SetsChange>, String> {
    if current == wanted {
        return Ok(None);
    }
    let (current, wanted) = (parse(current)?, parse(wanted)?);
    let mut lines = SetsChange {
        has_sets: !wanted.is_empty(),
        ..SetsChange::default()
    };
    for (name, set) in &wanted {
        let members = match current.get(name) {
            None => {
                let _ = writeln!(lines.before_rules, "create {name} {}", set.creation);
                None
            }
            Some(old) if old.creation != set.creation => {
                return Err(format!("the type or options of {name} change"));
            }
            Some(old) => Some(&old.members),
        };
        for removed in members
            .into_iter()
            .flatten()
            .filter(|old| !set.members.contains(*old))
        {
            // A member is deleted without its options.
            let member = removed.split_whitespace().next().unwrap_or_default();
            let _ = writeln!(lines.before_rules, "del {name} {member}");
        }
        for new in &set.members {
            if !members.is_some_and(|old| old.contains(new)) {
                let _ = writeln!(lines.before_rules, "add {name} {new}");
            }
        }
    }
    // In the input, a set of sets follows the sets that it refers to, so the order of deletion is
    // reversed.
    for name in current
        .keys()
        .rev()
        .filter(|name| !wanted.contains_key(*name))
    {
        let _ = writeln!(lines.after_rules, "destroy {name}");
    }
    Ok(Some(lines))
}

/// Parses the input of `ipset restore` into sets by name.
///
/// # Errors
///
/// Returns a message if a line is neither `create` nor `add`.
pub fn parse(text: &str) -> Result<IndexMap<&str, Set<'_>>, String> {
    let mut sets: IndexMap<&str, Set<'_>> = IndexMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let syntax_error = || format!("`{line}` is neither `create` nor `add`");
        let (command, rest) = line.split_once(' ').ok_or_else(syntax_error)?;
        let (name, rest) = rest.trim().split_once(' ').ok_or_else(syntax_error)?;
        match command {
            "create" => sets.entry(name).or_default().creation = rest.trim(),
            "add" => {
                let set = sets.get_mut(name).ok_or_else(syntax_error)?;
                set.members.insert(rest.trim());
            }
            _ => return Err(syntax_error()),
        }
    }
    Ok(sets)
}
