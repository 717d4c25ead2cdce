//! Tests running labs with the real kube-proxy on their nodes, on this host and in a guest.
//! kube-proxy receives the lab's objects, probes match its rules, and it ends with the lab.

use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use svclab_test_support::block_on;
use svclab_test_support::guests::{new_guest, shared_cache};
use svclab_test_support::processes::{HeldProcess, session_processes};
use svclab_test_support::running::Runtime;

use crate::trial;
use crate::{VERSION, bench};

const IPTABLES: &str = "local-ingress/policy=Cluster,clusterCIDR=set,version=v1.20,mode=iptables";
const IPVS: &str = "local-ingress/policy=Local,clusterCIDR=none,version=v1.20,mode=ipvs";
const STEPPED: &str = "service-changes/version=v1.20.2,mode=iptables";

/// Returns the trials, each with its kernel.
pub fn trials() -> Vec<Trial> {
    vec![
        trial("standing::check_on_host", check_on_host),
        trial("standing::check_in_guest", check_in_guest),
        trial("standing::check_before_steps", check_before_steps),
        trial("standing::its_holder_is_killed", check_daemon_killed),
    ]
}

fn svclab() -> Command {
    let mut command = Command::new(crate::SVCLAB);
    command
        .current_dir(svclab_test_support::root())
        .env_remove("SVCLAB_TOPOLOGIES")
        .env("NO_COLOR", "1")
        .env("SVCLAB_CACHE", shared_cache().directory());
    command
}

/// Starts a case with the kube-proxy on its nodes. Asserts that the API server refused no request.
fn start_lab(case: &str, kernel: &str) -> Result<Runtime, Failed> {
    let binary = bench::binary()?.display().to_string();
    let runtime = Runtime::new(svclab);
    let words = ["--detach", "--kernel", kernel, "--kube-proxy", &binary];
    let words: Vec<&str> = ["up", case].into_iter().chain(words).collect();
    let printed = run_command(&runtime, &words)?;
    let runs = format!("{binary} runs on node-1, node-2, node-3.\n");
    if !printed.contains(&runs) || printed.contains("API server refused") {
        return Err(printed.into());
    }
    let info = runtime.lab_info();
    if (&info["case"], &info["state"]) != (&case.into(), &"running".into()) {
        return Err(info.to_string().into());
    }
    Ok(runtime)
}

/// Runs a command that must succeed. Returns its output.
fn run_command(runtime: &Runtime, arguments: &[&str]) -> Result<String, Failed> {
    let output: Output = runtime.run(arguments);
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{arguments:?}: {}", runtime.render_output(&output)).into())
    }
}

/// Asserts that a command on node-2 prints this text.
fn assert_node_prints(runtime: &Runtime, command: &[&str], text: &str) -> Result<(), Failed> {
    let words: Vec<&str> = ["exec", "node-2", "--"]
        .iter()
        .chain(command)
        .copied()
        .collect();
    let output = run_command(runtime, &words)?;
    if output.contains(text) {
        Ok(())
    } else {
        Err(format!("{command:?} does not show {text}, but:\n{output}").into())
    }
}

/// Asserts the verdict of the lab's first connection, and that its packets matched rules of this
/// kube-proxy.
fn assert_explained(runtime: &Runtime, verdict: &str) -> Result<(), Failed> {
    let text = run_command(runtime, &["explain", "--running", "--format=json"])?;
    let document: Value = serde_json::from_str(&text)?;
    let connection = &document["cases"][0]["stages"][0]["connections"][0];
    if connection["verdict"] == verdict && text.contains("KUBE-") {
        Ok(())
    } else {
        Err(connection.to_string().into())
    }
}

/// Stops the lab and asserts that none of its processes runs.
fn stop_lab(runtime: &Runtime) -> Result<(), Failed> {
    let holder = runtime.daemon_pid();
    let held = HeldProcess::new(holder);
    run_command(runtime, &["down"])?;
    held.wait_for_end();
    wait_for_session_end(runtime, holder);
    assert_eq!(runtime.files(), ["lock"]);
    Ok(())
}

/// Waits until no process of the daemon's session runs.
fn wait_for_session_end(runtime: &Runtime, holder: i32) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !session_processes(holder).is_empty() {
        let left = session_processes(holder);
        let files = runtime.files();
        assert!(std::time::Instant::now() < deadline, "{left:?}, {files:?}");
        std::thread::yield_now();
    }
}

/// Returns the number of kube-proxies in the daemon's session.
fn count_kube_proxies(holder: i32) -> usize {
    let processes = session_processes(holder);
    processes
        .values()
        .filter(|name| name.ends_with(VERSION))
        .count()
}

fn check_on_host() -> Result<(), Failed> {
    let runtime = start_lab(IPTABLES, "host")?;
    assert_eq!(count_kube_proxies(runtime.daemon_pid()), 3);
    let save = ["iptables-nft-save", "-t", "nat"];
    assert_node_prints(&runtime, &save, "\"ns1/nginx:http cluster IP\"")?;
    let probe = run_command(&runtime, &["probe", "host/laptop", "lb/ns1/nginx:80"])?;
    assert!(probe.contains("connected 1, "), "{probe}");
    assert_explained(&runtime, "connected")?;
    stop_lab(&runtime)
}

fn check_in_guest() -> Result<(), Failed> {
    // Fetches the kernel.
    block_on(new_guest("6.12"));
    let runtime = start_lab(IPVS, "6.12")?;
    assert_eq!(runtime.lab_info()["guest"], true);
    assert_node_prints(&runtime, &["ipvsadm", "-Sn"], "-A -t 172.30.0.40:80 -s rr")?;
    let probe = run_command(&runtime, &["probe", "host/laptop", "lb/ns1/nginx:80"])?;
    assert!(probe.contains("connected 1, "), "{probe}");
    assert_explained(&runtime, "connected")?;
    stop_lab(&runtime)
}

/// A running lab with steps is in the state before the first step, and so are its objects.
fn check_before_steps() -> Result<(), Failed> {
    let runtime = start_lab(STEPPED, "host")?;
    let save = ["iptables-nft-save", "-t", "nat"];
    assert_node_prints(&runtime, &save, "--to-destination 10.244.2.10:8080")?;
    let words = ["exec", "node-2", "--", "iptables-nft-save", "-t", "nat"];
    let rules = run_command(&runtime, &words)?;
    // The step `oneComes` adds this endpoint.
    assert!(!rules.contains("--to-destination 10.244.3.10:"), "{rules}");
    assert_explained(&runtime, "connected")?;
    stop_lab(&runtime)
}

fn check_daemon_killed() -> Result<(), Failed> {
    let runtime = start_lab(IPTABLES, "host")?;
    let holder = runtime.daemon_pid();
    assert_eq!(count_kube_proxies(holder), 3);
    let held = HeldProcess::new(holder);
    kill(Pid::from_raw(holder), Signal::SIGKILL)?;
    held.wait_for_end();
    wait_for_session_end(&runtime, holder);
    Ok(())
}
