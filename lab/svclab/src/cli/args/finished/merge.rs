//! Arguments of `merge`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use svclab_report::Format;

pub(crate) const MERGE_HELP: &str = "\
Examples:
  svclab merge shard-*.json --output results.json
  svclab merge shard-*.json --format junit --output junit.xml

Exit code: that of `svclab run` with the same results; 2 if the results cannot be merged.";

#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    /// Results of `svclab run --format json` or directories of `svclab run --report`: all shards of
    /// a run, or runs with different cases
    #[arg(required = true, value_name = "RESULTS.json")]
    pub(crate) runs: Vec<PathBuf>,
    /// File for the merged results [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Format of the merged results
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: MergeFormat,
}

/// Format of merged results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum MergeFormat {
    /// JSON document with the schema of `svclab schema results`
    #[default]
    Json,
    /// `JUnit` XML, with a suite per lab and a test per case
    Junit,
    /// Text for people
    Human,
}

impl From<MergeFormat> for Format {
    fn from(format: MergeFormat) -> Self {
        match format {
            MergeFormat::Json => Self::Json,
            MergeFormat::Junit => Self::Junit,
            MergeFormat::Human => Self::Human,
        }
    }
}
