//! Arguments of `kernel`, `doctor` and `schema`.

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum KernelCommand {
    /// List cached kernels, and kernels that apt can provide
    List,
    /// Download kernels from packages of the distribution into the cache, without installing them
    Fetch {
        /// Versions, such as 6.12, or `all`; default: the newest
        #[arg(value_name = "VERSION")]
        kernels: Vec<String>,
        /// Boot each kernel once, to save that time in the first run
        #[arg(long)]
        boot: bool,
    },
    /// Remove kernels and their snapshots from the cache
    #[command(arg_required_else_help = true)]
    Rm {
        /// Versions, such as 6.12, or whole releases
        #[arg(value_name = "VERSION", conflicts_with = "all")]
        kernels: Vec<String>,
        /// Remove all kernels
        #[arg(long)]
        all: bool,
    },
    /// Print a cache key for the content of guests: the distribution's kernel, QEMU, svclab and the
    /// programs that labs need
    #[command(alias = "key")]
    CacheKey {
        /// Version of the kernel, such as 6.12; default: the newest
        #[arg(value_name = "VERSION")]
        kernel: Option<String>,
    },
    /// Print the path of a cached kernel; without a version, of the cache
    Path {
        /// Version, such as 6.12, or a whole release
        #[arg(value_name = "VERSION")]
        kernel: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Format of the result
    #[arg(long, value_enum, default_value_t = DoctorFormat::Human)]
    pub(crate) format: DoctorFormat,
}

/// Format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DoctorFormat {
    /// Text for people.
    Human,
    /// JSON document with the schema of `svclab schema doctor`.
    Json,
}

/// Format that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaName {
    /// Lab document.
    Lab,
    /// Every document in a lab's file: the lab and Kubernetes objects.
    LabFile,
    /// Output of `run --format json`.
    Results,
    /// Output of `claims --format json`.
    Claims,
    /// Output of `doctor --format json`.
    Doctor,
    /// Output of `diff --format json`.
    Diff,
    /// Output of `explain --format json`.
    Journeys,
    /// File `evidence.json.gz` of `run --report`.
    Evidence,
    /// Output of `ps --format json`.
    Ps,
    /// Output of `verify --format json`.
    Verification,
    /// Output of `why --format json`.
    Why,
    /// Output of `replay --format json`.
    Replay,
    /// Output of `bisect --format json`.
    Bisection,
}
