//! Arguments of `replay`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::args::selection::{KernelArguments, LabSource, parse_wait_duration};

/// Help text of `svclab replay` about dumps and the exit codes.
pub(crate) const REPLAY_HELP: &str = "\
A dump is a tarball of `svclab collect-node`, or a directory or file in the format of \
`svclab diff`. It replaces the node that has its address, or the node that is named before \
it: node-1=DUMP. Everything else is built from the objects: pods with servers, other nodes, \
hosts. Replayed, simulated and omitted parts are printed before the probes.

Exit code 0: built and probed; 1: no verdict, because all connections succeed but omitted parts \
may affect packets, or because --lenient omits a whole table; 2: a dump is invalid, and nothing is \
built; 3: this machine cannot run it; 4: --objects is not a lab, and --probe is missing.";

/// Format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayFormat {
    /// Text for people
    Human,
    /// JSON `svclab/replay/v1` with the schema of `svclab schema replay`
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// Dumps of one node each
    #[arg(required = true, value_name = "[NODE=]DUMP")]
    pub(crate) dumps: Vec<String>,
    /// Kubernetes objects in the format of `kubectl get nodes,pods,services,endpointslices -A -o
    /// yaml`; or a lab, LAB/CASE, whose nodes the dumps replace
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub(crate) objects: Vec<String>,
    #[command(flatten)]
    pub(crate) source: LabSource,
    /// Probe to run, such as `pod/default/client,service/default/web:80`; default: the probes of
    /// the lab. Can be repeated. FROM->TO and FROM=>TO need quotes in a shell
    #[arg(long, value_name = "FROM,TO", value_parser = parse_source_and_target)]
    pub(crate) probe: Vec<(String, String)>,
    /// Write a lab with the dumps and objects that expects the results of this replay
    #[arg(long, value_name = "LAB.yaml")]
    pub(crate) write: Option<PathBuf>,
    /// Omit unreadable files, invalid parts such as rules that jump to themselves, and parts that
    /// this kernel refuses; each is reported
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Also read dumps and objects that a lab names outside its own directory
    #[arg(long)]
    pub(crate) allow_outside: bool,
    /// Maximum wait for an answer
    #[arg(long = "max-wait", alias = "patience", default_value = "3500ms", value_parser = parse_wait_duration, value_name = "DURATION")]
    pub(crate) max_wait: Duration,
    /// Format of the result
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) format: ReplayFormat,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
    /// Also write a report with the packets of each case. A file that ends in .html has everything
    /// in one page. A directory has the page index.html, the answer, and files of each case
    #[arg(long, value_name = "DIR|FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print every packet, every namespace and every rule
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Separators of source and target. Only the last one needs no quotes in a shell.
const SEPARATORS: [&str; 3] = ["->", "=>", ","];

/// Parses the source and target of a probe: `FROM,TO`, `FROM->TO` or `FROM=>TO`.
///
/// # Errors
///
/// Returns the expected format if the text has no separator, or if a side is empty.
pub(crate) fn parse_source_and_target(text: &str) -> Result<(String, String), String> {
    let parts = SEPARATORS
        .iter()
        .find_map(|separator| text.split_once(separator))
        .map(|(from, to)| (from.trim(), to.trim()));
    match parts {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok((from.to_owned(), to.to_owned()))
        }
        None if text.ends_with(['-', '=']) => Err(
            "the shell read `>` as a redirection to a file; write FROM,TO, or quote FROM->TO"
                .to_owned(),
        ),
        _ => Err("expected FROM,TO, such as pod/default/client,10.96.0.10:80".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_and_target_have_three_separators() {
        let probe = Ok(("pod/default/a".to_owned(), "[fd00::1]:80".to_owned()));
        for text in [
            "pod/default/a,[fd00::1]:80",
            "pod/default/a->[fd00::1]:80",
            "pod/default/a => [fd00::1]:80",
        ] {
            assert_eq!(parse_source_and_target(text), probe, "{text}");
        }
        let errors = ["pod/default/a-", "pod/default/a=", "pod/default/a", ",b"]
            .map(|text| parse_source_and_target(text).expect_err(text));
        insta::assert_snapshot!(errors.join("\n"));
    }
}
