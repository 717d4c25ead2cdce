//! Tests `svclab explain` and `svclab run --report`: explanations of the write-ups' cases, and the
//! captures as tshark and tcpdump read them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use serde_json::Value;
use svclab_test_support::can_trace_drops;
use svclab_test_support::evidence::read_case;
use svclab_test_support::programs::copy_programs;
use svclab_test_support::running::normalized;

use crate::support::{LAB, assert_matches_schema, project, run, stderr, stdout, svclab, write_lab};

/// The node-to-service probe of the second write-up, with its stale rule.
const STALE: &str = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";

/// Lab with a client and a service on two nodes.
const CURES: &str = include_str!("cures.yaml");

/// Ends 0.5 s after a retransmission.
const MAX_WAIT_ARGUMENT: &str = "--max-wait=2500ms";

/// Returns an explanation without what differs between runs. A busy machine ends a probe late, after
/// more retransmissions.
fn explanation(output: &Output) -> String {
    let text = normalized(&stdout(output));
    let lines = text
        .lines()
        .map(|line| match line.trim_start().strip_prefix("and ") {
            Some(rest) if rest.contains("more packets (-v") => {
                "  and N more packets (-v shows them)"
            }
            _ => line,
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// The number of lost packets depends on how often the machine sent the SYN again.
fn assert_by_counters(output: &Output) {
    let filters = vec![
        (r"increased by \d+", "increased by N"),
        (r"packets: \d+", "packets: N"),
        (r"ReversePathFilter \+\d+", "ReversePathFilter +N"),
    ];
    insta::with_settings!({filters => filters}, {
        insta::assert_snapshot!("by_counters", explanation(output));
    });
}

#[test]
fn explain_stale_rule_case_names_rule_and_rp_filter() {
    let output = run(&["explain", "--kernel=host", MAX_WAIT_ARGUMENT, STALE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    if can_trace_drops() {
        insta::assert_snapshot!("by_the_kernel", explanation(&output));
    } else {
        assert_by_counters(&output);
    }
}

/// Root can trace drops, so root runs the command as another user.
#[test]
fn explain_without_privileges_uses_counters() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), open).expect("permissions");
    let program = copy_programs(directory.path());
    let from = project().join("topologies/canal-stale-rule.yaml");
    fs::copy(from, directory.path().join("canal-stale-rule.yaml")).expect("a copy");
    let mut command = if nix::unistd::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    let output = command
        .args([
            "explain",
            "--kernel=host",
            MAX_WAIT_ARGUMENT,
            STALE,
            "--topologies",
        ])
        .arg(directory.path())
        .current_dir("/")
        .env("NO_COLOR", "1")
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_by_counters(&output);
}

/// The third write-up: a node without local endpoint drops connections of its pods to the ingress's
/// external address. With older kube-proxy versions the node drops its own connections, too.
#[test]
fn explain_no_local_endpoint_names_dropping_rule() {
    let local = "local-ingress/policy=Local,clusterCIDR=none";
    for (version, probe) in [("v1.30", "apart"), ("v1.14", "nodeWithout")] {
        let case = format!("{local},version={version},mode=iptables");
        let output = run(&[
            "explain",
            "--kernel=host",
            MAX_WAIT_ARGUMENT,
            "--probe",
            probe,
            &case,
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        insta::assert_snapshot!(format!("local_ingress_{probe}"), explanation(&output));
    }
}

/// In nftables mode, the drop is an entry of a map. Up to v1.32, the node's own packets match this
/// map before DNAT.
#[test]
fn explain_no_local_endpoint_nftables_names_map_entry() {
    let local = "local-ingress/policy=Local,clusterCIDR=none";
    for (version, probe) in [("v1.36", "apart"), ("v1.30", "nodeWithout")] {
        let case = format!("{local},version={version},mode=nftables");
        let output = run(&[
            "explain",
            "--kernel=host",
            MAX_WAIT_ARGUMENT,
            "--probe",
            probe,
            &case,
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let name = format!("local_ingress_nftables_{probe}");
        insta::assert_snapshot!(name, explanation(&output));
    }
}

#[test]
fn explain_nftables_mode_names_chosen_endpoint() {
    for (case, endpoint) in [
        (
            "local-ingress/policy=Local,clusterCIDR=none,version=v1.30,mode=nftables",
            "[1 : goto endpoint-",
        ),
        (
            "local-ingress/policy=Local,clusterCIDR=none,version=v1.36,mode=nftables",
            "[1 : 10.180.3.10 . 80]",
        ),
    ] {
        let probe = ["--kernel=host", "-v", "--probe", "podToClusterIP"];
        let output = run(&[&["explain"][..], &probe, &[case]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let output_text = stdout(&output);
        for words in [
            "ip kube-proxy services 1: ip daddr . meta l4proto . th dport vmap @service-ips \
             [service-ips 172.30.0.41 . tcp . 80 : goto service-ULMVA6XW-ns1/svc1/tcp/p80]",
            endpoint,
        ] {
            assert!(output_text.contains(words), "{words}\n{output_text}");
        }
    }
}

/// Translated packets wait for a neighbour, which takes 3 s.
#[test]
fn explain_entry_from_before_packet_is_named() {
    let (_directory, lab) = write_lab(include_str!("older_entries.yaml"));
    let explained = |case: &str| {
        let case = format!("{}/{case}", lab.display());
        let output = run(&["explain", "--kernel=host", "--max-wait=8s", &case]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        explanation(&output)
    };
    for mode in ["iptables", "nftables"] {
        let untranslated = explained(&format!("mode={mode},entries=untranslated"));
        let translated = explained(&format!("mode={mode},entries=translated"));
        let words: Vec<&str> = translated.split_whitespace().collect();
        let translated = words.join(" ");
        if can_trace_drops() {
            insta::assert_snapshot!(format!("untranslated_{mode}"), untranslated);
            for sentence in [
                "node-1 translated 10.96.0.10:80 (service/default/web) to 10.244.1.99:80 by the \
                 conntrack entry",
                "node-1 translated 10.96.0.53:53 (service/default/dns) to 10.244.1.99:53 by the \
                 conntrack entry",
                "no reply from the neighbour 10.244.1.99 on cni0",
                // The kernel translates the addresses of the error as those of the datagram.
                "becomes 10.96.0.53 > 192.168.1.11 by its conntrack entry",
            ] {
                assert!(translated.contains(sentence), "{sentence}\n{translated}");
            }
        } else {
            let count = untranslated.matches("existed before").count();
            assert_eq!(count, 2, "{untranslated}");
        }
    }
}

/// A node without rules traces nothing, and its packet waits for a neighbour.
#[test]
fn explain_neighbour_without_reply_is_named() {
    let probe = r#"{from: pod/default/client, to: "service/default/web:80"}"#;
    let lab = LAB
        .replace(
            "  kubeProxy: {version: v1.30, clusterCIDR: 10.244.0.0/16}\n",
            "",
        )
        .replace(probe, r#"{from: node-1, to: "192.168.50.77:80"}"#)
        .replace(
            "{connected: 1, endpoints: [web], seenSource: pod/default/client}",
            "any",
        );
    let (_directory, lab) = write_lab(lab);
    let case = format!("{}/policy=Cluster", lab.display());
    // The kernel drops the packet after three requests, one per second.
    let output = run(&["explain", "--kernel=host", "--max-wait=1s", &case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!("neighbour_awaited", explanation(&output));
    if can_trace_drops() {
        let output = run(&["explain", "--kernel=host", "--max-wait=8s", &case]);
        let text = explanation(&output);
        assert!(text.contains("neighbour 192.168.50.77"), "{text}");
        assert!(text.contains("SYN out"), "{text}");
    }
}

#[test]
fn explain_verbose_prints_all_matches() {
    let cured = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";
    let output = run(&["explain", "--kernel=host", "-v", cured]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output_text = stdout(&output);
    for words in [
        "nat OUTPUT 1: ",
        "nat PREROUTING: policy",
        "by DNAT in nat KUBE-SEP-",
        " received SYN-ACK from ",
    ] {
        assert!(output_text.contains(words), "{words}: {output_text}");
    }
    // The last FIN arrives at a TIME_WAIT socket, and the kernel consumes it, which is no drop.
    assert!(
        !output_text.contains("dropped by the kernel"),
        "{output_text}"
    );
}

#[test]
fn explain_json_format_matches_schema() {
    let output = run(&[
        "explain",
        "--kernel=host",
        "--format=json",
        "--probe=call",
        STALE,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_matches_schema(&document, include_str!("../../schema/journeys.v1.json"));
    let connection = &document["cases"][0]["stages"][0]["connections"][0];
    assert_eq!(connection["verdict"], "timeout");
    let hops = connection["packets"][0]["hops"].as_array().expect("hops");
    let names: Vec<&str> = hops
        .iter()
        .filter_map(|hop| hop["namespace"].as_str())
        .collect();
    assert_eq!(names, ["node-1", "fabric", "node-2"]);
}

/// After a drop, nothing shows what a packet would have met.
#[test]
fn explain_lists_causes_that_no_packet_met() {
    let ready = "status: {podIP: 10.244.1.10}";
    assert!(LAB.contains(ready));
    let lab = LAB
        .replace(
            "leftovers: {iptables: []}",
            "byHand:\n        commands:\n        - iptables -t raw -I PREROUTING -p tcp -j DROP\n        \
             - iptables-legacy -A INPUT -p tcp --dport 9 -j DROP\n        \
             - ip xfrm policy add dst 192.0.2.9/32 dir out action block\n        \
             - nft add table inet hardening\n        \
             - nft add chain inet hardening late",
        )
        .replace(
            ready,
            "status: {podIP: 10.244.1.10, conditions: [{type: Ready, status: \"False\"}]}",
        );
    let (_directory, path) = write_lab(lab);
    let case = format!("{}/policy=Cluster", path.display());
    let text = stdout(&run(&["explain", &case]));
    let (_, further) = text.split_once("possible further causes").unwrap();
    let words: Vec<&str> = further.split_whitespace().collect();
    let further = words.join(" ");
    for cause in [
        "node-1 differs from the lab: filter INPUT of iptables-legacy has the additional rule \
         `-p tcp -m tcp --dport 9 -j DROP`",
        "pod/default/web is no endpoint of service default/web: its condition `Ready` is false",
        "the manual command `ip xfrm policy add dst 192.0.2.9/32 dir out action block` on node-1, \
         whose changes svclab does not read",
    ] {
        assert!(further.contains(cause), "{text}");
    }
    assert!(!further.contains("hardening"), "{text}");
}

/// A policy of the service may exclude the expected endpoint of a request that was lost before.
#[test]
fn explain_lists_policies_that_exclude_expected_endpoint() {
    let drop = "nodes: {node-1: {byHand: {commands: [\"iptables -t raw -I PREROUTING -p tcp -j DROP\"]}}}\n  \
                expect: [{call: {connected: 1, endpoints: [web]}}]\n";
    let second = "---
apiVersion: v1
kind: Pod
metadata: {name: web-2, namespace: default, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: web, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.244.1.10}
";
    let (head, rest) = CURES.split_once("  hosts:\n").expect("the hosts");
    let (_, objects) = rest.split_once("---\n").expect("the objects");
    let probe = "  probes: {call: {from: pod/default/client, to: \"service/default/web:80\"}}\n";
    for (field, sentence) in [
        ("sessionAffinity: None", None),
        (
            "internalTrafficPolicy: Local",
            Some(
                "`internalTrafficPolicy: Local`: only endpoints on the node of the source are used",
            ),
        ),
        (
            "sessionAffinity: ClientIP",
            Some("`sessionAffinity: ClientIP`"),
        ),
    ] {
        let service = objects.replacen(
            "spec:\n  clusterIP",
            &format!("spec:\n  {field}\n  clusterIP"),
            1,
        );
        let lab = format!("{head}{probe}  {drop}---\n{service}{second}");
        let (_directory, path) = write_lab(lab);
        let text = stdout(&run(&["explain", &path.display().to_string()]));
        let further = text.split_once("possible further causes");
        let further = further.map(|(_, further)| {
            let words: Vec<&str> = further.split_whitespace().collect();
            words.join(" ")
        });
        match (sentence, further) {
            (None, None) => {}
            (Some(sentence), Some(further)) if further.contains(sentence) => {}
            _ => panic!("{field}: {text}"),
        }
    }
}

/// Without a route for the address of a service, the request does not leave the node.
#[test]
fn explain_untranslated_request_without_route_names_service() {
    let (head, rest) = CURES.split_once("  hosts:\n").expect("the hosts");
    let (_, objects) = rest.split_once("---\n").expect("the objects");
    let probe = "  probes: {call: {from: pod/default/client, to: \"service/default/web:80\"}}\n";
    let node = "  nodes: {node-1: {byHand: {commands: [\"ip route del default\"]}}}\n  \
                expect: [{call: {timeout: 1}}]\n";
    let ignored = objects.replacen(
        "{name: web, namespace: default}\nspec:\n  clusterIP",
        "{name: web, namespace: default, labels: {service.kubernetes.io/service-proxy-name: other}}\n\
         spec:\n  clusterIP",
        1,
    );
    let (_directory, path) = write_lab(format!("{head}{probe}{node}---\n{ignored}"));
    let text = stdout(&run(&["explain", &path.display().to_string()]));
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    for part in [
        "no route to 10.96.0.10 in table main",
        "node-1 did not translate 10.96.0.10:80 (service/default/web) of service default/web:",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn explain_unknown_probe_is_refused() {
    let (_directory, path) = write_lab(LAB);
    let output = run(&["explain", "--probe=nobody", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(stderr(&output));
}

#[test]
fn run_report_page_contains_packets_and_readable_capture() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("new/page.html");
    let output = svclab()
        .args(["run", "--kernel=host", STALE, "--report"])
        .arg(&page)
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = fs::read_to_string(&page).expect("the page");
    for part in [
        "call: the connection times out",
        "Reproduced: the lab expects this failure (PASS)",
        "nat POSTROUTING",
        "reverse path filtering",
        "<svg",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let (_, rest) = page
        .split_once("data:application/gzip;base64,")
        .expect("a capture");
    let (encoded, _) = rest.split_once('"').expect("the end of the capture");
    let capture = data_encoding::BASE64.decode(encoded.as_bytes());
    let file = directory.path().join("capture.pcapng.gz");
    fs::write(&file, capture.expect("base64")).expect("the capture is written");
    let output = Command::new("tshark").arg("-r").arg(&file).output();
    let output = output.expect("tshark starts");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("[SYN]"), "{}", stdout(&output));
}

#[test]
fn graph_of_probe_draws_lost_packet() {
    let output = run(&["graph", "--kernel=host", "--probe=call", STALE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let svg = stdout(&output);
    assert!(
        svg.contains("class=\"stopped\"") && svg.contains("to 192.168.66.10:8080"),
        "{svg}"
    );
    // The book shows this picture. Without records of drops, the reason has other words.
    if can_trace_drops() {
        let picture = project().join("docs/src/images/stale-rule.svg");
        assert_eq!(svg, fs::read_to_string(picture).expect("the picture"));
    }
    for format in ["mermaid", "dot"] {
        let output = run(&["graph", "--format", format, STALE]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        insta::assert_snapshot!(format, stdout(&output));
    }
}

#[test]
fn graph_of_unknown_probe_or_several_cases_is_refused() {
    let refused = [
        run(&["graph", "--probe=none", STALE]),
        run(&["graph", "--kernel=all", "--probe=call", STALE]),
        run(&["graph", "canal-stale-rule/stale=missed"]),
    ];
    let messages = refused.map(|output| {
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    });
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn run_report_writes_readable_capture_and_results() {
    let directory = tempfile::tempdir().expect("a directory");
    let report_path = directory.path().join("report");
    let output = svclab()
        .args(["run", "--kernel=host", STALE, "--report"])
        .arg(&report_path)
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let case = report_path.join("canal-stale-rule/stale=present,rpFilter=1,underlay=passes");
    let run_program = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .arg(case.join("capture.pcapng"))
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(output.status.success(), "{program}: {}", stderr(&output));
        (stdout(&output), stderr(&output))
    };
    let fields = [
        "-Y",
        "frame.comment",
        "-T",
        "fields",
        "-e",
        "frame.interface_name",
        "-e",
        "frame.comment",
        "-r",
    ];
    let (commented, _) = run_program("tshark", &fields);
    let lost = if can_trace_drops() {
        "dropped in node-2: IP_RPFILTER"
    } else {
        "lost in node-2"
    };
    assert!(
        commented.contains("node-1/flannel.1\trewritten in node-1: ")
            && commented.contains("DNAT --to-destination 192.168.66.10:8080")
            && commented.contains(&format!("node-2/flannel.1\t{lost}")),
        "{commented}"
    );
    let (packets, complaints) = run_program("tcpdump", &["-nr"]);
    assert!(!complaints.contains("truncated"), "{complaints}");
    let document = read_case(&case).expect("evidence");
    let captured = document["evidence"]["stages"][0]["packets"]
        .as_array()
        .expect("packets");
    let (frames, _) = run_program("tshark", &["-T", "fields", "-e", "frame.number", "-r"]);
    assert_eq!(frames.lines().count(), captured.len(), "{packets}");
    let schema: Value =
        serde_json::from_str(include_str!("../../schema/evidence.v1.json")).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    assert!(validator.is_valid(&document));
    let text = fs::read_to_string(case.join("explain.txt")).expect("a text");
    assert!(text.contains("(rp_filter)"), "{text}");
    let drops = &document["evidence"]["stages"][0]["drops"];
    let wanted = if can_trace_drops() {
        "watched"
    } else {
        "uncertain"
    };
    assert!(drops.get(wanted).is_some(), "{drops}");
    let junit = fs::read_to_string(report_path.join("junit.xml")).expect("a file");
    assert!(junit.contains("<testcase name="), "{junit}");
}

#[test]
fn run_unwritable_report_exits_before_run() {
    let output = run(&["run", "--kernel=host", STALE, "--report=/dev/null/report"]);
    assert_eq!(output.status.code(), Some(3));
    insta::assert_snapshot!(stderr(&output));
    assert!(output.stdout.is_empty());
}
