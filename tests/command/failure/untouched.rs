//! Tests that a run changes nothing outside its labs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serial_test::file_serial;

use crate::support::run;

/// Commands that print the network configuration of the machine.
const LISTS: [&[&str]; 9] = [
    &["iptables-nft-save"],
    &["iptables-legacy-save"],
    &["ip6tables-nft-save"],
    &["nft", "list", "ruleset"],
    &["ipset", "save"],
    &["ip", "-j", "addr"],
    &["ip", "-j", "route", "show", "table", "all"],
    &["ip", "-j", "rule"],
    &["ip", "netns"],
];

#[test]
#[file_serial(machine)]
fn run_labs_leaves_host_network_unchanged() {
    let before = machine_state();
    let output = run(&[
        "run",
        "canal-stale-rule/underlay=passes",
        "local-ingress/policy=Local",
        "--max-wait",
        "500ms",
    ]);
    // With so short a wait some cases fail; the test only needs them to run.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let after = machine_state();
    for (source, text) in &before {
        assert_eq!(Some(text), after.get(source), "{source} changed");
    }
    assert_eq!(before.len(), after.len());
}

fn machine_state() -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for list in LISTS {
        let output = Command::new(list[0])
            .args(&list[1..])
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", list[0]));
        state.insert(
            list.join(" "),
            without_times(&String::from_utf8_lossy(&output.stdout)),
        );
    }
    state.insert(
        "/proc/mounts".to_owned(),
        fs::read_to_string("/proc/mounts").expect("the mounts can be read"),
    );
    read_sysctls(Path::new("/proc/sys/net"), &mut state);
    state
}

/// Removes the lines with the time of a dump.
fn without_times(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("# Generated") && !line.starts_with("# Completed"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads every sysctl in a directory, except counters and random values.
fn read_sysctls(directory: &Path, state: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory)
        .expect("the settings can be listed")
        .flatten()
    {
        let path = entry.path();
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() {
            read_sysctls(&path, state);
        } else if !["nf_conntrack_count", "route/flush", "rpc_", "stable_secret"]
            .iter()
            .any(|moving| name.contains(moving))
            && let Ok(value) = fs::read_to_string(&path)
        {
            state.insert(name, value);
        }
    }
}
