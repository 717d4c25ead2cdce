//! Sets that change: from the text that made them to lines for ipset.

use std::fmt::Write as _;

use indexmap::{IndexMap, IndexSet};

use svclab_model::plan::delta::SetsChange;

/// A set: what is said when it is made, and its members with their options.
#[derive(Debug, Default)]
pub struct Set<'a> {
    /// What is said when it is made: its type and options.
    pub made: &'a str,
    /// Its members with their options.
    pub members: IndexSet<&'a str>,
}

/// What comes from the sets of one `ipset restore` to those of another; none
/// when the two read alike.
///
/// # Errors
///
/// In words, when a set is of another type or a line is neither `create` nor
/// `add`.
pub fn between(there: &str, wanted: &str) -> Result<Option<SetsChange>, String> {
    if there == wanted {
        return Ok(None);
    }
    let (there, wanted) = (read(there)?, read(wanted)?);
    let mut lines = SetsChange {
        any: !wanted.is_empty(),
        ..SetsChange::default()
    };
    for (name, set) in &wanted {
        let members = match there.get(name) {
            None => {
                let _ = writeln!(lines.before, "create {name} {}", set.made);
                None
            }
            Some(old) if old.made != set.made => {
                return Err(format!("{name} is made otherwise"));
            }
            Some(old) => Some(&old.members),
        };
        for gone in members
            .into_iter()
            .flatten()
            .filter(|old| !set.members.contains(*old))
        {
            // A member is named without its options.
            let member = gone.split_whitespace().next().unwrap_or_default();
            let _ = writeln!(lines.before, "del {name} {member}");
        }
        for new in &set.members {
            if !members.is_some_and(|old| old.contains(new)) {
                let _ = writeln!(lines.before, "add {name} {new}");
            }
        }
    }
    // A set of sets is made after those that it names.
    for name in there
        .keys()
        .rev()
        .filter(|name| !wanted.contains_key(*name))
    {
        let _ = writeln!(lines.after, "destroy {name}");
    }
    Ok(Some(lines))
}

/// Sets by name.
///
/// # Errors
///
/// In words, when a line is neither `create` nor `add`.
pub fn read(text: &str) -> Result<IndexMap<&str, Set<'_>>, String> {
    let mut sets: IndexMap<&str, Set<'_>> = IndexMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let strange = || format!("`{line}` is neither `create` nor `add`");
        let (command, rest) = line.split_once(' ').ok_or_else(strange)?;
        let (name, rest) = rest.trim().split_once(' ').ok_or_else(strange)?;
        match command {
            "create" => sets.entry(name).or_default().made = rest.trim(),
            "add" => {
                let set = sets.get_mut(name).ok_or_else(strange)?;
                set.members.insert(rest.trim());
            }
            _ => return Err(strange()),
        }
    }
    Ok(sets)
}
