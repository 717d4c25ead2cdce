//! Implements `svclab plan`.

use super::labs::prepare_labs;
use crate::cli::args::PlanArguments;
use crate::cli::error::{CommandResult, Outcome};
use crate::cli::output::print;
use svclab_planner::print::render;

/// Prints the plans of the selected cases.
pub(crate) fn plan(arguments: &PlanArguments) -> CommandResult {
    let labs = prepare_labs(&arguments.selection)?;
    let cases = labs.iter().flat_map(|(_, cases)| cases);
    let plans: Vec<String> = cases.map(|case| render(&case.plan)).collect();
    print(&plans.join("\n"))?;
    Ok(Outcome::SUCCESS)
}
