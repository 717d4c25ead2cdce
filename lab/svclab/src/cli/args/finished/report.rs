//! Arguments of `report`.

use std::path::PathBuf;

use clap::Args;

pub(crate) const REPORT_HELP: &str = "\
Examples:
  svclab run --report results; svclab report results --output results.html
  svclab report shard-1 shard-2 --output all
  svclab report patched --baseline released --output changes.html

Exit code: 0; with --baseline 1 if a case fails that passed before or did not run before,
or if a case did not run any more.";

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Finished runs: directories of `svclab run --report`, or files of `svclab run --format json`,
    /// which contain no packets
    #[arg(required = true, value_name = "DIR|FILE.json")]
    pub(crate) runs: Vec<PathBuf>,
    /// Finished run to compare with: cases that fail now, that are fixed, that are slower and that
    /// are missing. Can be repeated
    #[arg(long, value_name = "DIR|FILE.json")]
    pub(crate) baseline: Vec<PathBuf>,
    /// File that ends in .html, for one page with all evidence in it; or directory, for a page
    /// index.html with links to the pages of the cases
    #[arg(short, long, value_name = "DIR|FILE.html")]
    pub(crate) output: PathBuf,
}
