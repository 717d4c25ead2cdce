//! What runs cases: `run`, `explain`, `plan` and `claims`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{PlaceArguments, Selection};
use svclab_report::Format;

#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
    /// Write the results to a file as well, in another format: junit=FILE. As often
    /// as wanted; directories are made
    #[arg(long, value_name = "FORMAT=FILE", value_parser = written)]
    pub write: Vec<Written>,
    /// Watch everything, and write what was seen of each case into a directory: a
    /// capture with comments, the evidence, what is to be said of it; and `JUnit` XML
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// How many cases stand at once [default: eight for each processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Leave failed cases standing until Ctrl-C, and say how to enter them
    #[arg(long)]
    pub keep_on_failure: bool,
    /// Compare this machine's network, modules, processes, mounts and more before
    /// the run and after it, also when it is interrupted; a difference is printed and
    /// ends with exit code 1
    #[arg(long)]
    pub certify: bool,
    /// Say more: every claim that a case bears on
    #[arg(short, long)]
    pub verbose: bool,
}

/// A file that a run is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// In which format.
    pub format: Format,
    /// Where.
    pub file: PathBuf,
}

/// A format and a file: `junit=results/junit.xml`.
fn written(text: &str) -> Result<Written, String> {
    let (format, file) = text
        .split_once('=')
        .filter(|(_, file)| !file.is_empty())
        .ok_or("write a format and a file, as in junit=results/junit.xml")?;
    Ok(Written {
        format: Format::from_str(format, false)
            .map_err(|_| format!("`{format}` is no format; write human, json, junit or github"))?,
        file: file.into(),
    })
}

#[derive(Debug, Args)]
pub struct ExplainArguments {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Build nothing: try what the lab tries in one that stands, by `svclab up`, as it
    /// stands now. Without a name, the only one there is
    #[arg(long)]
    pub standing: bool,
    /// Only the connections of this probe
    #[arg(long, value_name = "NAME")]
    pub probe: Option<String>,
    /// As text for people, or as data
    #[arg(long, value_enum, default_value_t = Explanation::Human)]
    pub format: Explanation,
    /// Every packet, every namespace and every rule
    #[arg(short, long)]
    pub verbose: bool,
}

/// What `svclab why` takes.
#[derive(Debug, Args)]
pub struct WhyArguments {
    /// The cases: NAME, NAME/axis=value,…, or a path to a lab's file
    #[arg(value_name = "LAB[/CASE]", required = true)]
    pub names: Vec<String>,
    /// A dump that takes the place of a node of the cases, as `svclab replay` takes it
    #[arg(long, value_name = "[NODE=]DUMP")]
    pub dump: Vec<String>,
    /// Leave out of dumps what no kernel would take
    #[arg(long, requires = "dump")]
    pub lenient: bool,
    /// Read dumps that a lab names outside of its directory, too
    #[arg(long)]
    pub allow_outside: bool,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Only the connections of this probe
    #[arg(long, value_name = "NAME")]
    pub probe: Option<String>,
    /// As text for people, or as data
    #[arg(long, value_enum, default_value_t = WhyFormat::Human)]
    pub format: WhyFormat,
    /// What was tried to no avail, too
    #[arg(short, long)]
    pub verbose: bool,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WhyFormat {
    /// Text for people
    Human,
    /// `svclab/why/v1`; its schema is printed by `svclab schema why`
    Json,
}

/// How journeys are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Explanation {
    /// Text for people
    Human,
    /// `svclab/journeys/v1`; its schema is printed by `svclab schema journeys`
    Json,
}

#[derive(Debug, Args)]
pub struct PlanArguments {
    #[command(flatten)]
    pub selection: Selection,
}

#[derive(Debug, Args)]
pub struct ClaimsArguments {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Read a finished run, as `svclab run --format json` printed it, instead of
    /// running anything
    #[arg(long, value_name = "RESULTS.json")]
    pub from: Option<PathBuf>,
    /// How claims are printed
    #[arg(long, value_enum, default_value_t = ClaimsFormat::Human)]
    pub format: ClaimsFormat,
    /// How many cases stand at once [default: eight for each processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Name every case that speaks of a claim
    #[arg(short, long)]
    pub verbose: bool,
}

/// How claims are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClaimsFormat {
    /// For people.
    Human,
    /// One document, described by `svclab schema claims`.
    Json,
}
