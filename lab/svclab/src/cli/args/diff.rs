//! Arguments of `diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Help text of `svclab diff` about dumps and the exit codes.
pub const DIFF_HELP: &str = "\
A dump is a directory with files named after the programs whose output they hold, \
such as iptables-save, ip6tables-save, ipset-save, nft, ipvsadm-Sn, ip-addr, ip-route, \
ip-6-route, ip-rule, ip-6-rule, sysctl-a; the beginning that such names share \
(node-1 for node-1.iptables-save and node-1.ip-addr); or one file. Counters, the \
order of services, hash sizes, hardware addresses and the like do not count.

Exit code 0: no difference; 1: there is one; 2: a dump cannot be read.";

#[derive(Debug, Args)]
pub struct DiffArguments {
    /// First dump; lines only in this dump are marked with -
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// Second dump; lines only in this dump are marked with +
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// Format of the differences
    #[arg(long, value_enum, default_value_t = DiffFormat::Human)]
    pub format: DiffFormat,
}

/// Format of the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// Text for people.
    Human,
    /// JSON document with the schema of `svclab schema diff`.
    Json,
}
