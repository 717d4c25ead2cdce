//! Refuses verdicts about dumps of which a whole table or file is missing.

use std::fmt::Write as _;

use crate::cli::error::CliError;
use svclab_diagnostic::exit_code;
use svclab_planner::replay::{OmittedItem, ReplayReport};

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

/// Returns what may differ between two dumps but is in no trial: a line for each omitted part that
/// only one dump has and that may affect packets, for each such file that is not read, and for each
/// other hardware address.
pub(crate) fn untried_differences(good: &ReplayReport, bad: &ReplayReport) -> Vec<String> {
    let addresses = good.hardware_addresses.changes(&bad.hardware_addresses);
    let mut lines: Vec<String> = addresses
        .into_iter()
        .map(|(interface, [good, bad])| {
            format!(
                "hardware address of {interface}: {good} in good, {bad} in bad; hosts that know \
                 the other address do not reach the node"
            )
        })
        .collect();
    for (side, own, other) in [("good", good, bad), ("bad", bad, good)] {
        let is_common = |item: &&OmittedItem| {
            let mut others = other.omitted.iter();
            others.any(|part| part.description == item.description)
        };
        let omitted = own.omitted.iter().filter(|item| item.may_affect_packets());
        let only_here = omitted.filter(|item| !is_common(item));
        lines.extend(
            only_here.map(|item| format!("only in {side}: {}", item.render_lines().join("; "))),
        );
        let unread = own.unread.iter().filter(|gap| gap.may_affect_packets());
        lines.extend(unread.map(|gap| format!("not read of {side}: {}", gap.describe())));
    }
    lines
}
