//! Implements `svclab plan`.

use super::labs::prepare_labs;
use crate::cli::args::{Common, PlanArguments};
use crate::cli::exit::Exit;
use crate::cli::output::print;
use svclab_planner::print::render as shown;

/// Prints the plans of the selected cases.
pub fn plan(common: &Common, arguments: &PlanArguments) -> Exit {
    match prepare_labs(common, &arguments.selection) {
        Err(exit) => exit,
        Ok(labs) => {
            let plans: Vec<String> = labs
                .iter()
                .flat_map(|(_, cases)| cases)
                .map(|case| shown(&case.plan))
                .collect();
            print(&plans.join("\n"))
        }
    }
}
