//! Records the lines of the unique items of a table, set or chain, and rejects duplicates.

use std::collections::HashMap;

use crate::text::Line;
use crate::text::problem::{Problem, ProblemKind};

/// Line number of each property of an object.
#[derive(Debug, Default)]
pub(super) struct FirstLines(HashMap<String, u32>);

impl FirstLines {
    /// Records a property. Returns an error with the line of the first occurrence if the object
    /// already has the property. `item` names the property in the error.
    pub(super) fn insert(
        &mut self,
        property: &str,
        item: &str,
        line: Line<'_>,
    ) -> Result<(), Problem> {
        let first = *self.0.entry(property.to_owned()).or_insert(line.number);
        if first == line.number {
            Ok(())
        } else {
            Err(duplicate_error(item, first, line))
        }
    }
}

/// Creates the error for a second occurrence of a unique item.
pub(super) fn duplicate_error(item: &str, first: u32, line: Line<'_>) -> Problem {
    let item = item.to_owned();
    Problem::new(
        ProblemKind::Duplicate { item, line: first },
        line.start..line.end(),
    )
}
