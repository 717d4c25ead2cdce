//! Tests the how-to about a customer's report: follows its steps with the dumps of two nodes of a
//! lab, and compares the shown outputs.

use std::path::Path;
use std::process::{Command, Output};

use svclab_test_support::running::Runtime;

use super::Page;
use super::outputs::{assert_lines_printed, shown_outputs};
use crate::dump::replay::collect_node;
use crate::support::{stderr, stdout, svclab_without_drops};

/// Cluster of the customer.
pub(super) const CLUSTER: &str = include_str!("customer.yaml");

/// Rule that is missing on node-1.
const MISSING_RULE: &[&str] = &[
    "-d",
    "10.96.0.10/32",
    "-p",
    "tcp",
    "-m",
    "comment",
    "--comment",
    "default/web cluster IP",
    "-m",
    "tcp",
    "--dport",
    "80",
    "-j",
    "KUBE-SVC-LOLE4ISW44XBNF3G",
];

/// Writes the objects and the dumps of both nodes to a directory. On node-1, a rule is missing.
fn collect(directory: &Path) {
    let lab = directory.join("customer.yaml");
    std::fs::write(&lab, CLUSTER).expect("a lab");
    let (_, objects) = CLUSTER.split_once("---\n").expect("objects");
    std::fs::write(directory.join("objects.yaml"), objects).expect("objects");
    let runtime = Runtime::new(svclab_without_drops);
    runtime.up(&lab.display().to_string());
    let delete = [
        "exec",
        "node-1",
        "--",
        "iptables",
        "-t",
        "nat",
        "-D",
        "KUBE-SERVICES",
    ];
    let output = runtime.run(&[&delete[..], MISSING_RULE].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for node in ["node-1", "node-2"] {
        collect_node(&runtime, node, &directory.join(format!("{node}.tar.gz")));
    }
}

/// Runs a command line of the chapter.
fn run_line(directory: &Path, line: &str) -> Output {
    let words = shlex::split(line).expect("words");
    let (program, arguments) = words.split_first().expect("a program");
    let mut command = match program.as_str() {
        "svclab" => svclab_without_drops(),
        other => Command::new(other),
    };
    command
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the command starts")
}

#[test]
fn docs_customer_report_steps_lead_to_the_cause() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    collect(directory);
    let chapter = Page::read("docs/src/howto/customer-report.md");
    let (_, steps) = chapter.text.split_once("## 2. ").expect("step 2");
    let mut count = 0;
    for line in steps.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let output = run_line(directory, line);
        // `diff` finds differences.
        let expected = i32::from(line.starts_with("svclab diff"));
        assert_eq!(output.status.code(), Some(expected), "{line}: {output:?}");
        for shown in shown_outputs(line) {
            assert_lines_printed(&shown.text, &stdout(&output));
        }
        if line.contains("--write") {
            // The line that the chapter adds.
            let file = directory.join("report.yaml");
            let lab = std::fs::read_to_string(&file).expect("a lab");
            let added = "spec:\n  kubeProxy: {version: v1.30}\n";
            assert!(steps.contains(added));
            std::fs::write(&file, lab.replacen("spec:\n", added, 1)).expect("a lab");
        }
        count += 1;
    }
    assert_eq!(count, 8, "commands of the chapter");
    assert!(directory.join("answer.html").exists());
}
