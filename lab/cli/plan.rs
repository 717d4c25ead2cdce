//! `svclab plan`

use super::args::{Common, PlanArguments};
use super::exit::Exit;
use super::labs::prepared;
use crate::plan::print;

/// Shows what the chosen cases would apply.
pub fn plan(common: &Common, arguments: &PlanArguments) -> Exit {
    match prepared(common, &arguments.selection) {
        Err(exit) => exit,
        Ok(labs) => {
            for case in labs.iter().flat_map(|(_, cases)| cases) {
                print!("{}", print::print(&case.plan));
            }
            Exit::Success
        }
    }
}
