//! Parses the output of `nft list ruleset`, and input for `nft -f` in the same line format.

mod batches;
mod canonical;
mod chain;
mod counter;
mod elements;
mod first_lines;
mod meaning;
mod model;
mod parser;
mod references;
mod removal;
mod tokens;
mod values;
mod xtables;

pub use batches::{MAX_BATCH_SIZE, split_batches};
pub use canonical::canonical;
pub use model::*;
pub use parser::parse_ruleset;
pub use references::References;
pub use removal::{Removal, TablePart};
pub use tokens::{Token, tokenize};
pub use values::{ElementTypes, protocol_number};

use crate::input::{InputError, ProgramInput};
use crate::text::Text;
use crate::text::problem::Problem;

impl ProgramInput for Ruleset {
    fn parse(text: &str) -> Result<Self, InputError> {
        parse(text).map_err(|problems| {
            let first = problems.into_iter().next();
            InputError(first.map_or_else(String::new, |problem| problem.kind.to_string()))
        })
    }

    fn render(&self) -> String {
        self.to_string()
    }
}

/// Returns the tables of a text, each with its family and name (`ip kube-proxy`) and its part of
/// the text.
pub fn tables(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_first = |index: &usize| *index == 0 || text.as_bytes().get(index - 1) == Some(&b'\n');
    let starts = text.match_indices("table ").map(|(index, _)| index);
    let starts: Vec<usize> = starts.filter(is_first).collect();
    let mut ends = starts.clone().into_iter().skip(1);
    starts.into_iter().map(move |start| {
        let table_text = &text[start..ends.next().unwrap_or(text.len())];
        let head = table_text.lines().next().unwrap_or_default();
        let head = head.trim_start_matches("table ");
        let (name, _) = head.split_once(" {").unwrap_or((head, ""));
        (name, table_text)
    })
}

/// Parses a complete ruleset.
///
/// # Errors
///
/// Returns all errors of the text.
pub fn parse(text: &str) -> Result<Ruleset, Vec<Problem>> {
    let mut problems = Vec::new();
    let ruleset = parse_ruleset(&Text::new(text), &mut problems);
    if problems.is_empty() {
        Ok(ruleset)
    } else {
        Err(problems)
    }
}
