//! Implements `svclab collect-node`.

use crate::cli::error::{CommandResult, Outcome};
use crate::cli::output::print_safe;

/// Script that writes the dump of a node.
const SCRIPT: &str = include_str!("../../../../../scripts/collect-node");

/// Prints the script unchanged.
pub(crate) fn collect_node() -> CommandResult {
    print_safe(SCRIPT)?;
    Ok(Outcome::SUCCESS)
}
