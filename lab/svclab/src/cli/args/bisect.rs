//! Finding what makes the difference: `bisect`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::PlaceArguments;

/// What `svclab bisect` compares.
pub const SIDES: &str = "\
GOOD and BAD are two cases of labs with the same nodes, pods and hosts; or two dumps of a \
node, as `svclab replay` takes them: a tarball of `scripts/collect-node`, a directory or a \
file. With --in and --node they are laid over that node of that case: a whole node takes \
its place, and of rules and sets alone those tables and sets that were dumped. Without \
--in all else is made of --objects, and --probe says what is tried.

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
    /// The node whose place both dumps take
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Kubernetes objects, as `kubectl get nodes,pods,services,endpointslices -A -o yaml`
    /// prints them, of which all is made that was not dumped
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with = "over")]
    pub objects: Vec<String>,
    /// The probe that shows what is wrong, or of dumps by themselves what is tried:
    /// `pod/default/client->service/default/web:80`. Without it, the probe of the lab that
    /// tells good and bad apart best
    #[arg(long, value_name = "NAME|FROM->TO")]
    pub probe: Option<String>,
    /// Leave out of dumps what no kernel would take, such as rules that jump to themselves
    #[arg(long)]
    pub lenient: bool,
    /// Read dumps that a lab names outside of its directory, too
    #[arg(long)]
    pub allow_outside: bool,
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
