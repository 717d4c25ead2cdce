//! Arguments of `verify`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::rules::parse_mode;
use super::{KernelArguments, LabSource};
use svclab_rules::kube_proxy::{Mode, Version, sync_timeout};

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Labs or cases, in the format of `run`; default: the table of flows (`conformance` in the
    /// directory of labs) and all labs
    #[arg(value_name = "LAB[/CASE]")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) source: LabSource,
    /// Path of the kube-proxy to verify
    #[arg(long, value_name = "PATH")]
    pub(crate) kube_proxy: PathBuf,
    /// Maximum time for a kube-proxy to write its rules, at the start and after each step: 1s to
    /// 1h, such as 5m [default: the lab's value, otherwise 2m]
    #[arg(long, value_name = "DURATION", value_parser = sync_timeout)]
    pub(crate) kube_proxy_timeout: Option<Duration>,
    /// Reference for the comparison: the path of another kube-proxy, with a slash, or a version
    /// whose rules svclab generates, such as v1.36.2 [default: the version of --kube-proxy]
    #[arg(long, value_name = "PATH|VERSION", value_parser = parse_reference)]
    pub(crate) against: Option<ReferenceArgument>,
    /// Also read dumps and objects that a lab names outside its own directory
    #[arg(long)]
    pub(crate) allow_outside: bool,
    /// Only run cases of this proxy mode: `iptables`, `ipvs` or `nftables`. Can be repeated
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    pub(crate) proxy_mode: Vec<Mode>,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
    /// Format of the differences
    #[arg(long, value_enum, default_value_t = VerifyFormat::Human)]
    pub(crate) format: VerifyFormat,
    /// Number of cases that run at once [default: 8 per processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Also write the answer as a report: to a file that ends in .html, one page; to a directory,
    /// the page index.html, answer.txt and answer.json
    #[arg(long, value_name = "DIR|FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Also print differences of the rules that change no flow, and the time at which traffic moved
    /// after each step
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Reference for the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReferenceArgument {
    /// Path of another kube-proxy.
    Program(PathBuf),
    /// Version whose rules svclab generates.
    Version(Version),
}

/// Format of the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyFormat {
    /// Text for people.
    Human,
    /// JSON document with the schema of `svclab schema verification`.
    Json,
}

fn parse_reference(text: &str) -> Result<ReferenceArgument, String> {
    if text.contains('/') {
        return Ok(ReferenceArgument::Program(text.into()));
    }
    text.parse()
        .map(ReferenceArgument::Version)
        .map_err(|error| format!("{error}; the path of a kube-proxy contains a slash: ./{text}"))
}
