//! Tests `svclab why`: finds the causes that the write-ups describe, and no others.

use serde_json::Value;

use super::full::ordinary_or_full;
use super::running::Labs;
use super::settled::normalized;
use super::support::{LAB, assert_matches_schema, run, stderr, stdout, write_lab};

/// The node-to-service probe of the second write-up, with its stale rule.
const STALE: &str = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";

/// Cause that a write-up found, for some cases of a lab.
struct Cause {
    lab: &'static str,
    /// Axis values of the cases.
    when: &'static [&'static str],
    /// Probes that fail for this cause.
    probes: &'static [&'static str],
    /// Parts of the texts of fixes that must be reported.
    required: &'static [&'static str],
    /// Parts of the texts of fixes that may also be reported.
    allowed: &'static [&'static str],
}

const SURPLUS_RULE: &str = "`! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN`";
const SET_CLUSTER_CIDR: &str = "start kube-proxy with --cluster-cidr=";
const MASQUERADE_ALL: &str = "start kube-proxy with --masquerade-all";
const DISABLE_RP_FILTER: &str = "set net.ipv4.conf.all.rp_filter = 0 on node-1, node-2";
const DISABLE_SOURCE_CHECK: &str = "let the underlay forward packets whose source";
const SET_POLICY_CLUSTER: &str = "set externalTrafficPolicy: Cluster in service ";
const SOURCE_OF_BALANCER: &str = "let load balancer clb forward from its own address";
const REMOVE_BACKEND: &str = "remove node-1 from the backends of load balancer clb";
const MASQUERADE_NETWORK: &str = "from nonMasqueradeCIDRs of ip-masq-agent";
const ADD_BACKEND: &str = "add node-2 to the backends of load balancer clb";
const UNDO_BY_HAND: &str = "undo the manual changes on node-1";

const CAUSES: &[Cause] = &[
    // S2-30, S2-35: the surplus rule is one half of the cause; the other is a strict reverse path
    // filter, or an underlay that checks sources. A rule that masquerades earlier hides the surplus
    // rule.
    Cause {
        lab: "canal-stale-rule",
        when: &["rpFilter=1", "underlay=passes"],
        probes: &["call"],
        required: &[SURPLUS_RULE, DISABLE_RP_FILTER],
        allowed: &[SET_CLUSTER_CIDR, MASQUERADE_ALL],
    },
    Cause {
        lab: "canal-stale-rule",
        when: &["rpFilter=1", "underlay=drops"],
        probes: &["call"],
        required: &[SURPLUS_RULE],
        allowed: &[SET_CLUSTER_CIDR, MASQUERADE_ALL],
    },
    Cause {
        lab: "canal-stale-rule",
        when: &["underlay=drops"],
        probes: &["call"],
        required: &[SURPLUS_RULE, DISABLE_SOURCE_CHECK],
        allowed: &[SET_CLUSTER_CIDR, MASQUERADE_ALL],
    },
    // S4: kube-proxy has no pod network, or its rules were flushed.
    Cause {
        lab: "missing-cluster-cidr",
        when: &["byHand=flushed"],
        probes: &["fromNode", "fromHostPod", "other"],
        required: &[UNDO_BY_HAND],
        allowed: &[],
    },
    Cause {
        lab: "missing-cluster-cidr",
        when: &[],
        probes: &["fromNode", "fromHostPod", "other"],
        required: &[SET_CLUSTER_CIDR],
        allowed: &[MASQUERADE_ALL],
    },
    // S3: the policy. A kube-proxy with the pod network forwards connections of pods to the
    // service.
    Cause {
        lab: "local-ingress",
        when: &["policy=Local"],
        probes: &["apart", "nodeWithout"],
        required: &["set externalTrafficPolicy: Cluster in service ns1/nginx"],
        allowed: &[SET_CLUSTER_CIDR],
    },
    Cause {
        lab: "local-ingress",
        when: &["policy=Local"],
        probes: &["podToExternal", "nodeToExternal"],
        required: &["set externalTrafficPolicy: Cluster in service ns1/svc1"],
        allowed: &[SET_CLUSTER_CIDR],
    },
    // S0, S1: the loop, which the policy causes. A source address of the balancer, or another
    // backend, fixes the loop.
    //
    // The dead backend of a layer 7 balancer, which the lab itself blocks.
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=layer7"],
        probes: &["call"],
        required: &[UNDO_BY_HAND],
        allowed: &[REMOVE_BACKEND],
    },
    // S1-22: the node of the client is the only backend, and excluded.
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=single"],
        probes: &["call"],
        required: &[ADD_BACKEND],
        allowed: &[],
    },
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=singleDrops"],
        probes: &["call"],
        required: &[ADD_BACKEND],
        allowed: &[],
    },
    // No health check asks node-1 whether it has an endpoint, so connections of any source fail.
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=unchecked"],
        probes: &["call", "outside"],
        required: &["let load balancer clb check the health of its backends"],
        allowed: &[
            SET_POLICY_CLUSTER,
            REMOVE_BACKEND,
            SOURCE_OF_BALANCER,
            MASQUERADE_NETWORK,
        ],
    },
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=blocked"],
        probes: &["call"],
        required: &["remove the security group of load balancer clb"],
        allowed: &[SOURCE_OF_BALANCER, SET_POLICY_CLUSTER],
    },
    Cause {
        lab: "clb-hairpin",
        when: &["ingress=both"],
        probes: &["call"],
        required: &[SET_POLICY_CLUSTER],
        // ip-masq-agent masquerades packets without the mark, once the network is not excluded
        // (S0-15).
        allowed: &[SOURCE_OF_BALANCER, REMOVE_BACKEND, MASQUERADE_NETWORK],
    },
    Cause {
        lab: "clb-hairpin",
        when: &[],
        probes: &["call"],
        required: &[SOURCE_OF_BALANCER],
        allowed: &[SET_POLICY_CLUSTER],
    },
];

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
    assert_matches_schema(&document, include_str!("../schema/why.v1.json"));
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
    let (lab, values) = id.split_once('/').expect("a case of a lab");
    let values: Vec<&str> = values.split(',').collect();
    let cause = CAUSES.iter().find(|cause| {
        cause.lab == lab
            && cause.probes.contains(&probe)
            && cause.when.iter().all(|value| values.contains(value))
    });
    let Some(cause) = cause else {
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
        stdout(&output).contains("no failures"),
        "{}",
        stdout(&output)
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
    assert!(
        output_text.contains("restart kube-proxy on node-1"),
        "{output_text}"
    );
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
fn why_probe_failing_after_step_is_explained() {
    let text = LAB.replacen("  axes:\n", &format!("{STEP}  axes:\n"), 1) + SECOND_NODE;
    let expected = "    again: {connected: 1}\n    call: {connected";
    let text = text.replace("    call: {connected", expected);
    let (_directory, path) = write_lab(text);
    let case = format!("{}/policy=Cluster", path.display());
    let output = run(&["why", "--kernel=host", &case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(normalized(&stdout(&output)));
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
