//! What `nft list ruleset` prints, and what `nft -f` reads where it is written line by
//! line: tables, sets, maps, chains.

mod batches;
mod canonical;
mod chain;
pub mod compare;
mod elements;
mod read;
mod words;

pub use batches::batches;
pub use canonical::canonical;
pub use compare::compare;
pub use read::read;

use super::problem::Problem;
use super::text::Text;
use crate::rules::nft::Ruleset;

/// Reads a whole text.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn parse(text: &str) -> Result<Ruleset, Vec<Problem>> {
    let mut problems = Vec::new();
    let ruleset = read(&Text::new(text), &mut problems);
    if problems.is_empty() {
        Ok(ruleset)
    } else {
        Err(problems)
    }
}
