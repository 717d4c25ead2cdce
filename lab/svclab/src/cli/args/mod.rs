//! What users type.

mod bisect;
mod diff;
mod machine;
mod replay;
mod rules;
mod run;
mod selection;
mod standing;
mod verify;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use bisect::{BisectArguments, BisectFormat};
pub use diff::{DiffArguments, DiffFormat};
pub use machine::{Described, DoctorArguments, DoctorFormat, KernelCommand};
pub use replay::{ReplayArguments, ReplayFormat, from_to};
pub use rules::RulesArguments;
pub use run::{
    ClaimsArguments, ClaimsFormat, ExplainArguments, Explanation, PlanArguments, RunArguments,
    WhyArguments, WhyFormat,
};
pub use selection::{PlaceArguments, Selection, word};
pub use standing::{
    CaptureArguments, DownArguments, ExecArguments, ProbeArguments, PsArguments, PsFormat,
    ShellArguments, UpArguments,
};

pub use verify::{AgainstWord, VerifyArguments, VerifyFormat};

use bisect::SIDES;
use diff::DUMPS;
use replay::REPLAYS;
use standing::{CAPTURES, GUESTS, STATUS};

/// A lab bench for Kubernetes Service networking: real namespaces, real rules,
/// real packets, and what became of them.
#[derive(Debug, Parser)]
#[command(
    name = "svclab",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub struct Common {
    /// Where labs are looked for by name
    #[arg(
        long,
        global = true,
        env = "SVCLAB_TOPOLOGIES",
        default_value = "topologies",
        value_name = "DIR"
    )]
    pub topologies: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build labs, run their probes, and say whether all came out as expected
    Run(RunArguments),
    /// Run cases, or what a lab that stands tries, and tell where the packets went, what
    /// became of them and why
    Explain(ExplainArguments),
    /// Find what to change where connections of a case are not made: flags, fields,
    /// settings and rules, each tried in a copy of the lab
    Why(WhyArguments),
    /// Show, namespace by namespace, what a case would apply
    Plan(PlanArguments),
    /// Build one case and let it stand, until Ctrl-C or `svclab down`
    #[command(after_help = GUESTS)]
    Up(UpArguments),
    /// List the labs that stand
    Ps(PsArguments),
    /// Run a program in a namespace of a lab that stands
    #[command(after_help = STATUS)]
    Exec(ExecArguments),
    /// Run a shell in a namespace of a lab that stands
    #[command(after_help = STATUS)]
    Shell(ShellArguments),
    /// Try one thing in a lab that stands, and say what became of it
    Probe(ProbeArguments),
    /// Write the packets of a lab that stands to standard output, as pcapng, while
    /// they come
    #[command(after_help = CAPTURES)]
    Capture(CaptureArguments),
    /// Take a lab away that stands
    Down(DownArguments),
    /// Print what kube-proxy of a version writes on a node for a cluster's objects
    Rules(Box<RulesArguments>),
    /// Run the labs that speak of claims, and print what became of each claim
    Claims(ClaimsArguments),
    /// Run every lab with two kube-proxies, or with one and the rules that svclab
    /// generates, and print which flows go elsewhere
    Verify(Box<VerifyArguments>),
    /// Find by trials what makes the difference between a lab that is well and one that is
    /// not, down to the rule, set entry, route, setting or address
    #[command(after_help = SIDES)]
    Bisect(Box<BisectArguments>),
    /// Compare two nodes' dumps, or two files of them, by what they mean
    #[command(after_help = DUMPS)]
    Diff(DiffArguments),
    /// Build dumped nodes again, with real packets, and tell where those went
    #[command(after_help = REPLAYS)]
    Replay(Box<ReplayArguments>),
    /// Try what this machine can run, and say what would change it
    Doctor(DoctorArguments),
    /// List, fetch and remove the kernels that guests boot
    Kernel {
        #[command(subcommand)]
        command: KernelCommand,
    },
    /// Print the JSON schema of a format
    Schema {
        /// Which format
        #[arg(value_enum, default_value_t = Described::Lab)]
        of: Described,
    },
    /// Print what a shell needs to complete svclab's arguments
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}
