//! Tests `svclab why`: finds the causes that the write-ups describe, and no others.

use serde_json::Value;

use super::full::ordinary_or_full;
use super::settled::settled;
use super::standing::Labs;
use super::support::{LAB, assert_fits, lab, run, stderr, stdout};

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
    named: &'static [&'static str],
    /// Parts of the texts of fixes that may also be reported.
    beside: &'static [&'static str],
}

const SURPLUS: &str = "`! -s 192.168.64.0/20 -d 192.168.66.0/24 -j RETURN`";
const KNOWN_PODS: &str = "start kube-proxy with --cluster-cidr=";
const ALL: &str = "start kube-proxy with --masquerade-all";
const STRICT: &str = "set net.ipv4.conf.all.rp_filter = 0 on node-1, node-2";
const CHECKED: &str = "let the underlay pass packets whose source";
const POLICY: &str = "set externalTrafficPolicy: Cluster in the service ";
const OWN_SOURCE: &str = "let the load balancer clb forward from its own address";
const TAKEN_OUT: &str = "take node-1 out of the load balancer clb";
const UNMASKED: &str = "out of ip-masq-agent's nonMasqueradeCIDRs";
const ANOTHER: &str = "make node-2 a backend of the load balancer clb, too";
const BY_HAND: &str = "undo what was done on node-1 by hand";

const CAUSES: &[Cause] = &[
    // S2-30, S2-35: the surplus rule is one half of the cause; the other is a strict reverse path
    // filter, or an underlay that checks sources. A rule that masquerades earlier hides the surplus
    // rule.
    Cause {
        lab: "canal-stale-rule",
        when: &["rpFilter=1", "underlay=passes"],
        probes: &["call"],
        named: &[SURPLUS, STRICT],
        beside: &[KNOWN_PODS, ALL],
    },
    Cause {
        lab: "canal-stale-rule",
        when: &["rpFilter=1", "underlay=drops"],
        probes: &["call"],
        named: &[SURPLUS],
        beside: &[KNOWN_PODS, ALL],
    },
    Cause {
        lab: "canal-stale-rule",
        when: &["underlay=drops"],
        probes: &["call"],
        named: &[SURPLUS, CHECKED],
        beside: &[KNOWN_PODS, ALL],
    },
    // S4: kube-proxy has no pod network, or its rules were flushed.
    Cause {
        lab: "missing-cluster-cidr",
        when: &["byHand=flushed"],
        probes: &["fromNode", "fromHostPod", "other"],
        named: &[BY_HAND],
        beside: &[],
    },
    Cause {
        lab: "missing-cluster-cidr",
        when: &[],
        probes: &["fromNode", "fromHostPod", "other"],
        named: &[KNOWN_PODS],
        beside: &[ALL],
    },
    // S3: the policy. A kube-proxy with the pod network forwards connections of pods to the
    // service.
    Cause {
        lab: "local-ingress",
        when: &["policy=Local"],
        probes: &["apart", "nodeWithout"],
        named: &["set externalTrafficPolicy: Cluster in the service ns1/nginx"],
        beside: &[KNOWN_PODS],
    },
    Cause {
        lab: "local-ingress",
        when: &["policy=Local"],
        probes: &["podToExternal", "nodeToExternal"],
        named: &["set externalTrafficPolicy: Cluster in the service ns1/svc1"],
        beside: &[KNOWN_PODS],
    },
    // S0, S1: the loop, which the policy causes. A source address of the balancer, or another
    // backend, fixes the loop.
    //
    // The dead backend of a layer 7 balancer, which the lab itself blocks.
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=layer7"],
        probes: &["call"],
        named: &[BY_HAND],
        beside: &[TAKEN_OUT],
    },
    // S1-22: the node of the client is the only backend, and excluded.
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=single"],
        probes: &["call"],
        named: &[ANOTHER],
        beside: &[],
    },
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=singleDrops"],
        probes: &["call"],
        named: &[ANOTHER],
        beside: &[],
    },
    // No health check asks node-1 whether it has an endpoint, so connections of any source fail.
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=unchecked"],
        probes: &["call", "outside"],
        named: &["let the load balancer clb check its backends' health"],
        beside: &[POLICY, TAKEN_OUT, OWN_SOURCE, UNMASKED],
    },
    Cause {
        lab: "clb-hairpin",
        when: &["balancer=blocked"],
        probes: &["call"],
        named: &["let all pass the security group of the load balancer clb"],
        beside: &[OWN_SOURCE, POLICY],
    },
    Cause {
        lab: "clb-hairpin",
        when: &["ingress=both"],
        probes: &["call"],
        named: &[POLICY],
        // ip-masq-agent masquerades packets without the mark, once the network is not excluded
        // (S0-15).
        beside: &[OWN_SOURCE, TAKEN_OUT, UNMASKED],
    },
    Cause {
        lab: "clb-hairpin",
        when: &[],
        probes: &["call"],
        named: &[OWN_SOURCE],
        beside: &[POLICY],
    },
];

/// Cases on the host that an ordinary run tries.
const FEW: &[&str] = &[
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
fn each_failing_case_is_told_its_cause_and_nothing_false() {
    let mut arguments = vec!["why", "--format", "json"];
    arguments.extend(ordinary_or_full(FEW, LABS));
    let output = run(&arguments);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_fits(&document, include_str!("../schema/why.v1.json"));
    let cases = document["cases"].as_array().expect("cases");
    let mut complaints = Vec::new();
    let (mut healthy, mut failing) = (0, 0);
    for case in cases {
        let id = case["case"].as_str().expect("a case");
        let wrong = case["wrong"].as_array().expect("probes");
        healthy += usize::from(wrong.is_empty());
        for wrong in wrong {
            failing += 1;
            complaints.extend(complain(id, wrong));
        }
    }
    assert!(healthy > 0 && failing > 0, "{healthy} {failing}");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Returns what is wrong with the report on a probe.
fn complain(id: &str, wrong: &Value) -> Vec<String> {
    let probe = wrong["probe"].as_str().expect("a probe");
    let (lab, values) = id.split_once('/').expect("a case of a lab");
    let values: Vec<&str> = values.split(',').collect();
    let cause = CAUSES.iter().find(|cause| {
        cause.lab == lab
            && cause.probes.contains(&probe)
            && cause.when.iter().all(|value| values.contains(value))
    });
    let Some(cause) = cause else {
        return vec![format!("{id}: {probe}: no write-up says that it fails")];
    };
    // Generated rules are the place of the cause, not the cause.
    let cures: Vec<String> = wrong["cures"]
        .as_array()
        .expect("cures")
        .iter()
        .map(|cure| cure["changes"].as_array().expect("changes"))
        .filter(|changes| changes.iter().all(|told| told["level"] == "said"))
        .map(|changes| {
            let words = changes
                .iter()
                .map(|told| told["words"].as_str().expect("words"));
            words.collect::<Vec<_>>().join(" + ")
        })
        .collect();
    let unnamed = cause
        .named
        .iter()
        .filter(|named| !cures.iter().any(|cure| cure.contains(*named)))
        .map(|named| format!("{id}: {probe}: `{named}` is not among {cures:?}"));
    let said = |cure: &&String| {
        let mut known = cause.named.iter().chain(cause.beside);
        known.any(|known| cure.contains(known))
    };
    let others = cures
        .iter()
        .filter(|cure| !said(cure))
        .map(|cure| format!("{id}: {probe}: {cure}"));
    unnamed.chain(others).collect()
}

#[test]
fn the_stale_rule_and_its_other_half_are_told() {
    let output = run(&["why", "--kernel=host", "-v", STALE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = settled(&stdout(&output));
    // Without the privilege to trace drops, this part comes from counters.
    let told: Vec<&str> = told
        .split("\n\n")
        .filter(|part| !part.contains("call: 0"))
        .collect();
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn of_a_healthy_case_nothing_is_wrong() {
    let case = "canal-stale-rule/stale=removed,rpFilter=1,underlay=passes";
    let output = run(&["why", "--kernel=host", case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(settled(&stdout(&output)));
}

/// Starts a lab and saves the rules of its node, without the lines that contain `gone`.
fn dumped(gone: &str) -> (Labs, tempfile::TempDir, String) {
    let labs = Labs::one();
    let saved = labs.runtime.run(&["exec", "node-1", "--", "iptables-save"]);
    let saved = stdout(&saved);
    let (lost, left): (Vec<&str>, Vec<&str>) = saved.lines().partition(|line| line.contains(gone));
    assert!(!lost.is_empty(), "{saved}");
    let directory = tempfile::tempdir().expect("a directory");
    let rules = directory.path().join("iptables-save");
    std::fs::write(&rules, left.join("\n") + "\n").expect("it can be written");
    let rules = rules.display().to_string();
    (labs, directory, rules)
}

#[test]
fn what_a_dumped_node_lacks_is_told() {
    let (labs, _directory, dump) = dumped("-j KUBE-SEP-");
    let case = labs.case("Local");
    let output = run(&["why", "--kernel=host", "--dump", &dump, &case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(settled(&stdout(&output)));
    // The result is the same if the lab itself names the dump.
    let nodes = "node-1:\n      dump: iptables-save\n";
    let (directory, path) = lab(LAB.replacen("node-1:\n", nodes, 1));
    std::fs::copy(dump, directory.path().join("iptables-save")).expect("it can be copied");
    let of_lab = run(&[
        "why",
        "--kernel=host",
        &format!("{}/policy=Local", path.display()),
    ]);
    assert_eq!(stdout(&of_lab), stdout(&output), "{}", stderr(&of_lab));
}

#[test]
fn of_a_dumped_node_that_is_well_nothing_is_wrong() {
    let (labs, _directory, dump) = dumped("# Completed on");
    let case = labs.case("Local");
    let output = run(&["why", "--kernel=host", "--dump", &dump, &case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("nothing is wrong"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn what_the_kernel_refuses_of_a_dump_is_left_out_where_the_user_says_so() {
    let (labs, _directory, dump) = dumped("-j KUBE-SEP-");
    let rules = std::fs::read_to_string(&dump).expect("rules");
    let unknown = "-A FORWARD -p tcp -m tcp --dport 81 -j NFLOG --nflog-group 99999999\n";
    let (before, filter) = rules.split_once("*filter").expect("a table");
    let filter = filter.replacen("COMMIT", &format!("{unknown}COMMIT"), 1);
    let rules = format!("{before}*filter{filter}");
    std::fs::write(&dump, rules).expect("it can be written");
    let case = labs.case("Local");
    let ask = |more: &[&str]| {
        let arguments = ["why", "--kernel=host", "--dump", &dump, &case];
        run(&[&arguments[..], more].concat())
    };
    let output = ask(&[]);
    assert_ne!(output.status.code(), Some(0), "{}", stdout(&output));
    let output = ask(&["--lenient"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = stdout(&output);
    assert!(told.contains("restart kube-proxy on node-1"), "{told}");
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
const OTHER: &str = "---
apiVersion: v1
kind: Node
metadata: {name: node-2}
spec: {podCIDR: 10.244.2.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.60.12}]}
";

#[test]
fn what_goes_wrong_after_a_step_is_asked_about_too() {
    let text = LAB.replacen("  axes:\n", &format!("{STEP}  axes:\n"), 1) + OTHER;
    let expected = "    again: {connected: 1}\n    call: {connected";
    let text = text.replace("    call: {connected", expected);
    let (_directory, path) = lab(text);
    let case = format!("{}/policy=Cluster", path.display());
    let output = run(&["why", "--kernel=host", &case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(settled(&stdout(&output)));
}

#[test]
fn who_asks_for_what_is_not_there_is_told() {
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
