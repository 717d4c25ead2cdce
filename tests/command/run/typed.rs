//! Tests `byHand` commands on a node: they affect its packets, and a failed command is reported.

use crate::support::{LAB, run, stderr, stdout, write_lab};

/// Runs a lab with a `byHand` command on node-1. Returns the exit code and the output.
fn run_by_hand(command: &str) -> (Option<i32>, String) {
    let line = "leftovers: {iptables: []}";
    let text = LAB.replacen(line, &format!("byHand: {{commands: [{command}]}}"), 1);
    assert_ne!(text, LAB);
    let (directory, path) = write_lab(text);
    let case = format!("{}/policy=Cluster", path.display());
    let output = run(&["run", "--kernel=host", &case]);
    let output_text = stdout(&output) + &stderr(&output);
    let told = output_text.replace(&directory.path().display().to_string(), "LABS");
    let lines = told.lines().filter(|line| !line.contains(" passed, "));
    let lines: Vec<&str> = lines
        .map(|line| line.split("  (").next().unwrap_or(line))
        .collect();
    (output.status.code(), lines.join("\n"))
}

#[test]
fn by_hand_rule_changes_probe_result() {
    let (code, told) = run_by_hand("'iptables-nft -t nat -I PREROUTING -i cbr0 -j ACCEPT'");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("seen      unreachable 1"), "{told}");
}

#[test]
fn by_hand_failing_command_is_reported() {
    let (code, told) = run_by_hand("'ipset del NO-SUCH-SET 10.0.0.1'");
    assert_eq!(code, Some(2), "{told}");
    insta::assert_snapshot!(told);
}

#[test]
fn by_hand_failed_command_prints_stdout() {
    let (code, told) = run_by_hand("\"sh -c 'echo the reason; exit 1'\"");
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("failed on node-1: the reason"), "{told}");
    let (_, told) = run_by_hand("\"sh -c 'echo the reason; echo an error >&2; exit 1'\"");
    assert!(told.contains("failed on node-1: an error\n"), "{told}");
    assert!(told.contains("on standard output: the reason"), "{told}");
}

#[test]
fn by_hand_missing_program_exits_3() {
    let (code, told) = run_by_hand("'no-such-program'");
    assert_eq!(code, Some(3), "{told}");
    insta::assert_snapshot!(told);
}

#[test]
fn by_hand_unclosed_quote_is_refused() {
    let (code, told) = run_by_hand("\"echo 'and so on\"");
    assert_eq!(code, Some(2), "{told}");
    insta::assert_snapshot!(told);
}
