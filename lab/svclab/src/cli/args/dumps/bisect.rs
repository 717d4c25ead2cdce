//! Arguments of `bisect`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::args::{KernelArguments, LabSource};

/// Help text of `svclab bisect` about GOOD and BAD and the exit codes.
pub(crate) const BISECT_HELP: &str = "\
GOOD and BAD are two cases of labs with the same nodes, pods and hosts, or two dumps of a \
node in the format of `svclab replay`: a tarball of `svclab collect-node`, a directory or a \
file. With --case and --node, the dumps replace that node of that case. A dump of only rules \
and sets replaces only the dumped tables and sets. Without --case, everything else is built \
from --objects, and --probe selects the probe.

Exit code 0: found; 1: not found, but good and bad differ in parts that no trial includes, or \
--lenient omits a whole table; 2: the input is invalid, or good and bad behave alike; 3: this \
machine cannot run it.";

#[derive(Debug, Args)]
pub(crate) struct BisectArguments {
    /// The passing side: LAB/CASE or a dump
    #[arg(long, value_name = "GOOD")]
    pub(crate) good: String,
    /// The failing side: LAB/CASE or a dump
    #[arg(long, value_name = "BAD")]
    pub(crate) bad: String,
    #[command(flatten)]
    pub(crate) source: LabSource,
    /// Case in which both dumps replace the node
    #[arg(long, alias = "in", value_name = "LAB/CASE", requires = "node")]
    pub(crate) case: Option<String>,
    /// Node that both dumps replace
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Kubernetes objects for everything outside the dumps, in the format of `kubectl get
    /// nodes,pods,services,endpointslices -A -o yaml`
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with = "case")]
    pub(crate) objects: Vec<String>,
    /// Probe that fails on the bad side; for two dumps, a probe in the form
    /// `pod/default/client,service/default/web:80`. By default, the lab's probe that separates
    /// good from bad best
    #[arg(long, value_name = "NAME|FROM,TO")]
    pub(crate) probe: Option<String>,
    /// Omit invalid parts of dumps, such as rules that jump to themselves
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Also read dumps and objects that a lab names outside its own directory
    #[arg(long)]
    pub(crate) allow_outside: bool,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
    /// Format of the result
    #[arg(long, value_enum, default_value_t = BisectFormat::Human)]
    pub(crate) format: BisectFormat,
    /// Also write the result and the search, trial by trial: to a file that ends in .html, one page; to a directory,
    /// the page index.html, answer.txt and answer.json
    #[arg(long, value_name = "DIR|FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print each trial to standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BisectFormat {
    /// Text for people.
    Human,
    /// JSON document with the schema of `svclab schema bisection`.
    Json,
}
