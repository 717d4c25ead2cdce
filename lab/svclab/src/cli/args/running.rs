//! Arguments of commands for running labs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::selection::parse_wait_duration;
use super::{Explanation, KernelArguments, LabSource};
use svclab_model::plan::ProbeProtocol;
use svclab_rules::kube_proxy::sync_timeout;

/// Help text of `svclab up` about programs in guests.
pub(crate) const UP_HELP: &str = "\
In a guest, `exec` and `shell` can run these programs of this machine, with their \
libraries: sh, bash, cat, ls, grep, head, tail, wc, sleep, seq, tr, cut, sort, sed, env, \
true, false, dd, ip, ss, tc, bridge, sysctl, ping, nc, curl, tcpdump, conntrack, ipvsadm, \
iptables and ip6tables, each also as -nft and -legacy, and the programs that load rules. The \
first lab in a guest boots it, which takes some seconds.";

/// Help text of `svclab exec` and `svclab shell` about exit codes.
pub(crate) const EXEC_HELP: &str = "\
Exit code: the status of the program; 128 plus the signal number if a signal ended it; 127 if \
the program does not exist; 126 if it cannot be started; 125 if svclab fails.";

/// Help text of `svclab capture` with examples.
pub(crate) const CAPTURE_HELP: &str = "\
Examples:
  svclab capture node-1 | wireshark -k -i -
  svclab capture node-1/eth0 pod/default/client > ticket.pcapng
  svclab capture | tcpdump -n -r -

Without a name, captures every interface of the lab. Ends at Ctrl-C, or when the reader or the \
lab ends.";

/// Selection of a running lab.
#[derive(Debug, Args)]
pub(crate) struct LabArguments {
    /// Running lab, if there are several: its name, or enough of its case to be unique
    #[arg(long, value_name = "LAB[/CASE]")]
    pub(crate) lab: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UpArguments {
    /// Case: NAME, NAME/axis=value,…, or a path of a lab's file
    #[arg(value_name = "LAB/CASE")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) source: LabSource,
    #[command(flatten)]
    pub(crate) kernels: KernelArguments,
    /// Return when the lab is built, and keep it running in the background
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// kube-proxy to run, instead of generated rules, on every node that has kube-proxy. The lab
    /// defines its configuration
    #[arg(long, value_name = "PATH")]
    pub(crate) kube_proxy: Option<PathBuf>,
    /// Also read dumps and objects that the lab names outside its own directory
    #[arg(long)]
    pub(crate) allow_outside: bool,
    /// Maximum time for a kube-proxy to write its rules, at the start and after each step: 1s to
    /// 1h, such as 5m [default: the lab's value, otherwise 2m]
    #[arg(long, value_name = "DURATION", value_parser = sync_timeout)]
    pub(crate) kube_proxy_timeout: Option<Duration>,
    /// Path of an additional program for the lab, which is not installed on the system. Can be
    /// repeated
    #[arg(long = "program", value_name = "PATH")]
    pub(crate) programs: Vec<PathBuf>,
    /// Be the background daemon, which writes its log to this file
    #[arg(long, hide = true, value_name = "LOG")]
    pub(crate) held: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PsArguments {
    /// Format of the list
    #[arg(long, value_enum, default_value_t = PsFormat::Human)]
    pub(crate) format: PsFormat,
}

/// Format of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PsFormat {
    /// Text for people.
    Human,
    /// JSON document with the schema of `svclab schema ps`.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArguments {
    #[command(flatten)]
    pub(crate) which: LabArguments,
    /// Namespace from the list of `svclab ps`: a node, `pod/NAMESPACE/NAME` or a host
    #[arg(value_name = "NAMESPACE")]
    pub(crate) namespace: String,
    /// Program with its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShellArguments {
    #[command(flatten)]
    pub(crate) which: LabArguments,
    /// Namespace from the list of `svclab ps`: a node, `pod/NAMESPACE/NAME` or a host
    #[arg(value_name = "NAMESPACE")]
    pub(crate) namespace: String,
}

#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {
    #[command(flatten)]
    pub(crate) which: LabArguments,
    /// Source: a node, `pod/NAMESPACE/NAME` or a host
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// Target: a name or an address with a port, in the format of labs: `service/default/web:80`
    #[arg(value_name = "TO")]
    pub(crate) to: String,
    /// Protocol: `tcp`, `udp` or `ping`
    #[arg(long, value_name = "PROTOCOL", default_value = "tcp", value_parser = parse_protocol)]
    pub(crate) protocol: ProbeProtocol,
    /// Number of connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) connections: u32,
    /// Maximum wait for an answer
    #[arg(long = "max-wait", alias = "patience", default_value = "3500ms", value_parser = parse_wait_duration, value_name = "DURATION")]
    pub(crate) max_wait: Duration,
    /// Collect full evidence and explain where the packets went and why
    #[arg(long)]
    pub(crate) explain: bool,
    /// Format of the explanation
    #[arg(long, value_enum, default_value_t = Explanation::Human, requires = "explain")]
    pub(crate) format: Explanation,
    /// Also write a report with the packets: to a file that ends in .html, or to a directory, the page
    /// index.html and the explanation
    #[arg(long, value_name = "DIR|FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Print every packet, every namespace and every rule
    #[arg(short, long, requires = "explain")]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CaptureArguments {
    #[command(flatten)]
    pub(crate) which: LabArguments,
    /// Namespaces or interfaces to capture; default: all
    #[arg(value_name = "NAMESPACE[/INTERFACE]")]
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DownArguments {
    /// Lab to stop, if several are running
    #[arg(value_name = "LAB[/CASE]", conflicts_with = "all")]
    pub(crate) lab: Option<String>,
    /// Stop all running labs
    #[arg(long)]
    pub(crate) all: bool,
}

fn parse_protocol(text: &str) -> Result<ProbeProtocol, String> {
    match text {
        "tcp" => Ok(ProbeProtocol::Tcp),
        "udp" => Ok(ProbeProtocol::Udp),
        "ping" => Ok(ProbeProtocol::Ping),
        _ => Err("expected tcp, udp or ping".to_owned()),
    }
}
