//! Compares the rules that svclab generates with those that a real kube-proxy 1.20.2 writes, for
//! recorded and for random objects.
//!
//! `scripts/test --full` builds the kube-proxy and runs this test, which is not an ordinary test.
//! iptables mode runs on this host, in the containment of labs. ipvs mode runs in a guest, whose
//! kernel always has IPVS.
//!
//! A random case is a kube-proxy with random flags and up to four successive random sets of
//! objects. Each set applies on top of the rules for the previous ones, as on a node that has run
//! for a while. Chains, sets, virtual servers and addresses of removed services must be removed.
//! Before some sets of ipvs mode, kube-proxy is killed and restarted, which must give the same
//! state. The test compares the state after several syncs because users have such states. Two
//! situations are excluded, in which this state differs from one sync on a new node, which svclab
//! generates:
//!
//! - ipvs mode: a later sync removes node ports from an address that is also an external IP. That
//!   address is bound to `kube-ipvs0` by then (kubernetes v1.20.2, `pkg/proxy/ipvs/proxier.go`,
//!   `NodeIPs` of `realIPGetter`). A set with node ports has no external IP that is an address of
//!   the node.
//! - Node ports that another process holds. No other process listens there.
//!
//! Choices that kube-proxy makes at random are not generated. One is an endpoint address with two
//! ports for one service port (`addEndpointsByIP` of `pkg/proxy/endpointslicecache.go` keeps one,
//! in the order of a Go map). The other, in iptables mode, is a value of `nodePortAddresses` that
//! selects two addresses of the node, whose rules have arbitrary order.
//!
//! `patches/NAME.patch` introduces one fault into kube-proxy: `build_kube_proxy NAME` of
//! `scripts/setup.sh` builds it beside the unpatched one, as `v1.20.2+NAME`.
//!
//! `SVCLAB_SEED` selects other random cases. Failed cases are stored in `regressions/` and run
//! first.

mod bench;
mod cluster;
mod differences;
mod draw;
mod labs;
mod marker;
mod random;
mod running;
mod sizes;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use svclab_rules::kube_proxy::{KubeProxy, Mode};
use svclab_runner::kernel::{Agent, Host};
use svclab_test_support::guests::new_guest;
use svclab_test_support::{block_on, programs};

use bench::ProxyNode;
use cluster::Cluster;

/// Path of the program under test.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");

/// Version of the kube-proxy that the tests build from source.
pub const VERSION: &str = "v1.20.2";

/// Number of parts of the random cases, which run in parallel.
const PARTS: u32 = 2;

/// Memory of a guest with a kube-proxy in MiB.
const GUEST_MEMORY_MIB: u32 = 512;

/// Objects and flags of the recordings.
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
            trials.push(trial(name, move || check_recorded(mode, objects, flags)));
        }
        for part in 0..PARTS {
            let name = format!("random::{mode}::{part}");
            trials.push(trial(name, move || {
                random::run_random_cases(mode, part, PARTS)
            }));
        }
    }
    trials.extend(labs::trials());
    trials.extend(running::trials());
    trials.extend(verify::trials());
    trials.extend(sizes::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Creates a trial that prints its failure when it ends. The summary prints it again, an hour later
/// in a full run.
fn trial(
    name: impl Into<String>,
    run: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let name = name.into();
    let title = name.clone();
    Trial::test(name, move || {
        run().inspect_err(|failed| {
            eprintln!("{title} failed: {}", failed.message().unwrap_or_default());
        })
    })
}

fn check_recorded(mode: Mode, objects: &str, flags: &str) -> Result<(), Failed> {
    let mut proxy = KubeProxy::new(VERSION.parse()?);
    proxy.mode = mode;
    match flags {
        "cidr" => proxy.cluster_cidr = Some("10.244.0.0/16".parse()?),
        "masqall" => proxy.masquerade_all = true,
        _ => {}
    }
    let cluster = Cluster::recorded(objects)?;
    block_on(async {
        let (agent, binary) = start_agent(mode).await?;
        let mut bench = ProxyNode::start(&agent, &binary, &proxy, &cluster).await?;
        bench.check_objects(&cluster).await
    })
}

/// Starts an agent on a kernel for that mode. Returns it with the path of kube-proxy there.
async fn start_agent(mode: Mode) -> Result<(Agent, String), Failed> {
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
        let guest = new_guest("6.12").await;
        guest
            .with_programs(programs)
            .with_programs([binary])
            .with_memory(GUEST_MEMORY_MIB)
            .start()
            .await?
    } else {
        Host::with_agent(programs::agent())
            .with_programs([binary])
            .start()
            .await?
    };
    Ok((agent, path))
}

/// Returns the path of an installed program.
fn installed(name: &str) -> Result<PathBuf, Failed> {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("{name} is not installed: scripts/test installs it").into())
}
