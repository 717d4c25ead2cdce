//! Comparing kube-proxies: `verify`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::PlaceArguments;
use super::rules::mode;
use svclab_rules::kube_proxy::{Mode, Version, sync_timeout};

#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// Labs or cases, as `run` takes them. Without any, the table of flows
    /// (`conformance` in the directory of labs) and every lab
    #[arg(value_name = "LAB[/CASE]")]
    pub names: Vec<String>,
    /// The kube-proxy that is compared
    #[arg(long, value_name = "PATH")]
    pub kube_proxy: PathBuf,
    /// How long a kube-proxy may take to write its rules, at first and after each step,
    /// such as 5m, from 1s to 1h [default: what the lab says, or 2m]
    #[arg(long, value_name = "DURATION", value_parser = sync_timeout)]
    pub kube_proxy_timeout: Option<Duration>,
    /// What it is compared against: another kube-proxy, by a path with a slash in it; or
    /// the rules that svclab generates for a version, such as v1.36.2 [default: those of
    /// its own version]
    #[arg(long, value_name = "PATH|VERSION", value_parser = against)]
    pub against: Option<AgainstWord>,
    /// Read dumps that a lab names outside of its directory, too
    #[arg(long)]
    pub allow_outside: bool,
    /// Only cases of this mode: `iptables`, `ipvs` or `nftables`. As often as wanted
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub proxy_mode: Vec<Mode>,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// How what differs is printed
    #[arg(long, value_enum, default_value_t = VerifyFormat::Human)]
    pub format: VerifyFormat,
    /// How many cases stand at once [default: eight for each processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Print in what the rules differ, too, whether or not a flow does, and when traffic
    /// moved after each step
    #[arg(short, long)]
    pub verbose: bool,
}

/// What is compared against, as it is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgainstWord {
    /// A program.
    Program(PathBuf),
    /// A version's rules.
    Version(Version),
}

/// How what differs is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VerifyFormat {
    /// For people.
    Human,
    /// One document, described by `svclab schema verification`.
    Json,
}

fn against(text: &str) -> Result<AgainstWord, String> {
    if text.contains('/') {
        return Ok(AgainstWord::Program(text.into()));
    }
    text.parse().map(AgainstWord::Version).map_err(|error| {
        format!("{error}; a kube-proxy is given by a path with a slash in it, ./{text}")
    })
}
