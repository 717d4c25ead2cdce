//! Compares the real kube-proxy with the rules that svclab generates, in three ways:
//!
//! - with the rules of its own version: nothing differs;
//! - with the rules of a version that behaves differently after a step: the difference is found;
//! - with faults inserted into its written rules: each is found, in the affected flows.
//!
//! Two kube-proxies of one release are compared ten times. The program does not differ from itself.
//! Each patch in `patches/` that changes packet paths is found.
//!
//! All comparisons also run with the kube-proxies in `SVCLAB_KUBE_PROXY`, a colon-separated list of
//! paths, in each mode of their version.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use svclab_experiment::OutcomeCount;
use svclab_experiment::verify::{
    PreparedPairs, Side, Verification, prepare_pairs, read_version, verify,
};
use svclab_model::plan::{CommandLimits, NodeCommand};
use svclab_report::TerminalWidth;
use svclab_report::verify::render_text;
use svclab_rules::kube_proxy::Mode;
use svclab_runner::kernel::{Host, KernelChoice};
use svclab_runner::run::{RunControl, RunOptions, select_labs};
use svclab_test_support::block_on;
use svclab_test_support::programs::agent;
use tokio::sync::mpsc;

use crate::trial;
use crate::{VERSION, bench};

/// A fault: commands, the node that runs them, the case of `local-ingress`, and an affected probe.
struct Fault {
    name: &'static str,
    case: &'static str,
    node: &'static str,
    command: &'static [&'static str],
    probe: &'static str,
    /// Whether all versions write the affected rules alike.
    affects_all_versions: bool,
}

const LOCAL: &str = "policy=Local,clusterCIDR=none,version=v1.20,mode=iptables";
const CLUSTER: &str = "policy=Cluster,clusterCIDR=none,version=v1.20,mode=iptables";
const CIDR: &str = "policy=Local,clusterCIDR=set,version=v1.20,mode=iptables";
const IPVS: &str = "policy=Local,clusterCIDR=none,version=v1.20,mode=ipvs";

/// Command that edits the nat rules of a node with a sed expression.
macro_rules! sed_nat_rules {
    ($expression:literal) => {
        &[
            "sh",
            "-c",
            concat!(
                "iptables-nft-save -t nat | sed '",
                $expression,
                "' | iptables-nft-restore"
            ),
        ]
    };
}

const FAULTS: [Fault; 13] = [
    Fault {
        name: "nothing is masqueraded",
        case: CLUSTER,
        node: "node-2",
        command: &["iptables-nft", "-t", "nat", "-F", "KUBE-POSTROUTING"],
        probe: "outside",
        affects_all_versions: true,
    },
    Fault {
        name: "an endpoint is stale",
        case: CLUSTER,
        node: "node-2",
        command: sed_nat_rules!("s/--to-destination 10.180.2.10:/--to-destination 10.180.2.99:/"),
        probe: "outside",
        affects_all_versions: true,
    },
    Fault {
        name: "an endpoint is missing",
        case: CLUSTER,
        node: "node-2",
        command: sed_nat_rules!("/--mode random/d"),
        probe: "outside",
        affects_all_versions: true,
    },
    Fault {
        name: "an endpoint's port is wrong",
        case: CLUSTER,
        node: "node-2",
        command: sed_nat_rules!("s/\\(--to-destination 10.180.2.10\\):80/\\1:81/"),
        probe: "outside",
        affects_all_versions: true,
    },
    Fault {
        name: "the rules of an external address are missing",
        case: CLUSTER,
        node: "node-2",
        command: sed_nat_rules!("/-d 192.168.99.11\\/32/d"),
        probe: "outsideToExternal",
        affects_all_versions: true,
    },
    Fault {
        name: "the rules of a load balancer address are missing",
        case: CLUSTER,
        node: "node-2",
        command: sed_nat_rules!("/-d 1.2.3.4\\/32/d"),
        probe: "outside",
        affects_all_versions: true,
    },
    Fault {
        name: "external traffic is not marked",
        case: CLUSTER,
        node: "node-2",
        command: sed_nat_rules!("/-A KUBE-FW-.*-j KUBE-MARK-MASQ/d"),
        probe: "outside",
        affects_all_versions: false,
    },
    Fault {
        name: "traffic to a local endpoint is dropped",
        case: LOCAL,
        node: "node-2",
        command: sed_nat_rules!("s/\\(-A KUBE-XLB-.*\\)-j KUBE-SEP-.*/\\1-j KUBE-MARK-DROP/"),
        probe: "outside",
        affects_all_versions: false,
    },
    Fault {
        name: "requests of a node do not reach all endpoints",
        case: LOCAL,
        node: "node-1",
        command: sed_nat_rules!("/-A KUBE-XLB-.*--src-type LOCAL/d"),
        probe: "nodeWithout",
        affects_all_versions: false,
    },
    Fault {
        name: "the rule of the cluster CIDR is missing",
        case: CIDR,
        node: "node-1",
        command: sed_nat_rules!("/-A KUBE-XLB-.*-s 10.0.0.0\\/8/d"),
        probe: "apart",
        affects_all_versions: false,
    },
    Fault {
        name: "a cluster IP has an additional real server",
        case: IPVS,
        node: "node-1",
        command: &[
            "ipvsadm",
            "-a",
            "-t",
            "172.30.0.41:80",
            "-r",
            "10.180.9.99:80",
            "-m",
        ],
        probe: "podToClusterIP",
        affects_all_versions: true,
    },
    Fault {
        name: "a real server is missing",
        case: IPVS,
        node: "node-1",
        command: &[
            "ipvsadm",
            "-d",
            "-t",
            "172.30.0.41:80",
            "-r",
            "10.180.2.10:80",
        ],
        probe: "podToClusterIP",
        affects_all_versions: true,
    },
    Fault {
        name: "an address is not bound",
        case: IPVS,
        node: "node-2",
        command: &[
            "ip",
            "address",
            "del",
            "192.168.99.11/32",
            "dev",
            "kube-ipvs0",
        ],
        probe: "outsideToExternal",
        affects_all_versions: true,
    },
];

/// Returns, for each program, one trial for each fault, and trials without faults.
pub fn trials() -> Vec<Trial> {
    let default_proxy = bench::binary().expect("the real kube-proxy is built");
    let mut trials = trials_of(
        &default_proxy,
        VERSION,
        &[Mode::Iptables, Mode::Ipvs],
        |_| true,
    );
    trials.push(trial(
        "verify::steps: same version has no difference",
        check_steps_without_difference,
    ));
    trials.push(trial(
        "verify::steps: v1.21 keeps flows to terminating pods",
        check_step_difference_is_found,
    ));
    trials.extend(repeated_trials());
    trials.push(trial(
        "verify::restore-fails: 10 of 10 runs are errors",
        check_failed_restore_is_error,
    ));
    for program in other_kube_proxies() {
        let version = block_on(read_version(&program, new_host()))
            .expect("the program prints its version")
            .version;
        let all_modes = [Mode::Iptables, Mode::Ipvs, Mode::Nftables];
        let modes = if version.minor_number() < FIRST_NFTABLES_MINOR {
            &all_modes[..2]
        } else {
            &all_modes
        };
        let name = format!("{} ({version})", program.display());
        trials.extend(trials_of(&program, &name, modes, |fault| {
            fault.affects_all_versions
        }));
    }
    trials
}

/// Returns the kube-proxies in `SVCLAB_KUBE_PROXY`.
pub fn other_kube_proxies() -> impl Iterator<Item = PathBuf> {
    let further = std::env::var_os("SVCLAB_KUBE_PROXY").unwrap_or_default();
    let paths: Vec<PathBuf> = std::env::split_paths(&further).collect();
    paths
        .into_iter()
        .filter(|path| !path.as_os_str().is_empty())
}

/// First minor release with nftables mode.
pub const FIRST_NFTABLES_MINOR: u8 = 29;

fn trials_of(
    program: &Path,
    name: &str,
    modes: &[Mode],
    wanted: impl Fn(&Fault) -> bool,
) -> Vec<Trial> {
    let silent = modes.iter().map(|mode| {
        let (program, mode) = (program.to_owned(), *mode);
        let name = format!("verify::{name}: {mode} mode has no difference");
        trial(name, move || check_no_difference(&program, mode))
    });
    let faults = FAULTS.iter().filter(|fault| wanted(fault)).map(|fault| {
        let program = program.to_owned();
        let name = format!("verify::{name}: {}", fault.name);
        trial(name, move || check_fault_is_found(&program, fault))
    });
    silent.chain(faults).collect()
}

pub fn new_host() -> Host {
    Host::with_agent(agent())
}

/// Compares cases with the real kube-proxy with the rules of a version, by default its own.
/// `change` can modify the pairs before.
fn compare_cases(
    binary: &Path,
    against: Option<&str>,
    names: &[String],
    modes: &[Mode],
    change: impl Fn(&mut PreparedPairs),
) -> Result<Verification, Failed> {
    let topologies = svclab_test_support::root().join("topologies");
    let mut labs = select_labs(names, &topologies)?;
    let table = topologies.join("conformance");
    if names.is_empty() && table.is_dir() {
        labs.extend(select_labs(&[], &table)?);
    }
    repeat_while_busy(|| {
        block_on(async {
            let program = read_version(binary, new_host()).await?;
            let version = match against {
                Some(version) => version.parse()?,
                None => program.version,
            };
            let against = Side::Rules(version);
            let new = Side::Program(program);
            let mut found = prepare_pairs(&labs, &against, &new, modes, false);
            change(&mut found);
            Ok(run_verify(found, &against, &new).await)
        })
    })
}

/// Maximum number of comparisons of the same cases. A machine that is too busy for a verdict is an
/// error of `verify`, and no result about the kube-proxy.
const MAX_COMPARISONS: usize = 3;

fn repeat_while_busy(
    mut compare: impl FnMut() -> Result<Verification, Failed>,
) -> Result<Verification, Failed> {
    let mut found = compare()?;
    for _ in 1..MAX_COMPARISONS {
        let mut errors = found.failed.iter().map(|failed| &failed.error.message);
        if !errors.any(|message| message.contains("too busy for a verdict")) {
            break;
        }
        eprintln!("the machine was too busy; comparing again");
        found = compare()?;
    }
    Ok(found)
}

async fn run_verify(found: PreparedPairs, against: &Side, new: &Side) -> Verification {
    let options = RunOptions {
        kernels: KernelChoice::Auto,
        agent: Some(agent()),
        jobs: 4,
        agents: 2,
        keep: false,
        with_evidence: false,
        command: String::new(),
        shard: None,
        control: RunControl::default(),
        notice: None,
    };
    let (sender, _) = mpsc::unbounded_channel();
    verify(found, against, new, &options, &sender, pending()).await
}

/// Cases with services with and without session affinity, and the number of comparisons. A guest is
/// slower.
const AFFINITY: [(&str, usize); 2] = [
    ("conformance/session-affinity/mode=iptables", 10),
    ("conformance/session-affinity/mode=ipvs", 2),
];

/// A case with the write-up's load balancer, whose service has no session affinity.
const BALANCED: (&str, usize) = (
    "local-ingress/policy=Cluster,clusterCIDR=none,version=v1.20,mode=iptables",
    10,
);

/// Whether a comparison shows the expected change.
type IsExpected = fn(&Verification) -> bool;

/// Returns one trial for each comparison of the kube-proxy with itself or with a patched one.
fn repeated_trials() -> Vec<Trial> {
    let silent: IsExpected =
        |found| found.exit_code() == 0 && found.changed.is_empty() && found.shares.is_empty();
    let loses_affinity: IsExpected = |found| {
        let changed = |flow: &&str| {
            found
                .changed
                .iter()
                .any(|change| change.flow.probe == **flow)
        };
        [
            "podToClusterIP",
            "nodeToClusterIP",
            "outsideToNodePort",
            "outsideToExternalIP",
        ]
        .iter()
        .all(changed)
            && !changed(&"podToPlain")
    };
    let shares: IsExpected = |found| !found.shares.is_empty();
    let both: IsExpected = |found| {
        let services: Vec<&str> = found
            .shares
            .iter()
            .map(|share| share.service.as_str())
            .collect();
        services == ["service/default/plain:80", "service/default/sticky:80"]
    };
    let [iptables, ipvs] = AFFINITY;
    [
        (None, BALANCED, silent),
        (None, iptables, silent),
        (None, ipvs, silent),
        (Some("probability-of-one-more"), BALANCED, shares),
        (Some("probability-of-one-more"), iptables, both),
        (Some("affinity-lost"), iptables, loses_affinity),
        (Some("affinity-lost"), ipvs, loses_affinity),
    ]
    .into_iter()
    .flat_map(|(patch, (case, times), finds)| {
        (1..=times).map(move |time| {
            let name = patch.unwrap_or("itself");
            let name = format!("verify::{VERSION} and {name}: {case}: {time} of {times}");
            trial(name, move || compare_same_release(patch, case, finds))
        })
    })
    .collect()
}

/// Compares the kube-proxy with itself, or with a patched one.
fn compare_same_release(patch: Option<&str>, case: &str, finds: IsExpected) -> Result<(), Failed> {
    let against = bench::binary()?;
    let new = patch.map_or_else(bench::binary, bench::patched)?;
    let topologies = svclab_test_support::root().join("topologies");
    let labs = select_labs(&[case.to_owned()], &topologies)?;
    let verification = repeat_while_busy(|| {
        block_on(async {
            let against = Side::Program(read_version(&against, new_host()).await?);
            let new = Side::Program(read_version(&new, new_host()).await?);
            let found = prepare_pairs(&labs, &against, &new, &[], false);
            Ok(run_verify(found, &against, &new).await)
        })
    })?;
    if verification.failed.is_empty() && verification.flows > 0 && finds(&verification) {
        return Ok(());
    }
    Err(render_text(&verification, false, false, TerminalWidth::default()).into())
}

fn check_no_difference(program: &Path, mode: Mode) -> Result<(), Failed> {
    let verification = compare_cases(program, None, &[], &[mode], |_| {})?;
    let report = render_text(&verification, false, false, TerminalWidth::default());
    if verification.exit_code() == 0 && verification.flows > 0 {
        eprintln!("{mode}: {report}");
        return Ok(());
    }
    Err(report.into())
}

fn check_fault_is_found(program: &Path, fault: &Fault) -> Result<(), Failed> {
    let case = format!("local-ingress/{}", fault.case);
    let verification = compare_cases(program, None, &[case], &[], |found| {
        for pair in &mut found.pairs {
            pair.new.plan.commands.push(NodeCommand {
                namespace: fault.node.to_owned(),
                command: fault.command.iter().map(|&word| word.to_owned()).collect(),
                input: String::new(),
                limits: CommandLimits::default(),
            });
        }
    })?;
    let changed: BTreeSet<&str> = verification
        .changed
        .iter()
        .map(|changed| changed.flow.probe.as_str())
        .collect();
    if verification.exit_code() == 1 && changed.contains(fault.probe) {
        return Ok(());
    }
    Err(render_text(&verification, true, false, TerminalWidth::default()).into())
}

/// The patched kube-proxy never writes its rules, and none of its syncs succeeds. The unpatched one
/// shows no difference in as many runs.
fn check_failed_restore_is_error() -> Result<(), Failed> {
    let (whole, broken) = (bench::binary()?, bench::patched("restore-fails")?);
    let names = [CLUSTER, IPVS].map(|case| format!("local-ingress/{case}"));
    for run in 0..10 {
        // A guest takes seconds to boot.
        let names = if run == 0 { &names[..] } else { &names[..1] };
        let verification = compare_cases(&broken, None, names, &[], |_| {})?;
        let is_error = |failed: &svclab_experiment::verify::FailedCase| {
            failed.error.message.contains(" cannot write its rules")
                && failed
                    .error
                    .message
                    .contains("Failed to execute iptables-restore")
        };
        if verification.failed.len() != names.len()
            || !verification.failed.iter().all(is_error)
            || verification.exit_code() == 0
        {
            return Err(render_text(&verification, true, false, TerminalWidth::default()).into());
        }
        let verification = compare_cases(&whole, None, names, &[], |_| {})?;
        if verification.exit_code() != 0 || verification.flows == 0 {
            return Err(render_text(&verification, true, false, TerminalWidth::default()).into());
        }
    }
    Ok(())
}

/// A case whose services change.
const CASE_WITH_STEPS: &str = "service-changes/version=v1.20.2,mode=iptables";

/// Number of flows: probes before the first step, probes of its steps, and probes open across
/// steps.
const FLOW_COUNT: usize = 18;

fn check_steps_without_difference() -> Result<(), Failed> {
    let binary = bench::binary()?;
    let verification = compare_cases(&binary, None, &[CASE_WITH_STEPS.to_owned()], &[], |_| {})?;
    // Traffic moves five times on either side, which is reported.
    let moved_flows = [&verification.against, &verification.new]
        .map(|side| side.shift_times.map_or(0, |moving| moving.flows));
    let is_whole = verification.flows == FLOW_COUNT
        && verification.not_compared.is_empty()
        && moved_flows == [5, 5]
        && verification
            .shifts
            .iter()
            .all(|moved| moved.against_us.is_some() && moved.new_us.is_some());
    if verification.exit_code() == 0 && is_whole {
        return Ok(());
    }
    Err(render_text(&verification, true, false, TerminalWidth::default()).into())
}

/// v1.20.2 deletes the conntrack entries of UDP flows to an endpoint that is no longer ready; v1.21
/// does not (kubernetes v1.21.2, `pkg/proxy/endpoints.go`, `detectStaleConnections`). There, open
/// flows continue to a terminating endpoint, and nothing else differs.
fn check_step_difference_is_found() -> Result<(), Failed> {
    let binary = bench::binary()?;
    let names = [CASE_WITH_STEPS.to_owned()];
    let verification = compare_cases(&binary, Some("v1.21"), &names, &[], |_| {})?;
    let changed: Vec<(Option<&str>, &str)> = verification
        .changed
        .iter()
        .map(|changed| (changed.flow.step.as_deref(), changed.flow.probe.as_str()))
        .collect();
    let stays = |times: &[OutcomeCount]| {
        let answered = times.iter().filter_map(|times| {
            let outcome = &times.outcome;
            (outcome.initial_endpoint.is_none()).then_some(outcome.endpoint.as_deref()?)
        });
        answered.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let is_expected = verification.changed.iter().all(|changed| {
        stays(&changed.against).len() == 2
            && stays(&changed.new) == BTreeSet::from(["pod/default/web-b".to_owned()])
    });
    if changed == [(Some("oneLeaves"), "askAsOneLeaves")]
        && is_expected
        && verification.exit_code() == 1
    {
        return Ok(());
    }
    Err(render_text(&verification, true, false, TerminalWidth::default()).into())
}
