//! Refuses verdicts about dumps of which a whole table or file is missing.

use std::fmt::Write as _;

use crate::cli::error::CliError;
use svclab_diagnostic::exit_code;
use svclab_planner::replay::ReplayReport;

/// Checks that no whole table or file of a dump is omitted.
///
/// # Errors
///
/// Returns an error that lists the missing tables and files.
pub(crate) fn require_whole_tables(reports: &[ReplayReport]) -> Result<(), CliError> {
    let mut message = "no verdict: whole tables or files of the dump are omitted".to_owned();
    let mut is_whole = true;
    for report in reports {
        for item in report.lost_tables() {
            is_whole = false;
            let place = item.location.as_ref();
            let place = place.map_or_else(String::new, |place| format!("{place}: "));
            let _ = write!(message, "\n  {}: {place}{}", report.node, item.description);
        }
    }
    if is_whole {
        return Ok(());
    }
    let help = "collect the node again; the omitted rules may decide about any packet";
    Err(CliError::refused(message, help).with_exit_code(exit_code::FAILED))
}

/// Returns what the dumps contain but no lab builds, if it may affect packets: a line for each part.
pub(crate) fn not_modelled(reports: &[ReplayReport]) -> Vec<String> {
    let parts = reports.iter().flat_map(|report| {
        let items = report.not_modelled();
        items.map(|item| format!("{}: {}", report.node, item.render_lines().join("; ")))
    });
    parts.collect()
}
