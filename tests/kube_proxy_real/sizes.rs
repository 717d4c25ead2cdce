//! Tests hundreds and thousands of services on the host. A user of a namespace cannot send all
//! their rules in one message. svclab and real kube-proxies write the rules, and probes use the
//! rules that were written last.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use svclab_experiment::verify::read_version;
use svclab_rules::kube_proxy::{Mode, Version};
use svclab_test_support::block_on;

use crate::trial;
use crate::{bench, verify};

const SIZES: [usize; 3] = [500, 2_000, 5_000];

/// Program that writes the rules.
#[derive(Clone)]
enum Writer {
    Generated(Version),
    Real(PathBuf, Version),
}

impl Writer {
    fn version(&self) -> Version {
        match self {
            Self::Generated(version) | Self::Real(_, version) => *version,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Generated(version) => format!("rules of {version}"),
            Self::Real(program, _) => program.display().to_string(),
        }
    }
}

/// Tool that loads the rules into the kernel.
#[derive(Debug, Clone, Copy)]
enum RuleFormat {
    Nft,
    Legacy,
    Nftables,
}

/// Returns one trial for each writer, tool and size.
pub fn trials() -> Vec<Trial> {
    let mut writers = Vec::new();
    let default_proxy = bench::binary().expect("the real kube-proxy is built");
    for program in [default_proxy]
        .into_iter()
        .chain(verify::other_kube_proxies())
    {
        let found = block_on(read_version(&program, verify::new_host()));
        let version = found.expect("the program prints its version").version;
        writers.extend([Writer::Generated(version), Writer::Real(program, version)]);
    }
    if verify::other_kube_proxies().next().is_none() {
        writers.push(Writer::Generated(Version::NEWEST));
    }
    let mut trials = Vec::new();
    for writer in writers {
        for way in [RuleFormat::Nft, RuleFormat::Legacy, RuleFormat::Nftables] {
            if matches!(way, RuleFormat::Nftables)
                && writer.version().minor_number() < verify::FIRST_NFTABLES_MINOR
            {
                continue;
            }
            for size in SIZES {
                let writer = writer.clone();
                let name = format!("sizes::{size} services: {way:?}: {}", writer.name());
                trials.push(trial(name, move || check_lab_passes(&writer, way, size)));
            }
        }
    }
    trials
}

fn check_lab_passes(writer: &Writer, way: RuleFormat, size: usize) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("sizes.yaml");
    std::fs::write(&path, lab(writer.version(), way, size)?)?;
    let mut command = Command::new(crate::SVCLAB);
    command
        .current_dir(svclab_test_support::root())
        .env("NO_COLOR", "1")
        .args(["run", "--kernel", "host"])
        .arg(&path);
    if let Writer::Real(program, _) = writer {
        command.arg("--kube-proxy").arg(program);
        command.args(["--kube-proxy-timeout", "10m"]);
    }
    let output = command.output()?;
    let output_bytes = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&output_bytes).into_owned();
    if output.status.success() {
        eprintln!("{told}");
        return Ok(());
    }
    Err(told.into())
}

/// Returns a lab with two nodes and that many services with two pods, one of which is deleted.
/// Probes connect to the first and the last service, and to a node port, before and after.
fn lab(version: Version, way: RuleFormat, size: usize) -> Result<String, std::fmt::Error> {
    let mode = match way {
        RuleFormat::Nftables => Mode::Nftables,
        RuleFormat::Nft | RuleFormat::Legacy => Mode::Iptables,
    };
    let tool = match way {
        RuleFormat::Legacy => "legacy",
        RuleFormat::Nft | RuleFormat::Nftables => "nft",
    };
    let last = size - 1;
    let mut text = format!(
        "apiVersion: svclab/v1
kind: Lab
metadata: {{name: sizes}}
spec:
  about: The last of thousands of services works.
  iptables: {tool}
  kubeProxy: {{version: {version}, mode: {mode}, clusterCIDR: 10.244.0.0/16}}
  hosts: {{laptop: {{address: 203.0.113.9/24}}}}
  probes:
    first: {{from: pod/default/client, to: \"service/default/s0:80\", connections: 32}}
    last: {{from: pod/default/client, to: \"service/default/s{last}:80\", connections: 32}}
    nodePort: {{from: host/laptop, to: \"node-2:30080\", connections: 32}}
  steps:
  - name: oneLeaves
    change: [{{delete: Pod/default/web-a}}]
    probes:
      firstLater: {{from: pod/default/client, to: \"service/default/s0:80\", connections: 32}}
      lastLater: {{from: pod/default/client, to: \"service/default/s{last}:80\", connections: 32}}
      nodePortLater: {{from: host/laptop, to: \"node-2:30080\", connections: 32}}
  expect:
  - first: &both {{connected: 32, endpoints: [web-a, web-b]}}
    last: *both
    nodePort: *both
    firstLater: &one {{connected: 32, endpoints: [web-b]}}
    lastLater: *one
    nodePortLater: *one
"
    );
    for node in 1..=2 {
        writeln!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: node-{node}}}\n\
             spec: {{podCIDR: 10.244.{node}.0/24}}\n\
             status: {{addresses: [{{type: InternalIP, address: 192.168.{node}.11}}]}}"
        )?;
    }
    for (name, node, last) in [("client", 1, 9), ("web-a", 1, 10), ("web-b", 2, 10)] {
        let app = name.split('-').next().unwrap_or(name);
        writeln!(
            text,
            "---\napiVersion: v1\nkind: Pod\n\
             metadata: {{name: {name}, namespace: default, labels: {{app: {app}}}}}\n\
             spec: {{nodeName: node-{node}, containers: [{{name: it}}]}}\n\
             status: {{podIP: 10.244.{node}.{last}}}"
        )?;
    }
    for index in 0..size {
        let (high, low) = (100 + index / 250, 1 + index % 250);
        let port = if index == last {
            "type: NodePort, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]"
        } else {
            "ports: [{port: 80, targetPort: 8080}]"
        };
        writeln!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{index}, namespace: default}}\n\
             spec: {{clusterIP: 10.96.{high}.{low}, selector: {{app: web}}, {port}}}"
        )?;
    }
    Ok(text)
}
