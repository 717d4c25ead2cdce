//! Measures `svclab run` with large clusters on this host, beside the programs alone: `nft` or
//! `iptables-restore` that load the same rules into empty namespaces, one program per processor at a
//! time.
//!
//! Run by `scripts/bench growth` on an idle machine.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use svclab_model::plan::Backend;
use svclab_runner::run::{prepare, select_labs};

/// Cluster whose pods and services are spread over its nodes.
struct Cluster {
    nodes: usize,
    pods: usize,
    services: usize,
    /// Settings of the lab.
    mode: &'static str,
    backend: &'static str,
    target: Duration,
}

const CLUSTERS: [Cluster; 4] = [
    Cluster::new([100, 1_000, 1_000], "iptables", "legacy", 5),
    Cluster::new([100, 1_000, 1_000], "nftables", "nft", 12),
    Cluster::new([3, 30, 5_000], "iptables", "legacy", 1),
    Cluster::new([3, 30, 5_000], "nftables", "nft", 2),
];

/// Number of measurements, of which the table has the median.
const ROUNDS: usize = 3;

/// Time in which the kernel removes the namespaces of a run, which slows down the next one.
const PAUSE: Duration = Duration::from_secs(8);

impl Cluster {
    const fn new(
        [nodes, pods, services]: [usize; 3],
        mode: &'static str,
        backend: &'static str,
        target: u64,
    ) -> Self {
        let target = Duration::from_secs(target);
        Self {
            nodes,
            pods,
            services,
            mode,
            backend,
            target,
        }
    }

    fn name(&self) -> String {
        format!(
            "{} nodes, {} pods, {} services",
            self.nodes, self.pods, self.services
        )
    }

    /// Returns a lab that calls the first and the last service.
    fn lab(&self) -> String {
        let mut lab = format!(
            "apiVersion: svclab/v1
kind: Lab
metadata: {{name: growth}}
spec:
  about: A large cluster.
  iptables: {}
  kubeProxy: {{version: v1.36, mode: {}, clusterCIDR: 10.128.0.0/9, accounting: false}}
  fabric: {{type: switched}}
  probes:
    first: {{from: pod/default/pod-0, to: 'service/default/service-0:80'}}
    last: {{from: pod/default/pod-0, to: 'service/default/service-{}:80'}}
  expect:
  - first: {{connected: 1}}
    last: {{connected: 1}}
",
            self.backend,
            self.mode,
            self.services - 1
        );
        for n in 0..self.nodes {
            let _ = write!(
                lab,
                "---
apiVersion: v1
kind: Node
metadata: {{name: node-{n}}}
spec: {{podCIDR: 10.128.{n}.0/24}}
status: {{addresses: [{{type: InternalIP, address: 172.18.1.{}}}]}}
",
                n + 1
            );
        }
        for n in 0..self.pods {
            let (node, place) = (n % self.nodes, n / self.nodes);
            let _ = write!(
                lab,
                "---
apiVersion: v1
kind: Pod
metadata: {{name: pod-{n}, namespace: default, labels: {{app: app-{n}}}}}
spec: {{nodeName: node-{node}, containers: [{{name: web, ports: [{{containerPort: 8080}}]}}]}}
status: {{podIP: 10.128.{node}.{}}}
",
                place + 10
            );
        }
        for n in 0..self.services {
            let _ = write!(
                lab,
                "---
apiVersion: v1
kind: Service
metadata: {{name: service-{n}, namespace: default}}
spec:
  clusterIP: 10.96.{}.{}
  selector: {{app: app-{}}}
  ports: [{{port: 80, targetPort: 8080}}]
",
                n / 250,
                n % 250 + 1,
                n % self.pods
            );
        }
        lab
    }

    fn run(path: &Path) -> Duration {
        let begun = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_svclab"))
            .arg("run")
            .arg(path)
            .output();
        let took = begun.elapsed();
        let output = output.expect("svclab starts");
        assert!(output.status.success(), "{output:?}");
        took
    }

    /// Returns the programs that load the rules of each node, with their arguments and their input.
    fn loads(path: &Path) -> Vec<(&'static [&'static str], String)> {
        let name = path.display().to_string();
        let chosen = select_labs(&[name], &svclab_test_support::topologies()).expect("a lab");
        let case = &chosen[0].scenario.cases()[0];
        let case = prepare(&chosen[0], case, Duration::from_secs(3)).expect("the case is valid");
        let namespaces = case.plan.namespaces.iter();
        let loads = namespaces.flat_map(|namespace| {
            let rules = namespace.iptables_rules().map(|rules| {
                let program: &[&str] = match rules.backend {
                    Backend::Legacy => &["iptables-legacy-restore", "--noflush"],
                    Backend::Nft => &["iptables-nft-restore", "--noflush"],
                };
                (program, rules.v4.text())
            });
            let tables: &[&str] = &["nft", "-f", "-"];
            rules.chain([(tables, namespace.nft.text())])
        });
        let loads = loads.filter(|(_, input)| !input.is_empty());
        loads
            .map(|(program, input)| (program, input.to_owned()))
            .collect()
    }
}

/// Loads rules with the programs alone, each in a new namespace.
fn load(loads: &[(&[&str], String)]) -> Duration {
    let queue = Mutex::new(loads.iter());
    let work = || {
        loop {
            let Some((program, input)) = queue.lock().expect("no worker panicked").next() else {
                return;
            };
            let child = Command::new("unshare")
                .args(["--net", "--"])
                .args(*program)
                .stdin(Stdio::piped())
                .spawn();
            let mut child = child.expect("the program starts");
            let mut stdin = child.stdin.take().expect("the input is a pipe");
            stdin
                .write_all(input.as_bytes())
                .expect("the program reads");
            drop(stdin);
            assert!(child.wait().expect("the program ends").success());
        }
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(work);
        }
    });
    begun.elapsed()
}

fn median(measure: impl Fn() -> Duration) -> Duration {
    let measured = (0..ROUNDS).map(|_| {
        sleep(PAUSE);
        measure()
    });
    let mut measured: Vec<Duration> = measured.collect();
    measured.sort_unstable();
    measured[ROUNDS / 2]
}

fn main() {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "cluster",
        "mode",
        "svclab run",
        "target",
        "",
        "the programs alone",
        "ratio",
    ]);
    for cluster in &CLUSTERS {
        let directory = tempfile::tempdir().expect("a directory");
        let path: PathBuf = directory.path().join("growth.yaml");
        std::fs::write(&path, cluster.lab()).expect("the lab can be written");
        let run = median(|| Cluster::run(&path));
        let loads = Cluster::loads(&path);
        let alone = median(|| load(&loads));
        let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
        table.add_row([
            cluster.name(),
            format!("{}, {}", cluster.mode, cluster.backend),
            seconds(run),
            seconds(cluster.target),
            if run <= cluster.target {
                "met"
            } else {
                "missed"
            }
            .to_owned(),
            seconds(alone),
            format!("{:.2}", run.as_secs_f64() / alone.as_secs_f64()),
        ]);
    }
    println!("{table}");
}
