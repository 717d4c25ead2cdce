//! What is done with labs that stand.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::selection::patience;
use super::{Explanation, PlaceArguments};
use svclab_model::plan::Protocol;
use svclab_rules::kube_proxy::sync_timeout;

/// What a guest has for those who look around in it.
pub const GUESTS: &str = "\
In a guest, `exec` and `shell` find these of this machine's programs, with their \
libraries: sh, bash, cat, ls, grep, head, tail, wc, sleep, seq, tr, cut, sort, sed, env, \
true, false, dd, ip, ss, tc, bridge, sysctl, ping, nc, curl, tcpdump, conntrack, ipvsadm, \
iptables and ip6tables, each also as -nft and -legacy, and those that load rules. The first lab in a guest boots it, which takes some seconds.";

/// How programs in labs end.
pub const STATUS: &str = "\
Ends with the program's own status, with 128 and its number if a signal ended it, with \
127 if there is no such program, 126 if it cannot be started, and 125 if svclab could not \
bring it to that.";

/// How captures are used.
pub const CAPTURES: &str = "\
Examples:
  svclab capture node-1 | wireshark -k -i -
  svclab capture node-1/eth0 pod/default/client > ticket.pcapng
  svclab capture | tcpdump -n -r -

Without a name, every interface of the lab. Ends by Ctrl-C, with its reader, or with the lab.";

/// Which of the labs that stand.
#[derive(Debug, Args)]
pub struct WhichArguments {
    /// Which lab, if several stand: its name, or as much of its case's as tells it
    /// from the others
    #[arg(long, value_name = "LAB[/CASE]")]
    pub lab: Option<String>,
}

#[derive(Debug, Args)]
pub struct UpArguments {
    /// The case: NAME, NAME/axis=value,…, or a path to a lab's file
    #[arg(value_name = "LAB/CASE")]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Return once the lab stands, and hold it in the background
    #[arg(short, long)]
    pub detach: bool,
    /// A kube-proxy that runs on every node that has one, in place of generated rules;
    /// the lab says what it is told
    #[arg(long, value_name = "PATH")]
    pub kube_proxy: Option<PathBuf>,
    /// Read dumps that the lab names outside of its directory, too
    #[arg(long)]
    pub allow_outside: bool,
    /// How long a kube-proxy may take to write its rules, at first and after each step,
    /// such as 5m, from 1s to 1h [default: what the lab says, or 2m]
    #[arg(long, value_name = "DURATION", value_parser = sync_timeout)]
    pub kube_proxy_timeout: Option<Duration>,
    /// Have a program at hand in the lab that is not the system's. As often as wanted
    #[arg(long = "program", value_name = "PATH")]
    pub programs: Vec<PathBuf>,
    /// Be the process in the background, which writes to this file
    #[arg(long, hide = true, value_name = "LOG")]
    pub held: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PsArguments {
    /// How labs are printed
    #[arg(long, value_enum, default_value_t = PsFormat::Human)]
    pub format: PsFormat,
}

/// How labs that stand are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PsFormat {
    /// For people.
    Human,
    /// One document, described by `svclab schema ps`.
    Json,
}

#[derive(Debug, Args)]
pub struct ExecArguments {
    #[command(flatten)]
    pub which: WhichArguments,
    /// The namespace: a node, `pod/NAMESPACE/NAME`, a host, as `svclab ps` shows them
    #[arg(value_name = "NAMESPACE")]
    pub namespace: String,
    /// The program and what it is told
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ShellArguments {
    #[command(flatten)]
    pub which: WhichArguments,
    /// The namespace: a node, `pod/NAMESPACE/NAME`, a host, as `svclab ps` shows them
    #[arg(value_name = "NAMESPACE")]
    pub namespace: String,
}

#[derive(Debug, Args)]
pub struct ProbeArguments {
    #[command(flatten)]
    pub which: WhichArguments,
    /// Who calls: a node, `pod/NAMESPACE/NAME` or a host
    #[arg(value_name = "FROM")]
    pub from: String,
    /// Whom: a name or an address with its port, as in labs: `service/default/web:80`
    #[arg(value_name = "TO")]
    pub to: String,
    /// What is spoken
    #[arg(long, value_name = "PROTOCOL", default_value = "tcp", value_parser = protocol)]
    pub protocol: Protocol,
    /// How many connections are opened
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub connections: u32,
    /// How long an answer is waited for
    #[arg(long, default_value = "3s", value_parser = patience, value_name = "DURATION")]
    pub patience: Duration,
    /// Watch everything, and tell where the packets went, and what became of them and
    /// why
    #[arg(long)]
    pub explain: bool,
    /// As text for people, or their packets as data
    #[arg(long, value_enum, default_value_t = Explanation::Human, requires = "explain")]
    pub format: Explanation,
    /// Every packet, every namespace and every rule
    #[arg(short, long, requires = "explain")]
    pub verbose: bool,
}

#[derive(Debug, Args)]
pub struct CaptureArguments {
    #[command(flatten)]
    pub which: WhichArguments,
    /// Namespaces, or interfaces of them. Without any, everything
    #[arg(value_name = "NAMESPACE[/INTERFACE]")]
    pub of: Vec<String>,
}

#[derive(Debug, Args)]
pub struct DownArguments {
    /// Which lab, if several stand
    #[arg(value_name = "LAB[/CASE]", conflicts_with = "all")]
    pub lab: Option<String>,
    /// All of them
    #[arg(long)]
    pub all: bool,
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "tcp" => Ok(Protocol::Tcp),
        "udp" => Ok(Protocol::Udp),
        "ping" => Ok(Protocol::Ping),
        _ => Err("there are tcp, udp and ping".to_owned()),
    }
}
