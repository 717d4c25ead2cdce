//! What two nodes hold: `diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What `svclab diff` reads.
pub const DUMPS: &str = "\
A dump is a directory with files named after the programs whose output they hold, \
such as iptables-save, ip6tables-save, ipset-save, nft, ipvsadm-Sn, ip-addr, ip-route, \
ip-6-route, ip-rule, ip-6-rule, sysctl-a; the beginning that such names share \
(node-1 for node-1.iptables-save and node-1.ip-addr); or one file. Counters, the \
order of services, hash sizes, hardware addresses and the like do not count.

Exit code 0: no difference; 1: there is one; 2: a dump cannot be read.";

#[derive(Debug, Args)]
pub struct DiffArguments {
    /// The first dump: what only it has is marked with -
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// The second dump: what only it has is marked with +
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// How differences are printed
    #[arg(long, value_enum, default_value_t = DiffFormat::Human)]
    pub format: DiffFormat,
}

/// How differences are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// For people.
    Human,
    /// One document, described by `svclab schema diff`.
    Json,
}
