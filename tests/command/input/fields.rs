//! Tests fields of labs and objects that svclab supports, and the reports about fields that it does
//! not.

use std::fs;

use serde_json::Value;

use crate::fake;
use crate::support::{LAB, project, run, stderr, stdout, svclab, write_lab};

/// Returns the lab with texts replaced.
fn lab_with(replacements: &[(&str, &str)]) -> String {
    replacements
        .iter()
        .fold(LAB.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from} is not in the lab");
            text.replace(from, to)
        })
}

const CONNECTED: &str = "{connected: 1, endpoints: [web], seenSource: pod/default/client}";

#[test]
fn undeclared_pod_port_connection_is_refused() {
    let text = lab_with(&[
        ("targetPort: 8080", "targetPort: 9090"),
        (CONNECTED, "{refused: 1}"),
    ]);
    let (_directory, path) = write_lab(text);
    let path = path.display().to_string();
    let output = run(&["run", "--kernel=host", "--format=json", &path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let warning = "port 80 of service `default/web` forwards to 9090/TCP, which pod `default/web` does not declare; the pod refuses it";
    assert!(stderr(&output).contains(warning), "{}", stderr(&output));
    let results: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(results["warnings"][0]["message"], warning);
    assert_eq!(results["warnings"].as_array().map(Vec::len), Some(1));
}

#[test]
fn pod_port_removed_by_step_connection_is_refused() {
    let step = "  steps:\n  - name: later\n    change: [{patch: Pod/default/web, merge: {spec: {containers: [{name: web, ports: [{containerPort: 9090}]}]}}}]\n    probes: {callLater: {from: pod/default/client, to: \"service/default/web:80\"}}\n  axes:\n";
    let both = format!("{CONNECTED}\n    callLater: {{refused: 1}}");
    let text = lab_with(&[("  axes:\n", step), (CONNECTED, &both)]);
    let (_directory, path) = write_lab(text);
    let output = run(&["run", "--kernel=host", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

#[test]
fn pod_without_ports_serves_every_target_port() {
    let text = lab_with(&[
        ("targetPort: 8080", "targetPort: 9090"),
        (", ports: [{containerPort: 8080}]", ""),
    ]);
    let (_directory, path) = write_lab(text);
    let output = run(&["run", "--kernel=host", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn chain_policy_drop_is_applied() {
    for field in ["leftovers", "byHand"] {
        let text = lab_with(&[
            (
                "      leftovers: {iptables: []}\n",
                &format!("      {field}: {{iptables: [\"*filter\", \":OUTPUT DROP [0:0]\"]}}\n"),
            ),
            (
                "from: pod/default/client, to: \"service/default/web:80\"",
                "from: node-1, to: pod/default/web:8080, maxWait: 300ms",
            ),
            (CONNECTED, "{timeout: 1}"),
        ]);
        let (_directory, path) = write_lab(text);
        let output = run(&["run", "--kernel=host", &path.display().to_string()]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{field}: {}",
            stdout(&output)
        );
    }
}

#[test]
fn bind_with_a_port_is_refused() {
    let text = lab_with(&[("web:80\"}", "web:80\", bind: \"10.244.1.9:5000\"}")]);
    let (_directory, path) = write_lab(text);
    let output = run(&["run", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "`10.244.1.9:5000` has port `5000`, but a probe binds to an address only";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

#[test]
fn probe_of_an_sctp_port_is_refused() {
    let text = lab_with(&[(
        "[{port: 80, targetPort: 8080}]",
        "[{port: 80, targetPort: 8080, protocol: SCTP}]",
    )]);
    let (_directory, path) = write_lab(text);
    let output = run(&["run", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "port 80 of service/default/web uses SCTP, which probes do not support";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

#[test]
fn pod_address_without_a_pod_cidr_is_refused() {
    let text = lab_with(&[
        (
            "status: {podIP: 10.244.1.10}",
            "status: {podIP: 10.244.1.10, podIPs: [{ip: 10.244.1.10}, {ip: \"fd00::10\"}]}",
        ),
        (
            "  kubeProxy: {",
            "  flannel: {version: v0.25.2, network: 10.244.0.0/16}\n  kubeProxy: {",
        ),
    ]);
    let (_directory, path) = write_lab(text);
    let output = run(&["run", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "the pod's address fd00::10 is in no podCIDR of its node `node-1`, which has no IPv6 podCIDR";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

#[test]
fn failed_case_rerun_command_gives_same_result() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let labs = directory.path().join("it's labs");
    std::fs::create_dir(&labs).expect("the directory can be made");
    let text = lab_with(&[(CONNECTED, "{connected: 1, endpoints: []}")]);
    std::fs::write(labs.join("lab.yaml"), text).expect("the lab can be written");
    let rerun_command = |output: &std::process::Output| {
        assert_eq!(output.status.code(), Some(1), "{}", stdout(output));
        let text = stdout(output);
        let line = text.lines().find(|line| line.contains("rerun:"));
        let (_, command) = line
            .and_then(|line| line.split_once(": "))
            .expect("a command");
        command.trim().to_owned()
    };
    let svclab_path = svclab().get_program().to_owned();
    let bin = std::path::Path::new(&svclab_path)
        .parent()
        .expect("a directory")
        .to_owned();
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    fake::write_fake_kube_proxy(&labs, fake::SYNCS);
    let proxy = "it's labs/kube-proxy";
    for by_variable in [false, true] {
        let mut first = svclab();
        first
            .current_dir(directory.path())
            .args(["run", "--kernel=host", "lab/policy=Local"])
            .args(["--allow-outside", "--kube-proxy", proxy]);
        if by_variable {
            first.env("SVCLAB_TOPOLOGIES", "it's labs");
        } else {
            first.args(["--topologies", "it's labs"]);
        }
        let command = rerun_command(&first.output().expect("the command starts"));
        assert!(command.contains(" --allow-outside "), "{command}");
        let second = std::process::Command::new("sh")
            .args(["-c", &command])
            .current_dir(directory.path())
            .env("PATH", &path)
            .env_remove("SVCLAB_TOPOLOGIES")
            .output()
            .expect("a shell");
        assert_eq!(rerun_command(&second), command);
    }
}

#[test]
fn command_ambiguous_case_suggests_quoted_names() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let labs = directory.path().join("it's labs");
    std::fs::create_dir(&labs).expect("the directory can be made");
    let path = labs.join("lab.yaml");
    std::fs::write(&path, LAB).expect("the lab can be written");
    let path = path.display().to_string();
    for arguments in [
        &["up", &path][..],
        &["bisect", "--good", &path, "--bad", &path],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let text = stderr(&output);
        let lines = text.lines().filter(|line| line.contains("/policy="));
        let names: Vec<String> = lines
            .map(|line| {
                let printf = format!("printf %s {line}");
                let shell = std::process::Command::new("sh")
                    .args(["-c", &printf])
                    .output();
                stdout(&shell.expect("a shell"))
            })
            .collect();
        let expected = ["Cluster", "Local"].map(|policy| format!("{path}/policy={policy}"));
        assert_eq!(names, expected, "{text}");
    }
}

#[test]
fn payload_of_lost_size_is_silent_and_reports_progress() {
    // Path MTU discovery that fails: the node drops large packets, and no ICMP error says so.
    let text = lab_with(&[
        (
            "      leftovers: {iptables: []}\n",
            "      byHand: {iptables: [\"*mangle\", \"-A FORWARD -m length --length 1001:65535 -j DROP\"]}\n",
        ),
        ("web:80\"}", "web:80\", bytes: 100k, maxWait: 1s}"),
        (CONNECTED, "{silent: 1}"),
    ]);
    let (_directory, path) = write_lab(text);
    let path = path.display().to_string();
    let output = run(&["run", "--kernel=host", &path]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let explained = stdout(&run(&["explain", "--kernel=host", &path]));
    let explained: Vec<&str> = explained.split_whitespace().collect();
    let explained = explained.join(" ");
    for part in [
        "of 100000 bytes, of which",
        "were acknowledged, and received 0 bytes.",
    ] {
        assert!(explained.contains(part), "{explained}");
    }
}

#[test]
fn payload_connections_and_datagrams_arrive() {
    for probe in [
        "bytes: 100k, connections: 5, concurrency: 1",
        "bytes: 1MiB",
        "sourcePort: 40000, connections: 3",
    ] {
        let count = if probe.contains("connections: 5") {
            "5"
        } else if probe.contains("connections: 3") {
            "3"
        } else {
            "1"
        };
        let text = lab_with(&[
            ("web:80\"}", &format!("web:80\", {probe}}}")),
            ("{connected: 1,", &format!("{{connected: {count},")),
        ]);
        let (_directory, path) = write_lab(text);
        let output = run(&["run", "--kernel=host", &path.display().to_string()]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{probe}: {}{}",
            stdout(&output),
            stderr(&output)
        );
    }
}

#[test]
fn invalid_traffic_settings_are_refused() {
    for (probe, expected) in [
        ("bytes: 0", "a number of bytes must be positive"),
        ("bytes: -1", "a number of bytes, such as 1400 or 100k"),
        ("bytes: many", "`many` is not a number of bytes"),
        (
            "bytes: 2M",
            "2000000 bytes are more than a tcp probe can send: 1048576",
        ),
        (
            "protocol: udp, bytes: 65508",
            "65508 bytes are more than a udp probe can send: 65507",
        ),
        ("datagrams: 2", "a tcp probe sends no datagrams"),
        (
            "protocol: udp, datagrams: 1001",
            "1001 datagrams of one socket, more than 1000",
        ),
        (
            "sourcePort: 65535, connections: 2",
            "2 connections from port 65535 need ports above 65535",
        ),
        ("concurrency: 0", "nonzero"),
        ("sourcePort: 0", "nonzero"),
    ] {
        let text = lab_with(&[("web:80\"}", &format!("web:80\", {probe}}}"))]);
        let (_directory, path) = write_lab(text);
        let output = run(&["run", &path.display().to_string()]);
        assert_eq!(output.status.code(), Some(2), "{probe}");
        assert!(
            stderr(&output).contains(expected),
            "{probe}: {}",
            stderr(&output)
        );
    }
}

/// A node on which IPv6 is disabled for all interfaces has no IPv6 address, nor have its pods a
/// route to the others.
#[test]
fn sysctl_that_disables_ipv6_of_all_interfaces_applies() {
    let lab = project().join("topologies/conformance/dual-stack.yaml");
    let lab = fs::read_to_string(lab).expect("the lab");
    let disabled =
        "  nodes:\n    node-2: {sysctls: {net.ipv6.conf.all.disable_ipv6: 1}}\n  hosts:\n";
    let (_directory, path) = write_lab(lab.replacen("  hosts:\n", disabled, 1));
    let case = format!("{}/mode=nftables,version=v1.36", path.display());
    let output = run(&["run", "--kernel=host", "--format=json", &case]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let results: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let probes = &results["cases"][0]["probes"];
    let endpoints = |probe: &str| {
        let probes = probes.as_array().expect("probes");
        let probe = probes.iter().find(|own| own["name"] == probe);
        probe.expect("the probe")["observed"]["endpoints"].to_string()
    };
    assert!(endpoints("pod-ipv4").contains("web-b"), "{probes}");
    assert!(endpoints("pod").contains("web-a"), "{probes}");
    assert!(!endpoints("pod").contains("web-b"), "{probes}");
}
