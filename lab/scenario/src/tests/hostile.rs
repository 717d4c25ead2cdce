//! Tests of malicious files: excessive sizes, and texts with another meaning in rules or on a
//! terminal. Snapshots contain the diagnostics.

use std::fmt::Write as _;

use crate::check::limits::{MAX_HOSTS, MAX_RULE_LINE};
use crate::objects::MAX_PODS;
use crate::tests::example::{EXAMPLE, example_with, load_diagnostics};

/// Adds the given number of objects to the example.
fn with_objects(count: usize, object: impl Fn(usize) -> String) -> String {
    let mut text = EXAMPLE.to_owned();
    for number in 0..count {
        write!(text, "\n---\n{}", object(number)).expect("written");
    }
    text
}

#[test]
fn text_repeated_by_aliases_is_refused() {
    let long = "x".repeat(1 << 20);
    let aliases = vec!["*a"; 20].join(", ");
    let diagnostics = load_diagnostics(&format!("a: &a {long}\nb: [{aliases}]\n"));
    assert!(
        diagnostics.contains("more than 16 MiB of text in one file, with aliases"),
        "{}",
        &diagnostics[..200]
    );
}

#[test]
fn too_many_pods_are_refused() {
    let pod = |n: usize| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: extra-{n}}}, spec: {{containers: []}}}}"
        )
    };
    insta::assert_snapshot!(load_diagnostics(&with_objects(MAX_PODS, pod)));
}

#[test]
fn too_many_objects_of_all_cases_are_refused() {
    let values: Vec<String> = (0..900).map(|n| format!("v{n}: []")).collect();
    let axis = format!("    x: {{{}}}\n    rpFilter:\n", values.join(", "));
    let mut text = example_with("    rpFilter:\n", &axis);
    for n in 0..2000 {
        write!(
            text,
            "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: extra-{n}}}, \
             spec: {{containers: []}}}}"
        )
        .expect("written");
    }
    let diagnostics = load_diagnostics(&text);
    assert!(
        diagnostics.starts_with("error: ")
            && diagnostics.contains("objects each are more than 1000000 objects"),
        "{}",
        &diagnostics[..diagnostics.len().min(500)]
    );
}

#[test]
fn too_many_hosts_are_refused() {
    let mut hosts = String::from("  hosts:\n");
    for n in 0..=MAX_HOSTS {
        writeln!(hosts, "    h{n}: {{address: 203.0.113.9/24}}").expect("written");
    }
    insta::assert_snapshot!(load_diagnostics(&example_with("  hosts:\n", &hosts)));
}

#[test]
fn too_many_connections_are_refused() {
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "connections: 8",
        "connections: 4000000000"
    )));
}

#[test]
fn invalid_name_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "    laptop:",
        "    \"lap/../top\":"
    )));
}

#[test]
fn control_character_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "    laptop:",
        "    \"lap\\e[2Jtop\":"
    )));
}

#[test]
fn invalid_port_name_is_refused() {
    for name in [
        "\"x\\nCOMMIT\\n*filter\\n-A INPUT -j DROP\"",
        "'x\" -j DROP -m comment --comment \"'",
        "The_Port",
        &"x".repeat(64),
    ] {
        let diagnostics = load_diagnostics(&example_with(
            "{name: https, port: 443",
            &format!("{{name: {name}, port: 443"),
        ));
        assert!(
            diagnostics.contains("is not a valid port name"),
            "{name}: {diagnostics}"
        );
    }
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "{name: https, port: 443",
        "{name: \"x\\nCOMMIT\", port: 443"
    )));
}

#[test]
fn multi_line_rule_is_refused() {
    let wrong = "iptables: [\"*nat\", \"-A PREROUTING -j RETURN\\nCOMMIT\\n*filter\"]";
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "iptables: [\"*nat\", COMMIT]",
        wrong
    )));
}

#[test]
fn too_long_rule_line_is_refused() {
    let line = "x".repeat(MAX_RULE_LINE);
    let wrong = format!("leftovers: {{ipset: [\"add s {line}\"], ");
    let diagnostics = load_diagnostics(&example_with("leftovers: {", &wrong));
    assert!(
        diagnostics.contains(&format!(
            "a line of {} bytes, more than {MAX_RULE_LINE}",
            MAX_RULE_LINE + 6
        )),
        "{}",
        &diagnostics[..diagnostics.len().min(500)]
    );
}
