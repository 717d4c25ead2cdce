//! What users type.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::kernel::Choice;
use crate::plan::{Backend, Patience, Protocol};
use crate::report::Format;
use crate::rules::kube_proxy::{
    Cidrs, ConfigError, DetectLocalMode, Mode, NodePortAddress, Version,
};

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
    /// Run cases and tell where their packets went, and what became of them and why
    Explain(ExplainArguments),
    /// Show, namespace by namespace, what a case would apply
    Plan(PlanArguments),
    /// Build one case and let it stand, until Ctrl-C or `svclab down`
    #[command(after_help = GUESTS)]
    Up(UpArguments),
    /// List the labs that stand
    Ps(PsArguments),
    /// Run a program in a namespace of a lab that stands
    #[command(after_help = STATUS)]
    Exec(ExecArguments),
    /// Run a shell in a namespace of a lab that stands
    #[command(after_help = STATUS)]
    Shell(ShellArguments),
    /// Try one thing in a lab that stands, and say what became of it
    Probe(ProbeArguments),
    /// Write the packets of a lab that stands to standard output, as pcapng, while
    /// they come
    #[command(after_help = CAPTURES)]
    Capture(CaptureArguments),
    /// Take a lab away that stands
    Down(DownArguments),
    /// Print what kube-proxy of a version writes on a node for a cluster's objects
    Rules(Box<RulesArguments>),
    /// Run the labs that speak of claims, and print what became of each claim
    Claims(ClaimsArguments),
    /// Compare two nodes' dumps, or two files of them, by what they mean
    #[command(after_help = DUMPS)]
    Diff(DiffArguments),
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

/// Which cases, and how they are prepared.
#[derive(Debug, Args)]
pub struct Selection {
    /// Labs or cases: NAME, NAME/axis=value,…, or a path to a lab's file. Without
    /// any, every lab directly in the directory of labs
    #[arg(value_name = "LAB[/CASE]")]
    pub names: Vec<String>,
    /// How long an answer is waited for by probes that say nothing of it
    /// themselves: `settled`, three seconds, but where a timeout is expected no longer
    /// than it takes to prove that no answer can come any more; or a time, such as 8s
    #[arg(long, default_value_t = Patience::SETTLED, value_parser = settled, value_name = "settled|DURATION")]
    pub patience: Patience,
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
    /// Watch everything, and write what was seen of each case into a directory: a
    /// capture with comments, the evidence, what is to be said of it; and `JUnit` XML
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// How many cases stand at once [default: eight for each processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Leave failed cases standing until Ctrl-C, and say how to enter them
    #[arg(long)]
    pub keep_on_failure: bool,
    /// Compare this machine's network, modules, processes, mounts and more before
    /// the run and after it, also when it is interrupted; a difference is printed and
    /// ends with exit code 1
    #[arg(long)]
    pub certify: bool,
    /// Say more: every claim that a case bears on
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Debug, Args)]
pub struct ExplainArguments {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Only the connections of this probe
    #[arg(long, value_name = "NAME")]
    pub probe: Option<String>,
    /// As text for people, or as data
    #[arg(long, value_enum, default_value_t = Explanation::Human)]
    pub format: Explanation,
    /// Every packet, every namespace and every rule
    #[arg(short, long)]
    pub verbose: bool,
}

/// How journeys are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Explanation {
    /// Text for people
    Human,
    /// `svclab/journeys/v1`; its schema is printed by `svclab schema journeys`
    Json,
}

/// What a guest has for those who look around in it.
const GUESTS: &str = "\
In a guest, `exec` and `shell` find these of this machine's programs, with their \
libraries: sh, bash, cat, ls, grep, head, tail, wc, sleep, seq, tr, cut, sort, sed, env, \
true, false, dd, ip, ss, tc, bridge, sysctl, ping, nc, curl, tcpdump, conntrack, ipvsadm, \
and those that load rules. The first lab in a guest boots it, which takes some seconds.";

/// How programs in labs end.
const STATUS: &str = "\
Ends with the program's own status, with 128 and its number if a signal ended it, with \
127 if there is no such program, 126 if it cannot be started, and 125 if svclab could not \
bring it to that.";

/// How captures are used.
const CAPTURES: &str = "\
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

/// Of kube-proxy, arguments are called as its own flags are.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of kube-proxy's, of its surroundings or of the printing"
)]
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct RulesArguments {
    /// The cluster's objects, YAML or JSON, as `kubectl get -o yaml` prints them:
    /// nodes, services, endpoint slices, or pods that services select, service CIDRs
    #[arg(value_name = "FILE", required_unless_present = "about")]
    pub files: Vec<PathBuf>,
    /// Say how well a version is known, what came with it and what went
    #[arg(long, value_name = "VERSION", exclusive = true)]
    pub about: Option<Version>,
    /// Its version, v1.9 to v1.36
    #[arg(long, value_name = "VERSION", required_unless_present = "about")]
    pub kube_version: Option<Version>,
    /// The node it runs on; without it, the only one there is
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// What it writes rules with: `iptables`, `ipvs` or, from v1.29 on, `nftables`
    #[arg(long, value_name = "MODE", default_value = "iptables", value_parser = mode)]
    pub proxy_mode: Mode,
    /// The pods' addresses, one network of each IP family
    #[arg(long, value_name = "CIDR")]
    pub cluster_cidr: Option<Cidrs>,
    /// Masquerade all traffic to cluster IPs; nftables mode heeds it from v1.31 on
    #[arg(long)]
    pub masquerade_all: bool,
    /// The bit of the packet mark that asks for masquerading; nftables mode does not
    /// heed it
    #[arg(long, value_name = "BIT", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31))]
    pub iptables_masquerade_bit: u8,
    /// How it tells traffic of the cluster's own pods: `ClusterCIDR`, from v1.18 on
    /// `NodeCIDR`, from v1.24 on `BridgeInterface` and `InterfaceNamePrefix`
    #[arg(long, value_name = "MODE", default_value = "ClusterCIDR", value_parser = detect_local_mode)]
    pub detect_local_mode: DetectLocalMode,
    /// The pods' bridge, for `BridgeInterface`
    #[arg(long, value_name = "NAME")]
    pub pod_bridge_interface: Option<String>,
    /// How pods' interfaces are called, for `InterfaceNamePrefix`
    #[arg(long, value_name = "PREFIX")]
    pub pod_interface_name_prefix: Option<String>,
    /// The node's addresses that serve node ports: networks, or `primary`
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = node_port_address)]
    pub nodeport_addresses: Vec<NodePortAddress>,
    /// Whether node ports answer on 127.0.0.0/8
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub iptables_localhost_nodeports: bool,
    /// Keep packets that conntrack calls invalid
    #[arg(long)]
    pub conntrack_tcp_be_liberal: bool,
    /// The scheduler of virtual servers
    #[arg(long, value_name = "NAME", default_value = "")]
    pub ipvs_scheduler: String,
    /// Answer ARP only for addresses of the interface asked
    #[arg(long)]
    pub ipvs_strict_arp: bool,
    /// The node's iptables does not know --random-fully
    #[arg(long)]
    pub no_random_fully: bool,
    /// The node's kernel has no nfacct
    #[arg(long)]
    pub no_nfacct: bool,
    /// Load it all in a namespace of a kernel's, read it back, and write what was
    /// read to files there: iptables-save, ip6tables-save, ipset-save, nft,
    /// ipvsadm-Sn, ip-addr
    #[arg(long, value_name = "DIR")]
    pub loaded: Option<PathBuf>,
    /// Which iptables loads it
    #[arg(long, value_name = "WHICH", default_value = "nft", value_parser = backend)]
    pub iptables: Backend,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Name what kube-proxy passes by, and what is no object of its
    #[arg(short, long)]
    pub verbose: bool,
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

/// What `svclab diff` reads.
const DUMPS: &str = "\
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
    /// What `diff --format json` prints.
    Diff,
    /// What `explain --format json` prints.
    Journeys,
    /// The `evidence.json` of `run --report`.
    Evidence,
    /// What `ps --format json` prints.
    Ps,
}

/// A mode that can be written.
fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "iptables" => Ok(Mode::Iptables),
        "ipvs" => Ok(Mode::Ipvs),
        "nftables" => Ok(Mode::Nftables),
        _ => Err("there are iptables, ipvs and, from v1.29 on, nftables".to_owned()),
    }
}

fn detect_local_mode(text: &str) -> Result<DetectLocalMode, String> {
    match text {
        "ClusterCIDR" => Ok(DetectLocalMode::ClusterCIDR),
        "NodeCIDR" => Ok(DetectLocalMode::NodeCIDR),
        "BridgeInterface" => Ok(DetectLocalMode::BridgeInterface),
        "InterfaceNamePrefix" => Ok(DetectLocalMode::InterfaceNamePrefix),
        _ => Err(
            "there are ClusterCIDR, NodeCIDR, BridgeInterface and InterfaceNamePrefix".to_owned(),
        ),
    }
}

fn node_port_address(text: &str) -> Result<NodePortAddress, ConfigError> {
    text.to_owned().try_into()
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "tcp" => Ok(Protocol::Tcp),
        "udp" => Ok(Protocol::Udp),
        "ping" => Ok(Protocol::Ping),
        _ => Err("there are tcp, udp and ping".to_owned()),
    }
}

fn backend(text: &str) -> Result<Backend, String> {
    match text {
        "nft" => Ok(Backend::Nft),
        "legacy" => Ok(Backend::Legacy),
        _ => Err("there are nft and legacy".to_owned()),
    }
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

/// `settled`, or a duration.
fn settled(text: &str) -> Result<Patience, String> {
    match text {
        "settled" => Ok(Patience::SETTLED),
        text => patience(text).map(Patience::of),
    }
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
