//! Arguments of `diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Help text of `svclab diff` about dumps and the exit codes.
pub(crate) const DIFF_HELP: &str = "\
A dump is a directory, a common prefix of file names, or one file. Files are named after the \
programs whose output they contain, such as iptables-save, ip6tables-save, ipset-save, nft, \
ipvsadm-Sn, ip-addr, ip-route, ip-6-route, ip-rule, ip-6-rule, sysctl-a. The prefix node-1 \
selects node-1.iptables-save and node-1.ip-addr. Counters, the order of services, hash sizes, \
hardware addresses and similar values are ignored.

Exit code 0: no difference, and all files were compared; 1: differences, or a file was not \
compared; 2: a dump cannot be read.";

#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// First dump; lines only in this dump are marked with -
    #[arg(value_name = "A")]
    pub(crate) first: PathBuf,
    /// Second dump; lines only in this dump are marked with +
    #[arg(value_name = "B")]
    pub(crate) second: PathBuf,
    /// Format of the differences
    #[arg(long, value_enum, default_value_t = DiffFormat::Human)]
    pub(crate) format: DiffFormat,
}

/// Format of the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// Text for people.
    Human,
    /// JSON document with the schema of `svclab schema diff`.
    Json,
}
