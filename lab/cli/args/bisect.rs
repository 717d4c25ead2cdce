//! Finding what makes the difference: `bisect`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::PlaceArguments;

/// What `svclab bisect` compares.
pub const SIDES: &str = "\
GOOD and BAD are two cases of labs with the same nodes, pods and hosts; or, with --in \
and --node, two dumps of one node of that case: what `iptables-save` prints in a file, or \
a directory with iptables-save, ip6tables-save and ipset-save. Tables and sets that a dump \
has stand in place of the lab's; all else is as in the lab.

Exit code 0: found; 2: the input is wrong, or good and bad behave alike; 3: this machine \
cannot run it.";

#[derive(Debug, Args)]
pub struct BisectArguments {
    /// What is well: LAB/CASE, or a dump
    #[arg(long, value_name = "GOOD")]
    pub good: String,
    /// What is not
    #[arg(long, value_name = "BAD")]
    pub bad: String,
    /// The case over which both are laid
    #[arg(long = "in", value_name = "LAB/CASE", requires = "node")]
    pub over: Option<String>,
    /// The node of that case whose rules they are
    #[arg(long, value_name = "NODE", requires = "over")]
    pub node: Option<String>,
    /// The probe that shows what is wrong. Without it, the one that tells good and bad
    /// apart best
    #[arg(long, value_name = "NAME")]
    pub probe: Option<String>,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = BisectFormat::Human)]
    pub format: BisectFormat,
    /// Write the answer and the narrowing, trial by trial, into this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Tell of each trial on standard error while it goes on
    #[arg(short, long)]
    pub verbose: bool,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BisectFormat {
    /// For people.
    Human,
    /// One document, described by `svclab schema bisection`.
    Json,
}
