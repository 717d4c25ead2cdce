//! Tests that the quick commands of the documentation succeed with files as the pages describe
//! them.

use std::fs;

use super::commands::programs;
use super::customer_report::CLUSTER;
use super::outputs::{node_port_lab, shown_outputs};
use super::pages;
use crate::support::{stderr, stdout, svclab_without_drops};

/// Commands that need no guest, in the order in which they run.
const COMMANDS: &[&str] = &[
    "svclab plan node-port.yaml/policy=Local",
    "svclab graph node-port.yaml/policy=Local",
    "svclab graph --probe call node-port.yaml/policy=Local > local.svg",
    "svclab graph --probe call node-port.yaml/policy=Cluster > cluster.svg",
    "svclab run --report node-port.html node-port.yaml",
    "svclab run --topologies labs --write junit=results/junit.xml --write json=results/results.json",
    "svclab report shard-1 shard-2 --output all.html",
    "svclab report patched --baseline released --output changes.html",
    "svclab redact --key redact.key objects.yaml",
    "svclab rules --kube-version v1.25.1 --proxy-mode ipvs --node node-a --cluster-cidr 10.244.0.0/16 cluster.yaml",
    "svclab rules --history v1.17",
    "svclab schema",
    "svclab completions bash",
    "svclab ps",
];

/// Files that the commands write.
const WRITTEN: &[&str] = &[
    "node-port.html",
    "results/junit.xml",
    "results/results.json",
    "all.html",
    "changes.html",
    "objects.redacted.yaml",
];

#[test]
fn docs_quick_commands_succeed() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let write = |name: &str, text: &str| {
        fs::write(directory.join(name), text).expect("the file can be written");
    };
    fs::create_dir(directory.join("labs")).expect("a directory");
    write("node-port.yaml", &node_port_lab());
    write("labs/node-port.yaml", &node_port_lab());
    let (_, objects) = CLUSTER.split_once("---\n").expect("objects");
    write("objects.yaml", objects);
    write("cluster.yaml", &objects.replace("node-1", "node-a"));
    write("redact.key", &"5a".repeat(32));
    let run = |command: &str| {
        let words = programs(command).swap_remove(0);
        let output = svclab_without_drops()
            .args(&words[1..])
            .current_dir(directory)
            .env("XDG_RUNTIME_DIR", directory)
            .output()
            .expect("the command starts");
        assert_eq!(
            output.status.code(),
            Some(0),
            "{command}: {}",
            stderr(&output)
        );
        stdout(&output) + &stderr(&output)
    };
    for report in ["shard-1", "shard-2", "released", "patched"] {
        run(&format!("svclab run --report {report} node-port.yaml"));
    }
    let pages = pages();
    for command in COMMANDS {
        let is_shown = pages.iter().any(|page| {
            page.text.contains(&format!("$ {command}\n"))
                || page.text.contains(&format!("`{command}`"))
        });
        assert!(is_shown, "no page shows `{command}`");
        let printed = run(command);
        for shown in shown_outputs(command) {
            assert_eq!(shown.text.trim_end(), printed.trim_end(), "{command}");
        }
    }
    for file in WRITTEN {
        assert!(directory.join(file).exists(), "{file} is not written");
    }
}
