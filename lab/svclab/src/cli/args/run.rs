//! Arguments of `run`, `explain`, `why`, `plan` and `claims`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{KernelArguments, LabSource, Selection, Shard};
use svclab_report::Format;
use svclab_runner::run::RunControl;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "the options are independent")]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) selection: Selection,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
    /// Format of the results
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    /// Also write the results to a file, in its own format, such as junit=FILE. Can be repeated;
    /// creates missing directories
    #[arg(long, value_name = "FORMAT=FILE", value_parser = parse_output_file)]
    pub(crate) write: Vec<OutputFile>,
    /// Collect full evidence and write a report. A file that ends in .html has everything in one
    /// page. A directory has the page index.html, `JUnit` XML, and files of each case: a capture with
    /// comments, the evidence, an explanation
    #[arg(long, value_name = "DIR|FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Number of cases that run at once [default: 8 per processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Only run the cases that did not pass in the last run from this directory; with names, those
    /// of the named cases. Every run stores their names in `$XDG_STATE_HOME/svclab` (by
    /// default `~/.local/state/svclab`), unless it is interrupted
    #[arg(long)]
    pub(crate) last_failed: bool,
    /// Only run part K of N of the selected cases. The parts are the same on every machine with the
    /// same labs; `svclab merge` merges their results
    #[arg(long, value_name = "K/N", conflicts_with = "last_failed")]
    pub(crate) shard: Option<Shard>,
    /// Results of an earlier run, so that the parts take equally long. By default, they have equal
    /// numbers of cases
    #[arg(long, value_name = "RESULTS.json", requires = "shard")]
    pub(crate) durations: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
    /// Run again whenever a file of the labs changes, and mark the failures that are new. Ctrl-C
    /// ends with the exit code of the last run
    #[arg(long, conflicts_with_all = ["shard", "last_failed", "keep_on_failure", "certify"])]
    pub(crate) watch: bool,
    /// Keep failed cases running until Ctrl-C, and print how to enter them
    #[arg(long)]
    pub(crate) keep_on_failure: bool,
    /// Compare this machine's network, modules, processes, mounts and other state before and after
    /// the run, even if interrupted. Prints differences, which set the exit code to 1
    #[arg(long)]
    pub(crate) certify: bool,
    /// Print more details, including every claim that a case confirms or refutes
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Print only failures and the summary, without progress and notes
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Arguments that repeat cases, limit their time, or end a run early.
#[derive(Debug, Args)]
pub(crate) struct ControlArguments {
    /// Stop after the first case that does not pass. The other cases are reported as not run
    #[arg(long)]
    pub(crate) fail_fast: bool,
    /// Number of times that a case is run again until it passes. A case that passes only then is
    /// reported as flaky. Invalid labs and bugs of svclab are not repeated
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = clap::value_parser!(u32).range(..=100))]
    pub(crate) retries: u32,
    /// Whether flaky cases set the exit code to 1
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "RESULT",
        requires = "retries"
    )]
    pub(crate) flaky: FlakyResult,
    /// Maximum time of a case, such as 30s. A case that exceeds it is stopped and is an error. The
    /// boot of a guest does not count
    #[arg(long, value_name = "DURATION", value_parser = parse_limit)]
    pub(crate) timeout: Option<Duration>,
    /// Maximum time of the run, such as 10m. Cases without a result are then reported as not run,
    /// and the exit code is at least 1
    #[arg(long, value_name = "DURATION", value_parser = parse_limit)]
    pub(crate) run_timeout: Option<Duration>,
}

impl ControlArguments {
    /// Returns the options of the run.
    pub(crate) fn options(&self) -> RunControl {
        RunControl {
            fail_fast: self.fail_fast,
            retries: self.retries,
            flaky_fails: self.flaky == FlakyResult::Fail,
            case_timeout: self.timeout,
            run_timeout: self.run_timeout,
        }
    }
}

/// Result of a run with flaky cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum FlakyResult {
    /// The exit code does not depend on them
    #[default]
    Pass,
    /// The exit code is 1 if it would be 0
    Fail,
}

/// Longest time limit.
const MAX_LIMIT: Duration = Duration::from_hours(24);

/// Parses a time limit from 1 ms to 24 h.
fn parse_limit(text: &str) -> Result<Duration, String> {
    let limit = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_valid = (Duration::from_millis(1)..=MAX_LIMIT).contains(&limit);
    is_valid
        .then_some(limit)
        .ok_or_else(|| "use 1ms to 24h".to_owned())
}

/// Additional output file of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputFile {
    /// Format of the file.
    pub(crate) format: Format,
    /// Path of the file.
    pub(crate) file: PathBuf,
}

/// Parses a format and a file: `junit=results/junit.xml`.
fn parse_output_file(text: &str) -> Result<OutputFile, String> {
    let (format, file) = text
        .split_once('=')
        .filter(|(_, file)| !file.is_empty())
        .ok_or("expected FORMAT=FILE, such as junit=results/junit.xml")?;
    Ok(OutputFile {
        format: Format::from_str(format, false)
            .map_err(|_| format!("unknown format `{format}`; use human, json, junit or github"))?,
        file: file.into(),
    })
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    pub(crate) selection: Selection,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
    /// Build no lab; run the probes in a running lab, in its current state. Without a name, in the
    /// only running lab
    #[arg(long = "running", alias = "standing")]
    pub(crate) running: bool,
    /// Only explain this probe
    #[arg(long, value_name = "NAME")]
    pub(crate) probe: Option<String>,
    /// Format of the explanation
    #[arg(long, value_enum, default_value_t = Explanation::Human)]
    pub(crate) format: Explanation,
    /// Also write a report with the packets of each case. A file that ends in .html has everything
    /// in one page. A directory has the page index.html, the answer, and files of each case
    #[arg(long, value_name = "DIR|FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print every packet, every namespace and every rule
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Arguments of `svclab why`.
#[derive(Debug, Args)]
pub(crate) struct WhyArguments {
    /// Cases: NAME, NAME/axis=value,…, or a path of a lab's file
    #[arg(value_name = "LAB[/CASE]", required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) source: LabSource,
    /// Dump that replaces a node of the cases, in the format of `svclab replay`. Can be repeated
    #[arg(long, value_name = "[NODE=]DUMP")]
    pub(crate) dump: Vec<String>,
    /// Omit invalid parts of dumps
    #[arg(long, requires = "dump")]
    pub(crate) lenient: bool,
    /// Also read dumps and objects that a lab names outside its own directory
    #[arg(long)]
    pub(crate) allow_outside: bool,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
    /// Only fix the connections of this probe
    #[arg(long, value_name = "NAME")]
    pub(crate) probe: Option<String>,
    /// Source that the endpoints of the probe should see: a pod, node, host, interface or address
    #[arg(long, value_name = "NAME", requires = "probe")]
    pub(crate) seen_source: Option<String>,
    /// Pod that should answer the probe. Can be repeated: each should answer, and no other
    #[arg(long, value_name = "NAME", requires = "probe")]
    pub(crate) endpoint: Vec<String>,
    /// Maximum time of the search for fixes of a case. The changes that were not tried by then are
    /// counted
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_limit)]
    pub(crate) timeout: Duration,
    /// Format of the findings
    #[arg(long, value_enum, default_value_t = WhyFormat::Human)]
    pub(crate) format: WhyFormat,
    /// Also write a report with the packets of each case. A file that ends in .html has everything
    /// in one page. A directory has the page index.html, the answer, and files of each case
    #[arg(long, value_name = "DIR|FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Also print changes that did not help
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Format of the findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhyFormat {
    /// Text for people
    Human,
    /// JSON `svclab/why/v1` with the schema of `svclab schema why`
    Json,
}

/// Format of journeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Explanation {
    /// Text for people
    Human,
    /// JSON `svclab/journeys/v1` with the schema of `svclab schema journeys`
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(crate) selection: Selection,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArguments {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Format of the picture
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: PictureFormat,
    /// Run the case, and draw the packets of a connection of this probe: the first that fails,
    /// otherwise the first
    #[arg(long, value_name = "PROBE")]
    pub(crate) probe: Option<String>,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
}

/// Format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum PictureFormat {
    /// SVG with its own style, for light and dark pages
    #[default]
    Svg,
    /// Flowchart of Mermaid, for Markdown
    Mermaid,
    /// DOT for Graphviz
    Dot,
}

#[derive(Debug, Args)]
pub(crate) struct ClaimsArguments {
    #[command(flatten)]
    pub(crate) selection: Selection,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
    /// Read the results of a finished run, from `svclab run --format json`, instead of running labs
    #[arg(long, value_name = "RESULTS.json")]
    pub(crate) from: Option<PathBuf>,
    /// Format of the claims
    #[arg(long, value_enum, default_value_t = ClaimsFormat::Human)]
    pub(crate) format: ClaimsFormat,
    /// Number of cases that run at once [default: 8 per processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Print every case that confirms or refutes a claim
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Format of the claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClaimsFormat {
    /// Text for people.
    Human,
    /// JSON document with the schema of `svclab schema claims`.
    Json,
}
