//! Parses the output of `nft list ruleset`, and input for `nft -f` in the same line format.

mod batches;
mod canonical;
mod chain;
mod elements;
mod model;
mod read;
mod words;

pub use batches::batches;
pub use canonical::canonical;
pub use model::*;
pub use read::read;
pub use words::{Word, words};

use crate::text::Text;
use crate::text::problem::Problem;

/// Returns the tables of a text, each with its family and name (`ip kube-proxy`) and its part of
/// the text.
pub fn tables(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_first = |at: &usize| *at == 0 || text.as_bytes().get(at - 1) == Some(&b'\n');
    let begins = text.match_indices("table ").map(|(at, _)| at);
    let begins: Vec<usize> = begins.filter(is_first).collect();
    let mut ends = begins.clone().into_iter().skip(1);
    begins.into_iter().map(move |begin| {
        let piece = &text[begin..ends.next().unwrap_or(text.len())];
        let head = piece.lines().next().unwrap_or_default();
        let head = head.trim_start_matches("table ");
        let (name, _) = head.split_once(" {").unwrap_or((head, ""));
        (name, piece)
    })
}

/// Parses a complete ruleset.
///
/// # Errors
///
/// Returns all errors of the text.
pub fn parse(text: &str) -> Result<Ruleset, Vec<Problem>> {
    let mut problems = Vec::new();
    let ruleset = read(&Text::new(text), &mut problems);
    if problems.is_empty() {
        Ok(ruleset)
    } else {
        Err(problems)
    }
}
