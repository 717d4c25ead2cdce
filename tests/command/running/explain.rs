//! Tests explanations of packets in a running lab, which describe the actual state, whatever the
//! lab planned.

use serde_json::Value;
use svclab_test_support::running::by_hand::{self, CONNECTS, UNFILTERED};
use svclab_test_support::running::{Runtime, normalized};

use super::{Labs, assert_output_snapshot};
use crate::support::{assert_matches_schema, stderr, stdout, svclab_without_drops};

fn start_lab(case: &str) -> Runtime {
    let runtime = Runtime::new(svclab_without_drops);
    runtime.up(case);
    runtime
}

#[test]
fn explain_manual_rules_are_quoted() {
    insta::assert_snapshot!(by_hand::rules(&start_lab(CONNECTS)));
}

#[test]
fn explain_deleted_routes_are_reported() {
    insta::assert_snapshot!(by_hand::routes(&start_lab(CONNECTS)));
}

#[test]
fn explain_manual_sysctls_are_named() {
    insta::assert_snapshot!(by_hand::settings(&start_lab(UNFILTERED)));
}

#[test]
fn explain_uncounted_drop_has_unknown_end() {
    let explanation = by_hand::uncounted(&start_lab(CONNECTS));
    assert!(explanation.contains("reached node-2 through flannel.1, and its end was not recorded"));
    insta::assert_snapshot!(explanation);
}

#[test]
fn probe_explain_prints_packet_path() {
    let runtime = start_lab(CONNECTS);
    let probe = [
        "probe",
        "node-1",
        "service/default/app:80",
        "--explain",
        "--max-wait=500ms",
    ];
    let drop = ["-I", "FORWARD", "-p", "tcp", "-j", "DROP"];
    let drop = [&["exec", "node-2", "--", "iptables-nft"], &drop[..]].concat();
    assert_eq!(runtime.run(&drop).status.code(), Some(0));
    let output = runtime.run(&probe);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    insta::assert_snapshot!(normalized(&stdout(&output)));
    // `-v` prints every rule; without `--explain`, only the verdict is printed.
    let verbose = runtime.run(&[&probe[..], &["-v"]].concat());
    assert!(stdout(&verbose).contains("nat PREROUTING"), "{verbose:?}");
    let verdict = runtime.run(&probe[..3]);
    assert_eq!(stdout(&verdict).lines().count(), 2, "{verdict:?}");
}

#[test]
fn explain_running_lab_describes_current_state() {
    let runtime = start_lab(CONNECTS);
    let arguments = ["explain", "--running"];
    let output = runtime.run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(normalized(&stdout(&output)));
    // A unique prefix is sufficient for the name of the lab; probes can be selected.
    let data = ["canal-stale-rule", "--format=json", "--probe=call"];
    let output = runtime.run(&[&arguments[..], &data].concat());
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_matches_schema(&document, include_str!("../../schema/journeys.v1.json"));
    assert_eq!(document["cases"][0]["expected"], Value::Null);
    assert_eq!(
        document["cases"][0]["stages"][0]["connections"][0]["verdict"],
        "connected"
    );
}

/// Case of the lab with both families.
const DUAL_STACK: &str = "conformance/dual-stack/mode=iptables,version=v1.36";

/// Fault, its undoing, source and target of a probe, and what the explanation says.
const FAULTS_OF_IPV6: [[&str; 5]; 4] = [
    [
        "ip link set cbr0 down",
        "ip link set cbr0 up; ip address add fd00:10:244:2::1/64 dev cbr0 nodad",
        "host/laptop",
        "[fd00:2::12]:30080",
        "rounds in a routing loop between fabric and node-2 (counter Ip6InHdrErrors",
    ],
    [
        "sysctl -qw net.ipv6.conf.all.forwarding=0",
        "sysctl -qw net.ipv6.conf.all.forwarding=1",
        "host/laptop",
        "[fd00:2::12]:30080",
        "forwarding is disabled; sysctl net.ipv6.conf.all.forwarding = 0 (counter Ip6InAddrErrors",
    ],
    [
        "true",
        "true",
        "node-1",
        "[::1]:30080",
        "at ::1: kube-proxy serves no node ports on this loopback address",
    ],
    [
        "true",
        "true",
        "host/laptop",
        "[fd00:2::12]:30082",
        "at fd00:2::12: the service has no IPv6 address (`ipFamilies`)",
    ],
];

#[test]
fn explain_faults_of_ipv6_are_named() {
    let runtime = start_lab(DUAL_STACK);
    let on_node = |script: &str| {
        let output = runtime.run(&["exec", "node-2", "--", "sh", "-ec", script]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    };
    for [fault, undo, from, to, says] in FAULTS_OF_IPV6 {
        on_node(fault);
        let output = runtime.run(&[
            "probe",
            from,
            to,
            "--explain",
            "--connections=8",
            "--max-wait=500ms",
        ]);
        let printed = stdout(&output);
        let unwrapped: Vec<&str> = printed.split_whitespace().collect();
        assert!(unwrapped.join(" ").contains(says), "{fault}: {printed}");
        on_node(undo);
    }
}

#[test]
fn explain_lab_not_running_is_refused() {
    let labs = Labs::new();
    let explain = |more: &[&str]| {
        labs.runtime
            .run(&[&["explain", "--running"], more].concat())
    };
    assert_output_snapshot!(labs, explain(&[]));
    labs.runtime.up(&labs.case("Local"));
    assert_output_snapshot!(labs, explain(&["another"]));
    assert_output_snapshot!(labs, explain(&["--probe", "nobody"]));
    assert_output_snapshot!(labs, explain(&["one", "two"]));
    assert_output_snapshot!(labs, explain(&["--kernel", "host"]));
    labs.runtime.up(&labs.case("Cluster"));
    assert_output_snapshot!(labs, explain(&[]));
    let verbose_probe = ["probe", "node-1", "192.168.50.11:1", "-v"];
    assert_output_snapshot!(labs, labs.runtime.run(&verbose_probe));
}

#[test]
fn report_of_running_lab_has_packets_and_no_judgement() {
    let runtime = start_lab(CONNECTS);
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let probe = ["probe", "node-1", "service/default/app:80"];
    let plain = runtime.run(&probe);
    let reported = runtime.run(&[&probe[..], &["--report", &path("probe.html")]].concat());
    assert_eq!(reported.status.code(), Some(0), "{}", stderr(&reported));
    assert_eq!(stdout(&reported), stdout(&plain));
    let explain = ["explain", "--running"];
    let output = runtime.run(&[&explain[..], &["--report", &path("explain")]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let read = |name: &str| std::fs::read_to_string(path(name)).expect("a file");
    assert_eq!(read("explain/answer.txt"), stdout(&output));
    for (page, title) in [
        ("probe.html", "svclab probe node-1 service/default/app:80"),
        ("explain/index.html", "svclab explain --running"),
    ] {
        let page = read(page);
        for part in [title, "not judged", "<svg", "capture.pcapng.gz"] {
            assert!(page.contains(part), "{title}: {part}");
        }
        assert!(!page.contains("PASS"), "{title}");
    }
}
