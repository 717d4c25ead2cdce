//! Arguments of the bench.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::mode::Mode;

/// Break a healthy lab in many ways, and measure which commands of svclab name the cause.
#[derive(Debug, Parser)]
#[command(name = "scripts/bench diagnosis")]
pub(crate) struct Arguments {
    /// Kind of faults by its name or the beginning of its name. Can be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) kind: Vec<String>,

    /// Seed of the choice of nodes, rules and services. Can be repeated
    #[arg(long, value_name = "N", default_values_t = [1, 2, 3])]
    pub(crate) seed: Vec<u64>,

    /// Mode of kube-proxy. Can be repeated [default: all]
    #[arg(long)]
    pub(crate) mode: Vec<Mode>,

    /// Two faults at once in each lab, instead of one
    #[arg(long)]
    pub(crate) pairs: bool,

    /// Commands to measure, separated by commas [default: all]
    #[arg(long, value_name = "COMMANDS", value_delimiter = ',')]
    pub(crate) only: Vec<Command>,

    /// Number of labs that are examined at once
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    pub(crate) jobs: usize,

    /// Maximum time of each command in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) limit: u64,

    /// Kernel of the labs, in the format of `svclab run --kernel`
    #[arg(long, default_value = "auto")]
    pub(crate) kernel: String,

    /// Real kube-proxy, for the kinds whose names begin with `real-proxy`
    #[arg(long, value_name = "PATH")]
    pub(crate) kube_proxy: Option<PathBuf>,

    /// Program to measure
    #[arg(long, value_name = "PATH", env = "SVCLAB", default_value = "svclab")]
    pub(crate) svclab: PathBuf,

    /// Healthy lab, with the line `fault: {none: [], present: []}` among its axes
    #[arg(long, value_name = "LAB.yaml")]
    pub(crate) lab: Option<PathBuf>,

    /// Directory for the labs, dumps and outputs of the commands [default: removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,

    /// Format of the result
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,

    /// Also write the result as JSON to this file, after each lab
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,

    /// Print the kinds of faults, and measure nothing
    #[arg(long)]
    pub(crate) list: bool,
}

impl Arguments {
    pub(crate) fn modes(&self) -> Vec<Mode> {
        if self.mode.is_empty() {
            Mode::ALL.to_vec()
        } else {
            self.mode.clone()
        }
    }

    pub(crate) fn commands(&self) -> Vec<Command> {
        if self.only.is_empty() {
            Command::value_variants().to_vec()
        } else {
            self.only.clone()
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
}

/// Format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables and one line per wrong answer
    Text,
    /// JSON document with every answer
    Json,
}

/// Measured command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Command {
    /// `svclab explain` of the broken lab
    Explain,
    /// `svclab replay` of the dumps of broken nodes
    Replay,
    /// `svclab diff` of healthy and broken dumps
    Diff,
    /// `svclab bisect` of healthy and broken dumps, or of both cases for faults in objects
    Bisect,
    /// `svclab why` of the broken lab
    Why,
    /// `svclab why --dump` of the broken nodes
    WhyDump,
}

impl Command {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Explain => "explain",
            Self::Replay => "replay",
            Self::Diff => "diff",
            Self::Bisect => "bisect",
            Self::Why => "why",
            Self::WhyDump => "why --dump",
        }
    }

    /// Whether the command reads dumps of nodes, at least for some faults.
    pub(crate) const fn reads_dumps(self) -> bool {
        !matches!(self, Self::Explain | Self::Why)
    }

    /// Required share of exact answers in per cent. `explain` and `why` have the same aims if the
    /// fault is only visible in dumps.
    pub(crate) const fn aim(self) -> u32 {
        match self {
            Self::Explain | Self::Replay | Self::Why | Self::WhyDump => 90,
            Self::Diff => 100,
            Self::Bisect => 95,
        }
    }
}
