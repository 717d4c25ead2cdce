//! Tests running labs with the real kube-proxy on their nodes, on this host and in a guest.
//! kube-proxy receives the lab's objects, probes match its rules, and it ends with the lab.

use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::processes::{Held, of_session};
use crate::standing_labs::Runtime;
use crate::{VERSION, bench, guests};

const IPTABLES: &str = "local-ingress/policy=Cluster,clusterCIDR=set,version=v1.20,mode=iptables";
const IPVS: &str = "local-ingress/policy=Local,clusterCIDR=none,version=v1.20,mode=ipvs";
const STEPPED: &str = "service-changes/version=v1.20.2,mode=iptables";

/// Returns the trials, each with its kernel.
pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("standing::on_the_host", on_the_host),
        Trial::test("standing::in_a_guest", in_a_guest),
        Trial::test("standing::before_its_steps", before_its_steps),
        Trial::test("standing::its_holder_is_killed", holder_is_killed),
    ]
}

fn svclab() -> Command {
    let mut command = Command::new(crate::SVCLAB);
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("SVCLAB_TOPOLOGIES")
        .env("NO_COLOR", "1")
        .env("SVCLAB_CACHE", guests::shared().directory());
    command
}

/// Starts a case with the kube-proxy on its nodes. Asserts that the API server refused no request.
fn standing(case: &str, kernel: &str) -> Result<Runtime, Failed> {
    let binary = bench::binary()?.display().to_string();
    let runtime = Runtime::of(svclab);
    let words = ["--detach", "--kernel", kernel, "--kube-proxy", &binary];
    let words: Vec<&str> = ["up", case].into_iter().chain(words).collect();
    let said = said(&runtime, &words)?;
    let runs = format!("{binary} runs on node-1, node-2, node-3.\n");
    if !said.contains(&runs) || said.contains("API server refused") {
        return Err(said.into());
    }
    let about = runtime.about();
    if (&about["case"], &about["state"]) != (&case.into(), &"standing".into()) {
        return Err(about.to_string().into());
    }
    Ok(runtime)
}

/// Runs a command that must succeed. Returns its output.
fn said(runtime: &Runtime, arguments: &[&str]) -> Result<String, Failed> {
    let output: Output = runtime.run(arguments);
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{arguments:?}: {}", runtime.told(&output)).into())
    }
}

/// Asserts that a command on node-2 prints this text.
fn shows(runtime: &Runtime, command: &[&str], text: &str) -> Result<(), Failed> {
    let words: Vec<&str> = ["exec", "node-2", "--"]
        .iter()
        .chain(command)
        .copied()
        .collect();
    let said = said(runtime, &words)?;
    if said.contains(text) {
        Ok(())
    } else {
        Err(format!("{command:?} does not show {text}, but:\n{said}").into())
    }
}

/// Asserts the verdict of the lab's first connection, and that its packets matched rules of this
/// kube-proxy.
fn explains(runtime: &Runtime, verdict: &str) -> Result<(), Failed> {
    let told = said(runtime, &["explain", "--standing", "--format=json"])?;
    let document: Value = serde_json::from_str(&told)?;
    let connection = &document["cases"][0]["connections"][0];
    if connection["verdict"] == verdict && told.contains("KUBE-") {
        Ok(())
    } else {
        Err(connection.to_string().into())
    }
}

/// Stops the lab and asserts that none of its processes runs.
fn goes(runtime: &Runtime) -> Result<(), Failed> {
    let holder = runtime.holder();
    let held = Held::new(holder);
    said(runtime, &["down"])?;
    held.is_gone();
    is_gone(runtime, holder);
    assert_eq!(runtime.files(), ["lock"]);
    Ok(())
}

/// Waits until no process of the daemon's session runs.
fn is_gone(runtime: &Runtime, holder: i32) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !of_session(holder).is_empty() {
        let left = of_session(holder);
        let files = runtime.files();
        assert!(std::time::Instant::now() < deadline, "{left:?}, {files:?}");
        std::thread::yield_now();
    }
}

/// Returns the number of kube-proxies in the daemon's session.
fn running(holder: i32) -> usize {
    let all = of_session(holder);
    all.iter().filter(|name| name.ends_with(VERSION)).count()
}

fn on_the_host() -> Result<(), Failed> {
    let runtime = standing(IPTABLES, "host")?;
    assert_eq!(running(runtime.holder()), 3);
    let save = ["iptables-nft-save", "-t", "nat"];
    shows(&runtime, &save, "\"ns1/nginx:http cluster IP\"")?;
    let probe = said(&runtime, &["probe", "host/laptop", "lb/ns1/nginx:80"])?;
    assert!(probe.contains("connected 1, "), "{probe}");
    explains(&runtime, "connected")?;
    goes(&runtime)
}

fn in_a_guest() -> Result<(), Failed> {
    // Fetches the kernel.
    guests::block_on(guests::guest("6.12"));
    let runtime = standing(IPVS, "6.12")?;
    assert_eq!(runtime.about()["guest"], true);
    shows(&runtime, &["ipvsadm", "-Sn"], "-A -t 172.30.0.40:80 -s rr")?;
    let probe = said(&runtime, &["probe", "host/laptop", "lb/ns1/nginx:80"])?;
    assert!(probe.contains("connected 1, "), "{probe}");
    explains(&runtime, "connected")?;
    goes(&runtime)
}

/// A running lab with steps is in the state before the first step, and so are its objects.
fn before_its_steps() -> Result<(), Failed> {
    let runtime = standing(STEPPED, "host")?;
    let save = ["iptables-nft-save", "-t", "nat"];
    shows(&runtime, &save, "--to-destination 10.244.2.10:8080")?;
    let words = ["exec", "node-2", "--", "iptables-nft-save", "-t", "nat"];
    let rules = said(&runtime, &words)?;
    // The step `oneComes` adds this endpoint.
    assert!(!rules.contains("--to-destination 10.244.3.10:"), "{rules}");
    explains(&runtime, "connected")?;
    goes(&runtime)
}

fn holder_is_killed() -> Result<(), Failed> {
    let runtime = standing(IPTABLES, "host")?;
    let holder = runtime.holder();
    assert_eq!(running(holder), 3);
    let held = Held::new(holder);
    kill(Pid::from_raw(holder), Signal::SIGKILL)?;
    held.is_gone();
    is_gone(&runtime, holder);
    Ok(())
}
