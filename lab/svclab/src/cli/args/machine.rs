//! What this machine can do, and what svclab says of itself: `kernel`, `doctor` and
//! `schema`.

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum KernelCommand {
    /// List the kernels that are kept, and those that apt could get
    List,
    /// Fetch kernels from the distribution's packages; nothing is installed
    Fetch {
        /// Which: a version such as 6.12, or `all`. Without any, the newest
        #[arg(value_name = "VERSION")]
        kernels: Vec<String>,
        /// Boot each once, so that the first run need not
        #[arg(long)]
        boot: bool,
    },
    /// Remove kernels and their snapshots
    #[command(arg_required_else_help = true)]
    Rm {
        /// Which: a version such as 6.12, or a whole release
        #[arg(value_name = "VERSION", conflicts_with = "all")]
        kernels: Vec<String>,
        /// All of them
        #[arg(long)]
        all: bool,
    },
    /// Print what names all that guests are made of here: the distribution's kernel,
    /// QEMU, svclab and the programs that labs need. For a cache's key
    Key {
        /// Which kernel: a version such as 6.12. Without any, the newest
        #[arg(value_name = "VERSION")]
        kernel: Option<String>,
    },
    /// Print where a kernel that is kept lies; without a version, where all do
    Path {
        /// Which: a version such as 6.12, or a whole release
        #[arg(value_name = "VERSION")]
        kernel: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// How what was found is printed
    #[arg(long, value_enum, default_value_t = DoctorFormat::Human)]
    pub format: DoctorFormat,
}

/// How what was found is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DoctorFormat {
    /// For people.
    Human,
    /// One document, described by `svclab schema doctor`.
    Json,
}

/// What a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Described {
    /// The lab document.
    Lab,
    /// What `run --format json` prints.
    Results,
    /// What `claims --format json` prints.
    Claims,
    /// What `doctor --format json` prints.
    Doctor,
    /// What `diff --format json` prints.
    Diff,
    /// What `explain --format json` prints.
    Journeys,
    /// The `evidence.json` of `run --report`.
    Evidence,
    /// What `ps --format json` prints.
    Ps,
    /// What `verify --format json` prints.
    Verification,
    /// What `why --format json` prints.
    Why,
    /// What `replay --format json` prints.
    Replay,
    /// What `bisect --format json` prints.
    Bisection,
}
