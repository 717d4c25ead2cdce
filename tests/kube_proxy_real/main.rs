//! What svclab generates, against what a real kube-proxy 1.20.2 writes at that
//! moment: for the recorded objects, and for random ones.
//!
//! `scripts/test --full` builds the kube-proxy and runs this; it is not among the
//! ordinary tests. iptables mode runs on this host, in the containment that labs
//! have; ipvs mode in a guest, whose kernel surely has IPVS.
//!
//! A random case is a kube-proxy with random flags that is shown up to four
//! random sets of objects one after another, each on top of what it wrote for
//! those before, as on a node that has run for a while: chains, sets, virtual
//! servers and addresses of services that are gone must be gone. Before some sets
//! of ipvs mode it is killed and started anew, which must come to the same. What users have
//! is the state after more than one sync, so that is what counts. Two things are
//! left out, in which such a state differs from one sync on a fresh node, which
//! is what svclab generates:
//!
//! - ipvs mode: a later sync takes node ports off an address that is an external
//!   IP as well, because that is bound to `kube-ipvs0` by then (kubernetes
//!   v1.20.2, `pkg/proxy/ipvs/proxier.go`, `NodeIPs` of `realIPGetter`). A set
//!   with node ports has no external IP that is the node's own.
//! - Node ports that another process holds. Nothing else listens there.
//!
//! And what a kube-proxy decides by chance is not drawn: one endpoint address
//! with two ports for one service port (`addEndpointsByIP` of
//! `pkg/proxy/endpointslicecache.go` keeps one, in the order of a Go map), and in
//! iptables mode `nodePortAddresses` that mean two addresses of the node, whose
//! rules come in any order.
//!
//! `patches/NAME.patch` breaks the kube-proxy in one way: `build_kube_proxy NAME` of
//! `scripts/setup.sh` builds it beside the unpatched one, as `v1.20.2+NAME`.
//!
//! `SVCLAB_SEED` draws other cases than the ordinary ones; cases that failed are
//! kept in `regressions/` and tried first.

mod bench;
mod cluster;
mod differences;
mod draw;
#[path = "../shared/guests.rs"]
mod guests;
mod labs;
mod marker;
#[path = "../guest/processes.rs"]
#[expect(dead_code, reason = "no QEMU is looked for, and no runtime waits")]
mod processes;
mod random;
#[path = "../kube_proxy_recorded/recordings.rs"]
#[expect(dead_code, reason = "only the objects are needed here")]
mod recordings;
mod sizes;
mod standing;
#[path = "../shared/standing.rs"]
#[expect(dead_code, reason = "labs are brought up with a kube-proxy here")]
mod standing_labs;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use svclab_rules::kube_proxy::{KubeProxy, Mode};
use svclab_runner::kernel::{Agent, Host};

use bench::Bench;
use cluster::Cluster;

/// The program under test.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");

/// The kube-proxy that is run.
pub const VERSION: &str = "v1.20.2";

/// In how many parts the random cases are tried side by side.
const PARTS: u32 = 2;

/// What a guest with a kube-proxy in it has of memory, in MiB.
const MEMORY: u32 = 512;

/// The objects and flags that recordings were made with.
const RECORDED: [(&str, &str); 9] = [
    ("a_clusterip", "cidr"),
    ("a_clusterip", "nocidr"),
    ("b_nodeport", "cidr"),
    ("b_nodeport", "nocidr"),
    ("c_loadbalancer", "cidr"),
    ("c_loadbalancer", "nocidr"),
    ("e_all", "cidr"),
    ("e_all", "masqall"),
    ("e_all", "nocidr"),
];

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for mode in [Mode::Iptables, Mode::Ipvs] {
        for (objects, flags) in RECORDED {
            let name = format!("recorded::{mode}::{objects}::{flags}");
            trials.push(Trial::test(name, move || recorded(mode, objects, flags)));
        }
        for part in 0..PARTS {
            let name = format!("random::{mode}::{part}");
            trials.push(Trial::test(name, move || {
                random::try_all(mode, part, PARTS)
            }));
        }
    }
    trials.extend(labs::trials());
    trials.extend(standing::trials());
    trials.extend(verify::trials());
    trials.extend(sizes::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn recorded(mode: Mode, objects: &str, flags: &str) -> Result<(), Failed> {
    let mut proxy = KubeProxy::new(VERSION.parse()?);
    proxy.mode = mode;
    match flags {
        "cidr" => proxy.cluster_cidr = Some("10.244.0.0/16".parse()?),
        "masqall" => proxy.masquerade_all = true,
        _ => {}
    }
    let cluster = Cluster::recorded(objects)?;
    guests::block_on(async {
        let (agent, binary) = agent(mode).await?;
        let mut bench = Bench::start(&agent, &binary, &proxy, &cluster).await?;
        bench.agrees(&cluster).await
    })
}

/// A kernel for that mode, and where the kube-proxy lies in it.
async fn agent(mode: Mode) -> Result<(Agent, String), Failed> {
    let binary = bench::binary()?;
    let path = binary.to_string_lossy().into_owned();
    let agent = if mode == Mode::Ipvs {
        let programs = [
            "iptables",
            "iptables-restore",
            "iptables-save",
            "ip6tables",
            "ip6tables-restore",
            "ip6tables-save",
            "ipset",
            "ipvsadm",
            "ip",
        ];
        let programs: Vec<PathBuf> = programs
            .into_iter()
            .map(installed)
            .collect::<Result<_, _>>()?;
        let guest = guests::guest("6.12").await;
        guest
            .with_programs(programs)
            .with_programs([binary])
            .with_memory(MEMORY)
            .start()
            .await?
    } else {
        Host::with_agent(PathBuf::from(guests::AGENT))
            .with_programs([binary])
            .start()
            .await?
    };
    Ok((agent, path))
}

/// Where a program of this machine lies.
fn installed(name: &str) -> Result<PathBuf, Failed> {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("{name} is not installed: scripts/test installs it").into())
}
