//! Tests `svclab bisect` on this host: found culprits, and errors where good and bad cannot be
//! compared.

use std::path::Path;

use serde_json::Value;
use svclab_test_support::running::Runtime;

use crate::dump::replay::{CALL, MIRROR, collect_node, write_objects};
use crate::running::Labs;
use crate::support::{LAB, assert_matches_schema, run, stderr, stdout, svclab, write_lab};

const REMOVED: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";
const PRESENT: &str = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";

/// Runs `bisect` with these arguments. Returns the exit code and both output streams, without the
/// name of `home`.
fn bisect(arguments: &[&str], home: Option<&Path>) -> (Option<i32>, String) {
    let mut command = vec!["bisect", "--kernel=host"];
    command.extend(arguments);
    let output = run(&command);
    let mut text = stdout(&output) + &stderr(&output);
    if let Some(home) = home {
        text = text.replace(&home.display().to_string(), "LABS");
    }
    (output.status.code(), text)
}

/// Runs `bisect` with arguments that are refused. Returns the output.
fn bisect_refused(arguments: &[&str], home: Option<&Path>) -> String {
    let (code, text) = bisect(arguments, home);
    assert_eq!(code, Some(2), "{text}");
    text
}

macro_rules! assert_output_snapshot {
    ($text:expr) => {
        insta::with_settings!({filters => vec![
            (r"(\d+) trials in \d+\.\d s on \S+;", "$1 trials in N s on KERNEL;"),
            (r"on [0-9.]+[^ \n]*\n", "on KERNEL\n"),
            // A busy machine may lose some connections on the way.
            (r"connected \d+ to (\S+) from ([^\s,]+)(, timeout \d+)?", "connected N to $1 from $2"),
            (r"timeout \d+", "timeout N"),
        ]}, {
            insta::assert_snapshot!($text);
        });
    };
}

/// Writes a lab of two cases; the second has one more rule.
fn lab_with_harmless_rule() -> (tempfile::TempDir, std::path::PathBuf) {
    let more = "  axes:\n    rule:\n      without: []\n      with:\n      - {patch: Lab, merge: \
                {spec: {nodes: {node-1: {leftovers: {iptables: [\"*filter\", \"-A FORWARD -d \
                203.0.113.77 -j DROP\"]}}}}}}\n";
    let text = LAB.replacen("  axes:\n", more, 1);
    assert_ne!(text, LAB);
    write_lab(text)
}

#[test]
fn bisect_s2_cases_finds_surplus_rule() {
    let directory = tempfile::tempdir().expect("a directory");
    let report = directory.path().join("report");
    let report_path = report.display().to_string();
    let (code, text) = bisect(
        &[
            "--good",
            REMOVED,
            "--bad",
            PRESENT,
            "--report",
            &report_path,
        ],
        None,
    );
    assert_eq!(code, Some(0), "{text}");
    assert_output_snapshot!(text);
    let file = |name: &str| std::fs::read_to_string(report.join(name)).expect("a file");
    let answer = file("answer.txt");
    let (answer, trials) = answer.split_at(text.len());
    assert_eq!(answer, text);
    assert_output_snapshot!(trials.trim_start());
    assert!(file("index.html").contains("svclab bisect"));
    // The bad side is beside the good one.
    let sides = std::fs::read_dir(report.join("canal-stale-rule")).expect("a directory");
    let sides: Vec<_> = sides.map(|side| side.expect("an entry").path()).collect();
    assert_eq!(sides.len(), 2, "{sides:?}");
    let is_bad = |side: &&std::path::PathBuf| side.to_string_lossy().contains("stale=present");
    let bad = sides.iter().find(is_bad).expect("the bad side");
    let page = std::fs::read_to_string(bad.join("index.html")).expect("a file");
    let (_, beside) = page
        .split_once("Beside another case")
        .expect("a comparison");
    for part in ["(good)", "side: good instead of bad", "no packet came here"] {
        assert!(beside.contains(part), "{part}: {beside}");
    }
    let document: Value = serde_json::from_str(&file("answer.json")).expect("JSON");
    assert_matches_schema(&document, include_str!("../../schema/bisection.v1.json"));
    let found = &document["breaks"][0][0];
    assert_eq!(
        found["bad"],
        "! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN"
    );
    assert_eq!(found["location"], "iptables nat POSTROUTING");
}

#[test]
fn bisect_cases_with_same_behavior_is_refused() {
    let (directory, path) = lab_with_harmless_rule();
    let case = |value: &str| format!("{}/rule={value},policy=Local", path.display());
    assert_output_snapshot!(bisect_refused(
        &["--good", &case("without"), "--bad", &case("with")],
        Some(directory.path())
    ));
}

#[test]
fn bisect_case_with_itself_is_refused() {
    assert_output_snapshot!(bisect_refused(&["--good", REMOVED, "--bad", REMOVED], None));
}

#[test]
fn bisect_unknown_probe_is_refused() {
    assert_output_snapshot!(bisect_refused(
        &["--good", REMOVED, "--bad", PRESENT, "--probe", "cal"],
        None
    ));
}

#[test]
fn bisect_side_with_two_cases_is_refused() {
    let (directory, path) = lab_with_harmless_rule();
    let lab = path.display().to_string();
    assert_output_snapshot!(bisect_refused(
        &["--good", &lab, "--bad", &lab],
        Some(directory.path())
    ));
}

#[test]
fn bisect_labs_with_other_nodes_is_refused() {
    let (directory, path) = write_lab(LAB);
    let lab = format!("{}/policy=Local", path.display());
    assert_output_snapshot!(bisect_refused(
        &["--good", &lab, "--bad", PRESENT],
        Some(directory.path())
    ));
}

#[test]
fn bisect_dumps_in_case_without_node_is_refused() {
    assert_output_snapshot!(bisect_refused(
        &["--good", "a", "--bad", "b", "--case", PRESENT],
        None
    ));
}

#[test]
fn bisect_all_kernels_is_refused() {
    let output = run(&[
        "bisect",
        "--kernel=all",
        "--good",
        REMOVED,
        "--bad",
        PRESENT,
    ]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(stderr(&output));
}

#[test]
fn bisect_dumps_unknown_node_or_sets_is_refused() {
    let dump = "tests/recorded/bisect/s4/good.iptables-save";
    let over = |node: &str| {
        bisect_refused(
            &[
                "--good", dump, "--bad", dump, "--case", PRESENT, "--node", node,
            ],
            None,
        )
    };
    assert_output_snapshot!(over("node-9"));
    assert_output_snapshot!(over("node-1"));
    let arguments = [
        "--good", "none", "--bad", dump, "--case", PRESENT, "--node", "node-1",
    ];
    assert_output_snapshot!(bisect_refused(&arguments, None));
}

/// Dumps of complete nodes replace the node of a case.
#[test]
fn bisect_s2_node_bundles_finds_surplus_rule() {
    let directory = tempfile::tempdir().expect("a directory");
    let [good, bad] = [("good", REMOVED), ("bad", PRESENT)].map(|(name, case)| {
        let runtime = Runtime::new(svclab);
        runtime.up(case);
        let file = directory.path().join(format!("{name}.tar.gz"));
        collect_node(&runtime, "node-1", &file);
        file.display().to_string()
    });
    let arguments = [
        "--good", &good, "--bad", &bad, "--case", PRESENT, "--node", "node-1",
    ];
    let (code, text) = bisect(&arguments, Some(directory.path()));
    assert_eq!(code, Some(0), "{text}");
    assert_output_snapshot!(text);
}

/// Dumps without a case: everything else is built from objects.
#[test]
fn bisect_two_dumps_finds_different_rule() {
    let labs = Labs::with_running_case();
    let directory = tempfile::tempdir().expect("a directory");
    let objects = write_objects(directory.path());
    let collect = |name: &str| {
        let file = directory.path().join(name);
        collect_node(&labs.runtime, "node-1", &file);
        file.display().to_string()
    };
    let good = collect("node-1.tar.gz");
    let rule = [
        "-I", "FORWARD", "-p", "tcp", "--dport", "8080", "-j", "DROP",
    ];
    let exec = ["exec", "node-1", "--", "iptables"];
    labs.runtime.run(&[&exec[..], &rule].concat());
    let bad = collect("sick.tar.gz");
    let sides = ["--good", &good, "--bad", &bad];
    let bisect_sides = |more: &[&str]| bisect(&[&sides[..], more].concat(), Some(directory.path()));
    let (code, text) = bisect_sides(&["--objects", &objects, "--probe", CALL]);
    assert_eq!(code, Some(0), "{text}");
    assert_output_snapshot!(text);
    // A probe is required, and it must not come from a case.
    for more in [&[][..], &["--probe", "call"], &["--case", PRESENT]] {
        let (code, text) = bisect_sides(more);
        assert_eq!(code, Some(2), "{text}");
        assert_output_snapshot!(text);
    }
    assert_output_snapshot!(bisect_refused(
        &["--good", REMOVED, "--bad", &bad],
        Some(directory.path())
    ));
    // Both dumps must replace the same node.
    let [good, bad] = [format!("node-1={good}"), format!("node-2={bad}")];
    let arguments = [
        "--good",
        &good,
        "--bad",
        &bad,
        "--probe",
        "node-1->10.0.0.1:1",
    ];
    assert_output_snapshot!(bisect_refused(&arguments, Some(directory.path())));
}

/// Two faults that break different probes are both found, each with its probe.
#[test]
fn bisect_two_independent_faults_finds_both() {
    let (_directory, path) = write_lab(include_str!("cures.yaml"));
    let [good, bad] = ["none", "both"].map(|fault| format!("{}/fault={fault}", path.display()));
    let arguments = ["--good", &good, "--bad", &bad, "--format=json"];
    let (code, text) = bisect(&arguments, None);
    assert_eq!(code, Some(0), "{text}");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_matches_schema(&document, include_str!("../../schema/bisection.v1.json"));
    let further = document["further"].as_array().expect("further findings");
    let mut named: Vec<(&str, String)> = further
        .iter()
        .chain([&document])
        .map(|finding| {
            let probe = finding["symptom"]["probe"].as_str().expect("a probe");
            (probe, finding["fixes"][0][0]["bad"].to_string())
        })
        .collect();
    named.sort_unstable();
    let [(first, of_call), (second, of_out)] = named.as_slice() else {
        panic!("{named:?}");
    };
    assert_eq!((*first, *second), ("call", "out"));
    assert!(
        of_call.contains("10.244.2.10") && of_out.contains("198.51.100.7"),
        "{named:?}"
    );
}

/// Bisects the dumps of a node before and after a command on the node.
fn bisect_after_command(command: &str) -> (Option<i32>, String) {
    let labs = Labs::with_running_case();
    let directory = tempfile::tempdir().expect("a directory");
    let objects = write_objects(directory.path());
    let collect = |name: &str| {
        let file = directory.path().join(name);
        collect_node(&labs.runtime, "node-1", &file);
        file.display().to_string()
    };
    let good = collect("good.tar.gz");
    let exec = ["exec", "node-1", "--", "sh", "-ec", command];
    let changed = labs.runtime.run(&exec);
    assert_eq!(changed.status.code(), Some(0), "{}", stderr(&changed));
    let bad = collect("bad.tar.gz");
    bisect_bundles(directory.path(), &objects, [&good, &bad])
}

/// Bisects two dumps of node-1, the good one first.
fn bisect_bundles(
    directory: &Path,
    objects: &str,
    [good, bad]: [&str; 2],
) -> (Option<i32>, String) {
    let arguments = [
        "--good",
        good,
        "--bad",
        bad,
        "--node=node-1",
        "--objects",
        objects,
        "--probe",
        CALL,
    ];
    bisect(&arguments, Some(directory))
}

#[test]
fn bisect_dumps_finds_address_of_loopback() {
    let (code, text) = bisect_after_command("ip addr add 10.244.1.10/32 dev lo");
    assert_eq!(code, Some(0), "{text}");
    assert_output_snapshot!(text);
}

/// Parts that no lab builds are the only difference.
#[test]
fn bisect_dumps_lists_differences_not_tried() {
    let (code, text) = bisect_after_command(MIRROR);
    assert_eq!(code, Some(1), "{text}");
    assert_output_snapshot!(text);
}

#[test]
fn bisect_dumps_finds_interface_that_is_down() {
    let (code, text) = bisect_after_command("ip link set cbr0 down");
    assert_eq!(code, Some(0), "{text}");
    assert_output_snapshot!(text);
}

/// A rule that only the other iptables backend of a node has.
#[test]
fn bisect_dumps_finds_legacy_rule_beside_nftables() {
    let labs = Labs::with_running_case();
    let directory = tempfile::tempdir().expect("a directory");
    let objects = write_objects(directory.path());
    let exec = ["exec", "node-1", "--"];
    let [good, bad] = ["10.244.9.9", "10.244.1.10"].map(|address| {
        let rule = format!("iptables-legacy -A FORWARD -d {address} -j DROP");
        let words: Vec<&str> = exec.into_iter().chain(rule.split(' ')).collect();
        labs.runtime.run(&words);
        let file = directory.path().join(format!("{address}.tar.gz"));
        collect_node(&labs.runtime, "node-1", &file);
        file.display().to_string()
    });
    let (code, text) = bisect_bundles(directory.path(), &objects, [&good, &bad]);
    assert_eq!(code, Some(0), "{text}");
    assert_output_snapshot!(text);
}

#[test]
fn bisect_unwritable_report_exits_3() {
    let (code, text) = bisect(
        &[
            "--good",
            REMOVED,
            "--bad",
            PRESENT,
            "--report",
            "/proc/none",
        ],
        None,
    );
    assert_eq!(code, Some(3), "{text}");
    assert_output_snapshot!(text);
}
