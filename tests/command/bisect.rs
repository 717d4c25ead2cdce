//! Tests `svclab bisect` on this host: found culprits, and errors where good and bad cannot be
//! compared.

use std::path::Path;

use serde_json::Value;

use super::replay::{CALL, collected, objects};
use super::standing::Labs;
use super::standing_labs::Runtime;
use super::support::{LAB, assert_fits, lab, run, stderr, stdout, svclab};

const REMOVED: &str = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";
const PRESENT: &str = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";

/// Runs `bisect` with these arguments. Returns the exit code and both output streams, without the
/// name of `home`.
fn said(arguments: &[&str], home: Option<&Path>) -> (Option<i32>, String) {
    let mut all = vec!["bisect", "--kernel=host"];
    all.extend(arguments);
    let output = run(&all);
    let mut text = stdout(&output) + &stderr(&output);
    if let Some(home) = home {
        text = text.replace(&home.display().to_string(), "LABS");
    }
    (output.status.code(), text)
}

/// Runs `bisect` with arguments that are refused. Returns the output.
fn refused(arguments: &[&str], home: Option<&Path>) -> String {
    let (code, text) = said(arguments, home);
    assert_eq!(code, Some(2), "{text}");
    text
}

macro_rules! assert_told {
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
fn harmless() -> (tempfile::TempDir, std::path::PathBuf) {
    let more = "  axes:\n    rule:\n      without: []\n      with:\n      - {patch: Lab, merge: \
                {spec: {nodes: {node-1: {leftovers: {iptables: [\"*filter\", \"-A FORWARD -d \
                203.0.113.77 -j DROP\"]}}}}}}\n";
    let text = LAB.replacen("  axes:\n", more, 1);
    assert_ne!(text, LAB);
    lab(text)
}

#[test]
fn the_surplus_rule_of_s2_and_how_it_was_narrowed_down() {
    let directory = tempfile::tempdir().expect("a directory");
    let report = directory.path().join("report");
    let at = report.display().to_string();
    let (code, text) = said(
        &["--good", REMOVED, "--bad", PRESENT, "--report", &at],
        None,
    );
    assert_eq!(code, Some(0), "{text}");
    assert_told!(text);
    let file = |name: &str| std::fs::read_to_string(report.join(name)).expect("a file");
    assert_eq!(file("answer.txt"), text);
    assert_told!(file("narrowing.txt"));
    let document: Value = serde_json::from_str(&file("bisection.json")).expect("JSON");
    assert_fits(&document, include_str!("../schema/bisection.v1.json"));
    let found = &document["breaks"][0][0];
    assert_eq!(
        found["bad"],
        "! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN"
    );
    assert_eq!(found["place"], "iptables nat POSTROUTING");
}

#[test]
fn good_and_bad_that_behave_alike() {
    let (directory, path) = harmless();
    let case = |value: &str| format!("{}/rule={value},policy=Local", path.display());
    assert_told!(refused(
        &["--good", &case("without"), "--bad", &case("with")],
        Some(directory.path())
    ));
}

#[test]
fn one_case_with_itself() {
    assert_told!(refused(&["--good", REMOVED, "--bad", REMOVED], None));
}

#[test]
fn a_probe_that_there_is_not() {
    assert_told!(refused(
        &["--good", REMOVED, "--bad", PRESENT, "--probe", "cal"],
        None
    ));
}

#[test]
fn more_than_one_case() {
    let (directory, path) = harmless();
    let lab = path.display().to_string();
    assert_told!(refused(
        &["--good", &lab, "--bad", &lab],
        Some(directory.path())
    ));
}

#[test]
fn labs_of_other_nodes() {
    let (directory, path) = lab(LAB);
    let lab = format!("{}/policy=Local", path.display());
    assert_told!(refused(
        &["--good", &lab, "--bad", PRESENT],
        Some(directory.path())
    ));
}

#[test]
fn a_dump_without_its_node() {
    assert_told!(refused(
        &["--good", "a", "--bad", "b", "--in", PRESENT],
        None
    ));
}

#[test]
fn every_kernel_at_once() {
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
fn dumps_laid_over_a_node_that_there_is_not_or_naming_sets_that_nobody_has() {
    let dump = "tests/bisect/s4/good.iptables-save";
    let over = |node: &str| {
        refused(
            &[
                "--good", dump, "--bad", dump, "--in", PRESENT, "--node", node,
            ],
            None,
        )
    };
    assert_told!(over("node-9"));
    assert_told!(over("node-1"));
    let arguments = [
        "--good", "none", "--bad", dump, "--in", PRESENT, "--node", "node-1",
    ];
    assert_told!(refused(&arguments, None));
}

/// Dumps of complete nodes replace the node of a case.
#[test]
fn the_surplus_rule_of_s2_by_what_was_collected_of_its_nodes() {
    let directory = tempfile::tempdir().expect("a directory");
    let [good, bad] = [("good", REMOVED), ("bad", PRESENT)].map(|(name, case)| {
        let runtime = Runtime::of(svclab);
        runtime.up(case);
        let file = directory.path().join(format!("{name}.tar.gz"));
        collected(&runtime, "node-1", &file);
        file.display().to_string()
    });
    let arguments = [
        "--good", &good, "--bad", &bad, "--in", PRESENT, "--node", "node-1",
    ];
    let (code, text) = said(&arguments, Some(directory.path()));
    assert_eq!(code, Some(0), "{text}");
    assert_told!(text);
}

/// Dumps without a case: everything else is built from objects.
#[test]
fn a_rule_by_which_two_dumps_differ() {
    let labs = Labs::one();
    let directory = tempfile::tempdir().expect("a directory");
    let objects = objects(directory.path());
    let collect = |name: &str| {
        let file = directory.path().join(name);
        collected(&labs.runtime, "node-1", &file);
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
    let whole = |more: &[&str]| said(&[&sides[..], more].concat(), Some(directory.path()));
    let (code, text) = whole(&["--objects", &objects, "--probe", CALL]);
    assert_eq!(code, Some(0), "{text}");
    assert_told!(text);
    // A probe is required, and it must not come from a case.
    for more in [&[][..], &["--probe", "call"], &["--in", PRESENT]] {
        let (code, text) = whole(more);
        assert_eq!(code, Some(2), "{text}");
        assert_told!(text);
    }
    assert_told!(refused(
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
    assert_told!(refused(&arguments, Some(directory.path())));
}

/// A rule that only the other iptables backend of a node has.
#[test]
fn a_legacy_rule_beside_those_of_nftables() {
    let labs = Labs::one();
    let directory = tempfile::tempdir().expect("a directory");
    let objects = objects(directory.path());
    let exec = ["exec", "node-1", "--"];
    let [good, bad] = ["10.244.9.9", "10.244.1.10"].map(|address| {
        let rule = format!("iptables-legacy -A FORWARD -d {address} -j DROP");
        let words: Vec<&str> = exec.into_iter().chain(rule.split(' ')).collect();
        labs.runtime.run(&words);
        let file = directory.path().join(format!("{address}.tar.gz"));
        collected(&labs.runtime, "node-1", &file);
        file.display().to_string()
    });
    let arguments = [
        "--good",
        &good,
        "--bad",
        &bad,
        "--node=node-1",
        "--objects",
        &objects,
        "--probe",
        CALL,
    ];
    let (code, text) = said(&arguments, Some(directory.path()));
    assert_eq!(code, Some(0), "{text}");
    assert_told!(text);
}

#[test]
fn a_report_that_cannot_be_written() {
    let (code, text) = said(
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
    assert_told!(text);
}
