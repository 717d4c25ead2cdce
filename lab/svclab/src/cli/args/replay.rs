//! What was dumped of nodes, built again: `replay`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::selection::{PlaceArguments, patience};

/// What `svclab replay` does with what it is given.
pub const REPLAYS: &str = "\
A dump is a tarball of `scripts/collect-node`, a directory or a file as `svclab diff` \
reads them. It becomes the node whose address it has, or the one that is named before \
it: node-1=DUMP. Everything else is made of the objects: pods with servers, other nodes, \
hosts. What is real, what stands in and what is left out is told before the probes.

Exit code 0: it was built and tried; 2: something is wrong with a dump, and nothing is \
built; 3: this machine cannot run it; 4: the objects are no lab, and no --probe says what \
to try.";

/// How what was replayed is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReplayFormat {
    /// Text for people
    Human,
    /// `svclab/replay/v1`; its schema is printed by `svclab schema replay`
    Json,
}

#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Dumps, each of one node
    #[arg(required = true, value_name = "[NODE=]DUMP")]
    pub dumps: Vec<String>,
    /// Kubernetes objects, as `kubectl get nodes,pods,services,endpointslices -A -o yaml`
    /// prints them; or a lab, LAB/CASE, whose nodes the dumps take the place of
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub objects: Vec<String>,
    /// What to try: `pod/default/client->service/default/web:80`. Without it, what the lab
    /// tries
    #[arg(long, value_name = "FROM->TO", value_parser = from_to)]
    pub probe: Vec<(String, String)>,
    /// Write a lab of it, to keep and to run again, that expects what was seen
    #[arg(long, value_name = "LAB.yaml")]
    pub write: Option<PathBuf>,
    /// Leave out what cannot be read, what no kernel would take, such as rules that jump to
    /// themselves, and what this kernel refuses; each is told
    #[arg(long)]
    pub lenient: bool,
    /// Read dumps that a lab names outside of its directory, too
    #[arg(long)]
    pub allow_outside: bool,
    /// How long an answer is waited for
    #[arg(long, default_value = "3s", value_parser = patience, value_name = "DURATION")]
    pub patience: Duration,
    /// What is printed
    #[arg(long, value_enum, default_value = "human")]
    pub format: ReplayFormat,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Every packet, every namespace and every rule
    #[arg(short, long)]
    pub verbose: bool,
}

/// Who calls and who is called: `FROM->TO`.
///
/// # Errors
///
/// How it is written.
pub fn from_to(text: &str) -> Result<(String, String), String> {
    let parts = text
        .split_once("->")
        .map(|(from, to)| (from.trim(), to.trim()));
    match parts {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok((from.to_owned(), to.to_owned()))
        }
        _ => Err("write who calls and who is called: pod/default/client->10.96.0.10:80".to_owned()),
    }
}
