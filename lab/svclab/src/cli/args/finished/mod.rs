//! Arguments of the commands that read the results of finished runs.

mod merge;
mod report;

pub(crate) use merge::MergeArguments;
pub(crate) use report::ReportArguments;

pub(super) use merge::MERGE_HELP;
pub(super) use report::REPORT_HELP;
