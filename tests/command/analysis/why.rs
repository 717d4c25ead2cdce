//! Tests `svclab why`: finds the causes that the write-ups describe, and no others.

use serde_json::Value;
use svclab_test_support::causes::find_cause;
use svclab_test_support::ordinary_or_full;
use svclab_test_support::running::normalized;

use crate::running::Labs;
use crate::support::{LAB, assert_matches_schema, run, stderr, stdout, write_lab};

/// The node-to-service probe of the second write-up, with its stale rule.
const STALE: &str = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";

/// Cases on the host that an ordinary run tries.
const SOME_CASES: &[&str] = &[
    "canal-stale-rule/stale=respelled,rpFilter=2,underlay=drops",
    "canal-stale-rule/stale=recycled,rpFilter=1,underlay=passes",
    "local-ingress/policy=Local,clusterCIDR=none,version=v1.30,mode=iptables",
];

/// All labs of the write-ups.
const LABS: &[&str] = &[
    "canal-stale-rule",
    "local-ingress",
    "clb-hairpin",
    "missing-cluster-cidr",
];

#[test]
fn why_failing_cases_name_causes_of_write_ups() {
    let mut arguments = vec!["why", "--format", "json"];
    arguments.extend(ordinary_or_full(SOME_CASES, LABS));
    let output = run(&arguments);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_matches_schema(&document, include_str!("../../schema/why.v1.json"));
    let cases = document["cases"].as_array().expect("cases");
    let mut complaints = Vec::new();
    let (mut healthy, mut failing) = (0, 0);
    for case in cases {
        let id = case["case"].as_str().expect("a case");
        let wrong = case["failing"].as_array().expect("probes");
        healthy += usize::from(wrong.is_empty());
        for wrong in wrong {
            failing += 1;
            complaints.extend(complaints_about(id, wrong));
        }
    }
    assert!(healthy > 0 && failing > 0, "{healthy} {failing}");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Returns what is wrong with the report on a probe.
fn complaints_about(id: &str, wrong: &Value) -> Vec<String> {
    let probe = wrong["probe"].as_str().expect("a probe");
    let Some(cause) = find_cause(id, probe) else {
        return vec![format!("{id}: {probe}: no write-up states this failure")];
    };
    // Generated rules are the place of the cause, not the cause.
    let cures: Vec<String> = wrong["fixes"]
        .as_array()
        .expect("fixes")
        .iter()
        .map(|cure| cure["changes"].as_array().expect("changes"))
        .filter(|changes| {
            changes
                .iter()
                .all(|change| change["origin"] == "configured")
        })
        .map(|changes| {
            let words = changes
                .iter()
                .map(|change| change["description"].as_str().expect("a description"));
            words.collect::<Vec<_>>().join(" + ")
        })
        .collect();
    let unnamed = cause
        .required
        .iter()
        .filter(|named| !cures.iter().any(|cure| cure.contains(*named)))
        .map(|named| format!("{id}: {probe}: `{named}` is not among {cures:?}"));
    let is_reported = |cure: &&String| {
        let mut known = cause.required.iter().chain(cause.allowed);
        known.any(|known| cure.contains(known))
    };
    let other_fixes = cures
        .iter()
        .filter(|cure| !is_reported(cure))
        .map(|cure| format!("{id}: {probe}: {cure}"));
    unnamed.chain(other_fixes).collect()
}

#[test]
fn why_stale_rule_case_names_both_halves() {
    let output = run(&["why", "--kernel=host", "-v", STALE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output_text = normalized(&stdout(&output));
    // Without the privilege to trace drops, this part comes from counters.
    let parts: Vec<&str> = output_text
        .split("\n\n")
        .filter(|part| !part.contains("call: 0"))
        .collect();
    insta::assert_snapshot!(parts.join("\n\n"));
}

#[test]
fn why_healthy_case_reports_nothing_wrong() {
    let case = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";
    let output = run(&["why", "--kernel=host", case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(normalized(&stdout(&output)));
}

/// Starts a lab and saves the rules of its node, without the lines that contain `gone`.
fn lab_with_dump_without(gone: &str) -> (Labs, tempfile::TempDir, String) {
    let labs = Labs::with_running_case();
    let saved = labs.runtime.run(&["exec", "node-1", "--", "iptables-save"]);
    let saved = stdout(&saved);
    let (lost, left): (Vec<&str>, Vec<&str>) = saved.lines().partition(|line| line.contains(gone));
    assert!(!lost.is_empty(), "{saved}");
    let directory = tempfile::tempdir().expect("a directory");
    let rules = directory.path().join("iptables-save");
    std::fs::write(&rules, left.join("\n") + "\n").expect("the file can be written");
    let rules = rules.display().to_string();
    (labs, directory, rules)
}

#[test]
fn why_dump_missing_jump_names_it() {
    let (labs, _directory, dump) = lab_with_dump_without("-j KUBE-SEP-");
    let case = labs.case("Local");
    let output = run(&["why", "--kernel=host", "--dump", &dump, &case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(normalized(&stdout(&output)));
    // The result is the same if the lab itself names the dump.
    let nodes = "node-1:\n      dump: iptables-save\n";
    let (directory, path) = write_lab(LAB.replacen("node-1:\n", nodes, 1));
    std::fs::copy(dump, directory.path().join("iptables-save")).expect("the file can be copied");
    let of_lab = run(&[
        "why",
        "--kernel=host",
        &format!("{}/policy=Local", path.display()),
    ]);
    assert_eq!(stdout(&of_lab), stdout(&output), "{}", stderr(&of_lab));
}

#[test]
fn why_healthy_dump_reports_nothing_wrong() {
    let (labs, _directory, dump) = lab_with_dump_without("# Completed on");
    let case = labs.case("Local");
    let output = run(&["why", "--kernel=host", "--dump", &dump, &case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("no failing probe"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn why_unexpected_success_is_reported() {
    let expected = "call: {connected: 1, endpoints: [web], seenSource: pod/default/client}";
    let (_directory, path) = write_lab(LAB.replace(expected, "call: {timeout: 1}"));
    let case = format!("{}/policy=Local", path.display());
    let output = run(&["why", "--kernel=host", &case]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    let (_, after_heading) = text.split_once('\n').expect("a heading");
    insta::assert_snapshot!(after_heading);
    let output = run(&["why", "--kernel=host", "--format=json", &case]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_matches_schema(&document, include_str!("../../schema/why.v1.json"));
    assert_eq!(
        document["cases"][0]["unexpected"],
        serde_json::json!(["call"])
    );
}

#[test]
fn why_dump_with_rejected_rule_needs_lenient() {
    let (labs, _directory, dump) = lab_with_dump_without("-j KUBE-SEP-");
    let rules = std::fs::read_to_string(&dump).expect("rules");
    let unknown = "-A FORWARD -p tcp -m tcp --dport 81 -j NFLOG --nflog-group 99999999\n";
    let (before, filter) = rules.split_once("*filter").expect("a table");
    let filter = filter.replacen("COMMIT", &format!("{unknown}COMMIT"), 1);
    let rules = format!("{before}*filter{filter}");
    std::fs::write(&dump, rules).expect("the file can be written");
    let case = labs.case("Local");
    let ask = |more: &[&str]| {
        let arguments = ["why", "--kernel=host", "--dump", &dump, &case];
        run(&[&arguments[..], more].concat())
    };
    let output = ask(&[]);
    assert_ne!(output.status.code(), Some(0), "{}", stdout(&output));
    let output = ask(&["--lenient"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output_text = stdout(&output);
    assert!(output_text.contains("KUBE-SEP-"), "{output_text}");
}

/// A step that changes the policy so that one node has no endpoint.
const STEP: &str = "  steps:
  - name: flipped
    change:
    - {patch: Service/default/web, merge: {spec: {internalTrafficPolicy: Local}}}
    - {delete: Pod/default/web}
    - add:
        apiVersion: v1
        kind: Pod
        metadata: {name: far, namespace: default, labels: {app: web}}
        spec: {nodeName: node-2, containers: [{name: web, ports: [{containerPort: 8080}]}]}
        status: {podIP: 10.244.2.10}
    probes:
      again: {from: pod/default/client, to: \"service/default/web:80\"}
";

/// The second node of that lab.
const SECOND_NODE: &str = "---
apiVersion: v1
kind: Node
metadata: {name: node-2}
spec: {podCIDR: 10.244.2.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.60.12}]}
";

#[test]
fn why_lab_without_kube_proxy_proposes_it() {
    let text = LAB
        .replacen(
            "  kubeProxy: {version: v1.30, clusterCIDR: 10.244.0.0/16}\n",
            "",
            1,
        )
        .replacen(
            "  nodes:\n    node-1:\n      leftovers: {iptables: []}\n",
            "",
            1,
        );
    assert!(!text.contains("kubeProxy") && !text.contains("leftovers"));
    let (_directory, path) = write_lab(&text);
    let case = format!("{}/policy=Cluster", path.display());
    let first = first_change(&case);
    let expected = "run kube-proxy on the nodes, with --cluster-cidr=10.244.1.0/24";
    assert_eq!(first, expected);
}

#[test]
fn why_slice_of_other_address_proposes_selected_pods() {
    let slice = "---\n\
        apiVersion: discovery.k8s.io/v1\n\
        kind: EndpointSlice\n\
        metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}\n\
        addressType: IPv4\n\
        ports: [{name: '', port: 8080, protocol: TCP}]\n\
        endpoints: [{addresses: [10.244.1.77], nodeName: node-1, conditions: {ready: true}}]\n";
    let (_directory, path) = write_lab(format!("{LAB}{slice}"));
    let case = format!("{}/policy=Cluster", path.display());
    let first = first_change(&case);
    let expected = "let the selected pods be the endpoints (EndpointSlices) of service default/web";
    assert_eq!(first, expected);
}

/// Returns the description of the first change of the first fix.
fn first_change(case: &str) -> String {
    let output = run(&["why", "--kernel=host", "--format=json", case]);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_matches_schema(&document, include_str!("../../schema/why.v1.json"));
    let fixes = document["cases"][0]["failing"][0]["fixes"].as_array();
    let first = &fixes.expect("fixes")[0]["changes"][0]["description"];
    first.as_str().expect("a description").to_owned()
}

#[test]
fn why_probe_failing_after_step_is_explained() {
    let text = LAB.replacen("  axes:\n", &format!("{STEP}  axes:\n"), 1) + SECOND_NODE;
    let expected = "    again: {connected: 1}\n    call: {connected";
    let text = text.replace("    call: {connected", expected);
    let (_directory, path) = write_lab(text);
    let case = format!("{}/policy=Cluster", path.display());
    insta::allow_duplicates! {
        for probe in [&[][..], &["--probe=again"]] {
            let output = run(&[&["why", "--kernel=host", &case], probe].concat());
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            insta::assert_snapshot!(normalized(&stdout(&output)));
        }
    }
}

#[test]
fn why_unknown_probe_or_case_is_refused() {
    let output = run(&["why", "--probe=cal", STALE]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(stderr(&output));
    let output = run(&["why"]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(stderr(&output));
    let output = run(&["why", "canal-stale-rule/stale=gone"]);
    assert_eq!(output.status.code(), Some(4));
    insta::assert_snapshot!(stderr(&output));
}
