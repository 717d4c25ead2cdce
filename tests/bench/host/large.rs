//! Measures `svclab diff`, `replay` and `bisect` with dumps of a node with 20,000 rules of
//! kube-proxy, on this host. A lab with the rules runs, and `scripts/collect-node` collects the
//! node before and after a rule is added that hides a service.
//!
//! Run by `scripts/bench large [KIND]…` on an idle machine; kinds of rules are `iptables-nft`,
//! `iptables-legacy` and `nftables`. The table has the time of each command, and the CPU time of its
//! programs.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use nix::sys::resource::{UsageWho, getrusage};
use svclab_test_support::running::Runtime;

/// Cluster with one node, a client and a service.
const LAB: &str = "apiVersion: svclab/v1
kind: Lab
metadata: {name: large}
spec:
  about: A node has 20,000 rules of kube-proxy.
  iptables: BACKEND
  kubeProxy: {version: v1.34, mode: MODE, clusterCIDR: 10.244.0.0/16}
  probes:
    call: {from: pod/default/client, to: 'service/default/web:80', connections: 2}
  expect:
  - call: {connected: 2}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.244.1.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec: {nodeName: node-1, containers: [{name: client}]}
status: {podIP: 10.244.1.9}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: web, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.244.1.10}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.10
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
";

/// Kind of rules on the node.
struct Variant {
    name: &'static str,
    mode: &'static str,
    backend: &'static str,
    /// Number of services with two endpoints for which kube-proxy writes 20,000 rules.
    services: usize,
    /// Command that adds the rule.
    fault: &'static str,
}

const VARIANTS: [Variant; 3] = [
    Variant {
        name: "iptables-nft",
        mode: "iptables",
        backend: "nft",
        services: 2_500,
        fault: "iptables-nft -t nat -I KUBE-SERVICES -d 10.96.0.10/32 -j RETURN",
    },
    Variant {
        name: "iptables-legacy",
        mode: "iptables",
        backend: "legacy",
        services: 2_500,
        fault: "iptables-legacy -t nat -I KUBE-SERVICES -d 10.96.0.10/32 -j RETURN",
    },
    Variant {
        name: "nftables",
        mode: "nftables",
        backend: "nft",
        services: 3_340,
        fault: "nft insert rule ip kube-proxy services ip daddr 10.96.0.10 return",
    },
];

/// Targets of the commands.
const TARGETS: [(&str, Duration); 3] = [
    ("diff", Duration::from_millis(500)),
    ("replay", Duration::from_secs(3)),
    ("bisect", Duration::from_secs(10)),
];

/// Number of measurements, of which the table has the fastest.
const ROUNDS: usize = 3;

fn svclab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_svclab"))
}

/// Writes the lab with its services. Returns its path.
fn write_lab(directory: &Path, variant: &Variant) -> PathBuf {
    let mut lab = LAB
        .replace("BACKEND", variant.backend)
        .replace("MODE", variant.mode);
    for n in 0..variant.services {
        let (high, low) = (n / 125, n % 125);
        let _ = write!(
            lab,
            "---
apiVersion: v1
kind: Service
metadata: {{name: service-{n}, namespace: default}}
spec: {{clusterIP: 10.97.{high}.{low}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: service-{n}, namespace: default, labels: {{kubernetes.io/service-name: service-{n}}}}}
addressType: IPv4
ports: [{{name: http, port: 8080, protocol: TCP}}]
endpoints: [{{addresses: [10.244.{}.{}]}}, {{addresses: [10.244.{}.{}]}}]
",
            high + 2,
            2 * low + 1,
            high + 2,
            2 * low + 2,
        );
    }
    let path = directory.join("large.yaml");
    std::fs::write(&path, lab).expect("the lab can be written");
    path
}

/// Collects the node before and after the fault. Returns the paths of the dumps.
fn collect(directory: &Path, lab: &Path, fault: &str) -> [String; 2] {
    let runtime = Runtime::new(svclab);
    runtime.up(&lab.display().to_string());
    let collect = |name: &str| {
        let path = directory.join(name);
        let script = File::open(svclab_test_support::root().join("scripts/collect-node"))
            .expect("the script");
        let mut collecting = runtime.svclab(&["exec", "node-1", "--", "sh", "-s", "--", "-o", "-"]);
        let collected = collecting
            .stdin(script)
            .stdout(File::create(&path).expect("the file can be written"))
            .stderr(Stdio::inherit())
            .status();
        assert!(collected.expect("the command starts").success());
        path.display().to_string()
    };
    let good = collect("good.tar.gz");
    let words = fault.split(' ');
    let words: Vec<&str> = ["exec", "node-1", "--"].into_iter().chain(words).collect();
    let output = runtime.run(&words);
    assert!(output.status.success(), "{output:?}");
    [good, collect("bad.tar.gz")]
}

/// CPU time of all children that have ended.
fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the usage of children");
    let times = [usage.user_time(), usage.system_time()];
    let microseconds = times.map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
    Duration::from_micros(microseconds.iter().sum::<i64>().unsigned_abs())
}

/// Runs a command and checks that its answer names the fault. Returns its time and its CPU time.
fn measure(command: &str, arguments: &[&str]) -> (Duration, Duration) {
    let (started, cpu) = (Instant::now(), cpu_time());
    let output = svclab().arg(command).args(arguments).output();
    let took = (started.elapsed(), cpu_time().saturating_sub(cpu));
    let output = output.expect("the command starts");
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.contains("10.96.0.10"), "{command}: {output:?}");
    took
}

fn main() {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "20,000 rules of",
        "command",
        "fastest",
        "CPU time",
        "target",
        "",
    ]);
    let names: Vec<String> = std::env::args().skip(1).collect();
    let is_selected = |variant: &&Variant| {
        let mut filters = names
            .iter()
            .filter(|name| !name.starts_with('-'))
            .peekable();
        filters.peek().is_none() || filters.any(|name| variant.name.contains(name.as_str()))
    };
    for variant in VARIANTS.iter().filter(is_selected) {
        let directory = tempfile::tempdir().expect("a directory");
        let lab = write_lab(directory.path(), variant);
        let [good, bad] = collect(directory.path(), &lab, variant.fault);
        let lab = lab.display().to_string();
        for (command, target) in TARGETS {
            let arguments: &[&str] = match command {
                "diff" => &[&good, &bad],
                "replay" => &[&bad, "--objects", &lab],
                _ => &[
                    "--case", &lab, "--node", "node-1", "--good", &good, "--bad", &bad,
                ],
            };
            let times = (0..ROUNDS).map(|_| measure(command, arguments));
            let (fastest, cpu) = times.min().expect("a round");
            let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
            table.add_row([
                variant.name.to_owned(),
                command.to_owned(),
                seconds(fastest),
                seconds(cpu),
                seconds(target),
                if fastest <= target { "met" } else { "missed" }.to_owned(),
            ]);
        }
    }
    println!("{table}");
}
