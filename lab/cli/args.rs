//! What users type.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::kernel::Choice;
use crate::report::Format;

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
    /// Show, namespace by namespace, what a case would apply
    Plan(PlanArguments),
    /// Run the labs that speak of claims, and print what became of each claim
    Claims(ClaimsArguments),
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
    /// What svclab starts of itself to work in namespaces of its own
    #[command(hide = true)]
    Agent {
        /// Be the first process of a guest
        #[arg(long)]
        init: bool,
        /// Keep what IPVS takes of the rights of the machine's own root
        #[arg(long, conflicts_with = "init")]
        machine: bool,
        /// Have a program at hand that is not the system's
        #[arg(long = "program", value_name = "PATH", conflicts_with = "init")]
        programs: Vec<PathBuf>,
    },
}

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

/// How long probes wait that say nothing of it, unless a user says otherwise:
/// two retransmissions.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Which cases, and how they are prepared.
#[derive(Debug, Args)]
pub struct Selection {
    /// Labs or cases: NAME, NAME/axis=value,…, or a path to a lab's file. Without
    /// any, every lab directly in the directory of labs
    #[arg(value_name = "LAB[/CASE]")]
    pub names: Vec<String>,
    /// How long an answer is waited for by probes that say nothing of it
    /// themselves
    #[arg(long, default_value = "3s", value_parser = patience, value_name = "DURATION")]
    pub patience: Duration,
}

/// Where cases run.
#[derive(Debug, Args)]
pub struct PlaceArguments {
    /// The kernel that cases run in: `host`; a guest's, by version (6.12) or by
    /// the path of its file; `auto`, the host where it can and else the newest
    /// guest; `all`, the host and a guest of every version there is
    #[arg(long, default_value_t, value_name = "KERNEL", env = "SVCLAB_KERNEL")]
    pub kernel: Choice,
    /// The directory of the modules of the kernel whose path is given
    #[arg(long, value_name = "DIR")]
    pub modules: Option<PathBuf>,
}

impl PlaceArguments {
    /// Both together.
    pub fn choice(&self) -> Choice {
        match &self.kernel {
            Choice::Own { kernel, .. } => Choice::Own {
                kernel: kernel.clone(),
                modules: self.modules.clone(),
            },
            other => other.clone(),
        }
    }

    /// The words that choose the same again; with a space before each.
    pub fn again(&self) -> String {
        let kernel = (self.kernel != Choice::Auto).then(|| format!(" --kernel {}", self.kernel));
        let modules = self.modules.as_ref();
        let modules = modules.map(|modules| format!(" --modules {}", modules.display()));
        [kernel, modules].into_iter().flatten().collect()
    }
}

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
    /// How many cases stand at once [default: eight for each processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Leave failed cases standing until Ctrl-C, and say how to enter them
    #[arg(long)]
    pub keep_on_failure: bool,
    /// Compare this machine's network, modules, processes, mounts and more before
    /// the run and after it; a difference is printed and ends with exit code 1
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

/// A duration such as `3s`, `500ms` or `1m`; at least a millisecond.
fn patience(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write for example 3s or 500ms"))?;
    if duration < Duration::from_millis(1) || duration > Duration::from_hours(1) {
        return Err("it must be between 1ms and 1h".to_owned());
    }
    Ok(duration)
}
