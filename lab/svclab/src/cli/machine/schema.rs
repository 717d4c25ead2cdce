//! Implements `svclab schema`.

use crate::cli::args::SchemaName;
use crate::cli::error::{CommandResult, Outcome};
use crate::cli::output::print_json;
use svclab_report as report;
use svclab_scenario as scenario;

/// Prints the schema of a format.
pub(crate) fn schema(format: SchemaName) -> CommandResult {
    let schema = match format {
        SchemaName::Lab => scenario::schema::lab_schema(),
        SchemaName::LabFile => scenario::schema::lab_file_schema(),
        SchemaName::Results => report::schema::results(),
        SchemaName::Claims => report::schema::claims(),
        SchemaName::Doctor => report::schema::doctor(),
        SchemaName::Diff => report::schema::diff(),
        SchemaName::Journeys => report::schema::journeys(),
        SchemaName::Evidence => report::schema::evidence(),
        SchemaName::Ps => report::schema::ps(),
        SchemaName::Bisection => report::schema::bisection(),
        SchemaName::Verification => report::schema::verification(),
        SchemaName::Replay => report::schema::replayed(),
        SchemaName::Why => report::schema::why(),
    };
    print_json(&schema)?;
    Ok(Outcome::SUCCESS)
}
