//! Tests labs at the memory limit of a guest, and above it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use svclab_test_support::guests::new_cache;

use crate::command::{CommandResult, assert_output_snapshot, run};

/// Writes a lab with this number of pods on one node. Returns the path.
fn write_lab(directory: &Path, pods: usize) -> String {
    let mut text = "apiVersion: svclab/v1
kind: Lab
metadata: {name: large}
spec:
  about: Many pods, of which one calls another.
  kubeProxy: {version: v1.30}
  probes:
    call: {from: pod/default/p0, to: pod/default/p1:80}
  expect:
  - call: {connected: 1}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.0.0.0/16}
status: {addresses: [{type: InternalIP, address: 192.168.1.1}]}
"
    .to_owned();
    for pod in 0..pods {
        let address = format!("10.0.{}.{}", 1 + pod / 250, 2 + pod % 250);
        let _ = write!(
            text,
            "---
apiVersion: v1
kind: Pod
metadata: {{name: p{pod}, namespace: default}}
spec: {{nodeName: node-1, containers: [{{name: c, ports: [{{containerPort: 80}}]}}]}}
status: {{podIP: {address}, podIPs: [{{ip: {address}}}]}}
"
        );
    }
    let file = directory.join("large.yaml");
    fs::write(&file, text).expect("a file");
    file.to_str().expect("text").to_owned()
}

fn run_lab_with_pods(pods: usize) -> (CommandResult, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = write_lab(directory.path(), pods);
    let (_directory, cache) = new_cache("6.12");
    let path = std::env::var_os("PATH").expect("PATH is set");
    let arguments = ["run", &lab, "--kernel", "6.12"];
    (run(cache.directory(), path.as_ref(), &arguments), directory)
}

/// The stated limit is sufficient.
#[test]
fn lab_within_guest_memory_passes() {
    let (ended, _) = run_lab_with_pods(280);
    assert_eq!(ended.code, Some(0), "{}", ended.output);
}

#[test]
fn lab_above_guest_memory_is_refused() {
    let (ended, directory) = run_lab_with_pods(330);
    assert_eq!(ended.code, Some(3), "{}", ended.output);
    assert_output_snapshot!(ended, directory.path());
}
