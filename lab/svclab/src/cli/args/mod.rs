//! Arguments of the command line.

mod drafts;
mod dumps;
mod effect;
mod examples;
mod finished;
mod labs;
mod machine;
mod rules;
mod run;
mod running;
mod selection;
mod shard;
mod verify;

use std::path::PathBuf;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

pub(crate) use drafts::{ImportArguments, ModeArgument, NewArguments};
pub(crate) use dumps::{
    BisectArguments, BisectFormat, DiffArguments, DiffFormat, RedactArguments, ReplayArguments,
    ReplayFormat, parse_source_and_target,
};
pub(crate) use finished::{MergeArguments, ReportArguments};
pub(crate) use labs::{LabsArguments, LabsCommand, ListArguments};
pub(crate) use machine::{DoctorArguments, DoctorFormat, KernelCommand, SchemaName};
pub(crate) use rules::RulesArguments;
pub(crate) use run::{
    ClaimsArguments, ClaimsFormat, ExplainArguments, Explanation, GraphArguments, PictureFormat,
    PlanArguments, RunArguments, WhyArguments, WhyFormat,
};
pub(crate) use running::{
    CaptureArguments, DownArguments, ExecArguments, ProbeArguments, PsArguments, PsFormat,
    ShellArguments, UpArguments,
};
pub(crate) use selection::{KernelArguments, LabSource, Selection, shell_word};
pub(crate) use shard::Shard;
pub(crate) use verify::{ReferenceArgument, VerifyArguments, VerifyFormat};

use drafts::{IMPORT_HELP, NEW_HELP};
use dumps::{BISECT_HELP, DIFF_HELP, REDACT_HELP, REPLAY_HELP};
use finished::{MERGE_HELP, REPORT_HELP};
use labs::{LABS_HELP, LIST_HELP};
use running::{CAPTURE_HELP, EXEC_HELP, UP_HELP};

/// Version of the program, with the commit and its date.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SVCLAB_COMMIT"), ")");

/// Lab for Kubernetes Service networking: builds clusters from real namespaces and rules, sends
/// real packets, and explains where they went
#[derive(Debug, Parser)]
#[command(
    name = "svclab",
    version = VERSION,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    /// Whether to print colours. `auto` prints them on a terminal, unless `NO_COLOR` is set, and
    /// always if `CLICOLOR_FORCE` is set
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: ColorMode,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Parses the arguments of the process. The help of each command has examples.
    ///
    /// # Errors
    ///
    /// When the arguments are invalid, or request help.
    pub(crate) fn parse_process() -> Result<Self, clap::Error> {
        let mut command = command();
        let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
        effect::check(&mut command, &matches)?;
        Self::from_arg_matches_mut(&mut matches)
    }
}

/// Returns the command line with the examples of its commands.
pub(crate) fn command() -> clap::Command {
    examples::with_examples(Arguments::command())
}

/// Whether to print colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColorMode {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build labs, run their probes and compare the results with the expectations
    Run(RunArguments),
    /// Run cases, or the probes of a running lab, and explain where the packets went and why
    Explain(ExplainArguments),
    /// Find changes that fix failing connections of a case: flags, fields, sysctls and rules, each
    /// tried in a copy of the lab
    Why(WhyArguments),
    /// Print the plan of a case, namespace by namespace
    Plan(PlanArguments),
    /// Draw the topology of a case, with the packets of a probe if --probe is given
    Graph(GraphArguments),
    /// Build one case and keep it running until Ctrl-C or `svclab down`
    #[command(after_help = UP_HELP)]
    Up(UpArguments),
    /// List running labs
    Ps(PsArguments),
    /// Run a program in a namespace of a running lab
    #[command(after_help = EXEC_HELP)]
    Exec(ExecArguments),
    /// Run a shell in a namespace of a running lab
    #[command(after_help = EXEC_HELP)]
    Shell(ShellArguments),
    /// Run one probe in a running lab and print its result
    Probe(ProbeArguments),
    /// Write packets of a running lab to standard output as pcapng, as they arrive
    #[command(after_help = CAPTURE_HELP)]
    Capture(CaptureArguments),
    /// Stop a running lab
    Down(DownArguments),
    /// Print the rules that a version of kube-proxy writes on a node for a cluster's objects
    Rules(Box<RulesArguments>),
    /// Run the labs with claims and print the status of each claim
    Claims(ClaimsArguments),
    /// Run every lab with two kube-proxies, or with a kube-proxy and the rules that svclab
    /// generates, and print the flows that differ
    Verify(Box<VerifyArguments>),
    /// Find the difference that breaks a lab by trials between a good and a bad one, down to the
    /// rule, set entry, route, sysctl or address
    #[command(after_help = BISECT_HELP)]
    Bisect(Box<BisectArguments>),
    /// Compare the dumps of two nodes, or two files of them, by meaning
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArguments),
    /// Build dumped nodes in a lab, send real packets and explain where they went
    #[command(after_help = REPLAY_HELP)]
    Replay(Box<ReplayArguments>),
    /// Rename addresses and names of Kubernetes objects, like `collect-node --redact-key` in dumps
    #[command(after_help = REDACT_HELP)]
    Redact(RedactArguments),
    /// Print the script that writes the dump of a node. The script needs a POSIX shell and the
    /// programs of the node, but not svclab
    CollectNode,
    /// Make one page about finished runs, such as the shards of a CI job, and compare them with
    /// earlier runs
    #[command(after_help = REPORT_HELP)]
    Report(ReportArguments),
    /// Merge the results of the shards of a run, or of runs with different cases
    #[command(after_help = MERGE_HELP)]
    Merge(MergeArguments),
    /// Check which features this machine supports and how to enable the rest
    Doctor(DoctorArguments),
    /// List, fetch and remove kernels for guests
    Kernel {
        #[command(subcommand)]
        command: KernelCommand,
    },
    /// Write a new lab with comments, which passes
    #[command(after_help = NEW_HELP)]
    New(NewArguments),
    /// Write a lab from the objects of a cluster, with a probe for each reachable port
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArguments),
    /// List the cases that a selection selects, one per line
    #[command(after_help = LIST_HELP)]
    List(ListArguments),
    /// List labs, or print one
    #[command(after_help = LABS_HELP)]
    Labs(LabsArguments),
    /// Print the JSON schema of a format
    Schema {
        /// Name of the format
        #[arg(value_enum, default_value_t = SchemaName::Lab)]
        format: SchemaName,
    },
    /// Print a completion script for a shell
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands to a directory
    Man {
        /// Directory; created if it is missing
        directory: PathBuf,
    },
}
