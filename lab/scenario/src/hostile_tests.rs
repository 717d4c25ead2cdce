//! Tests of malicious files: excessive sizes, and texts with another meaning in rules or on a
//! terminal. Snapshots contain the diagnostics.

use std::fmt::Write as _;

use super::example_tests::{EXAMPLE, told, with};
use super::limits::{MAX_ENDPOINTS, MAX_HOSTS, MAX_LINE, MAX_NODES, MAX_PODS, MAX_SERVICES};

/// Adds the given number of objects to the example.
fn and(count: usize, object: impl Fn(usize) -> String) -> String {
    let mut text = EXAMPLE.to_owned();
    for number in 0..count {
        write!(text, "\n---\n{}", object(number)).expect("written");
    }
    text
}

#[test]
fn a_text_that_aliases_repeat() {
    let long = "x".repeat(1 << 20);
    let aliases = vec!["*a"; 20].join(", ");
    let told = told(&format!("a: &a {long}\nb: [{aliases}]\n"));
    assert!(
        told.contains("more than 16 MiB of text in one file, aliases counted"),
        "{}",
        &told[..200]
    );
}

#[test]
fn more_nodes_than_a_lab_has() {
    let node = |n: usize| format!("{{apiVersion: v1, kind: Node, metadata: {{name: extra-{n}}}}}");
    insta::assert_snapshot!(told(&and(MAX_NODES, node)));
}

#[test]
fn more_pods_than_a_lab_has() {
    let pod = |n: usize| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: extra-{n}}}, spec: {{containers: []}}}}"
        )
    };
    insta::assert_snapshot!(told(&and(MAX_PODS, pod)));
}

#[test]
fn more_services_than_a_lab_has() {
    let service = |n: usize| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: extra-{n}}}, \
             spec: {{ports: [{{port: 80}}]}}}}"
        )
    };
    insta::assert_snapshot!(told(&and(MAX_SERVICES, service)));
}

#[test]
fn more_endpoints_than_a_lab_has() {
    let endpoints = vec!["{addresses: [10.9.9.9]}"; MAX_ENDPOINTS + 1].join(", ");
    let slice = |_| {
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: extra}}, \
             addressType: IPv4, endpoints: [{endpoints}]}}"
        )
    };
    insta::assert_snapshot!(told(&and(1, slice)));
}

#[test]
fn more_rules_than_nodes_can_hold() {
    let mut text = and(200, |n| {
        format!("{{apiVersion: v1, kind: Node, metadata: {{name: extra-{n}}}}}")
    });
    let endpoints = vec!["{addresses: [10.9.9.9]}"; 6000].join(", ");
    write!(
        text,
        "\n---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: extra}}, \
         addressType: IPv4, endpoints: [{endpoints}]}}"
    )
    .expect("written");
    insta::assert_snapshot!(told(&text));
}

#[test]
fn more_objects_than_all_cases_may_have() {
    let values: Vec<String> = (0..900).map(|n| format!("v{n}: []")).collect();
    let axis = format!("    x: {{{}}}\n    rpFilter:\n", values.join(", "));
    let mut text = with("    rpFilter:\n", &axis);
    for n in 0..2000 {
        write!(
            text,
            "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: extra-{n}}}, \
             spec: {{containers: []}}}}"
        )
        .expect("written");
    }
    let told = told(&text);
    assert!(
        told.starts_with("error: ") && told.contains("objects each are more than 1000000 objects"),
        "{}",
        &told[..told.len().min(500)]
    );
}

#[test]
fn more_hosts_than_a_lab_has() {
    let mut hosts = String::from("  hosts:\n");
    for n in 0..=MAX_HOSTS {
        writeln!(hosts, "    h{n}: {{address: 203.0.113.9/24}}").expect("written");
    }
    insta::assert_snapshot!(told(&with("  hosts:\n", &hosts)));
}

#[test]
fn more_connections_than_a_case_makes() {
    insta::assert_snapshot!(told(&with("connections: 8", "connections: 4000000000")));
}

#[test]
fn a_name_that_is_none() {
    insta::assert_snapshot!(told(&with("    laptop:", "    \"lap/../top\":")));
}

#[test]
fn a_text_that_a_terminal_would_act_upon() {
    insta::assert_snapshot!(told(&with("    laptop:", "    \"lap\\e[2Jtop\":")));
}

#[test]
fn a_port_whose_name_is_more_than_a_name() {
    for name in [
        "\"x\\nCOMMIT\\n*filter\\n-A INPUT -j DROP\"",
        "'x\" -j DROP -m comment --comment \"'",
        "The_Port",
        &"x".repeat(64),
    ] {
        let told = told(&with(
            "{name: https, port: 443",
            &format!("{{name: {name}, port: 443"),
        ));
        assert!(told.contains("is no name of a port"), "{name}: {told}");
    }
    insta::assert_snapshot!(told(&with(
        "{name: https, port: 443",
        "{name: \"x\\nCOMMIT\", port: 443"
    )));
}

#[test]
fn a_line_of_rules_that_is_several() {
    let wrong = "iptables: [\"*nat\", \"-A PREROUTING -j RETURN\\nCOMMIT\\n*filter\"]";
    insta::assert_snapshot!(told(&with("iptables: [\"*nat\", COMMIT]", wrong)));
}

#[test]
fn a_line_of_rules_without_end() {
    let line = "x".repeat(MAX_LINE);
    let wrong = format!("leftovers: {{ipset: [\"add s {line}\"], ");
    let told = told(&with("leftovers: {", &wrong));
    assert!(
        told.contains(&format!(
            "a line of {} bytes, more than {MAX_LINE}",
            MAX_LINE + 6
        )),
        "{}",
        &told[..told.len().min(500)]
    );
}
