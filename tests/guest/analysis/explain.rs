//! Tests explanations of the write-ups that need IPVS, in a guest, whose kernel also reports drops.

use std::process::Command;

use serde_json::Value;

use crate::SVCLAB;

/// Runs `explain` and returns the connections of a probe.
fn explain_connections(case: &str, probe: &str) -> Vec<Value> {
    let output = Command::new(SVCLAB)
        .current_dir(svclab_test_support::root())
        .args([
            "explain",
            "--kernel=6.12",
            "--format=json",
            "--probe",
            probe,
            case,
        ])
        .output()
        .expect("the command starts");
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr_text}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let connections = &document["cases"][0]["stages"][0]["connections"];
    connections.as_array().expect("connections").clone()
}

fn conclusion_text(connection: &Value) -> String {
    let sentences = connection["conclusion"].as_array().expect("sentences");
    let sentences: Vec<&str> = sentences.iter().filter_map(Value::as_str).collect();
    sentences.join("\n")
}

#[test]
fn explain_hairpin_names_rule_entry_and_missed_reply() {
    let case = "clb-hairpin/policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing";
    let connections = explain_connections(case, "call");
    let (lost, connected): (Vec<_>, Vec<_>) = connections
        .iter()
        .partition(|connection| connection["verdict"] == "timeout");
    assert_eq!((lost.len(), connected.len()), (4, 4));
    for connection in lost {
        let conclusion_of_lost = conclusion_text(connection);
        for words in [
            "SYN reached pod/default/nginx-a at 172.17.1.10:443",
            "SYN-ACK reached pod/default/client from 172.18.1.10:30443 (node-1), which is not the \
             probe's target; pod/default/client replied with RST; fabric rewrote the request but \
             did not receive the reply",
            // `why` confirms that without this rule, the connections succeed.
            "node-1 kept source 172.17.1.9: nat KUBE-LOAD-BALANCER rule 1: ",
            "--match-set KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN`, matching entry \
             KUBE-LOAD-BALANCER-LOCAL 172.18.96.4,tcp:443",
            "kube-proxy does not bind load balancer addresses to the node",
        ] {
            assert!(
                conclusion_of_lost.contains(words),
                "{words}: {conclusion_of_lost}"
            );
        }
    }
}

#[test]
fn explain_missing_cluster_cidr_names_unrouted_reply() {
    let case = "missing-cluster-cidr/clusterCIDR=missing,byHand=nothing,apiserver=apart";
    let connections = explain_connections(case, "fromNode");
    let conclusion_of_call = conclusion_text(&connections[0]);
    for words in [
        "SYN reached apiserver-1 at 10.19.9.120:6443",
        "was rejected in fabric with ICMP net unreachable: no route",
        "node-1 kept source 10.20.0.1 (the destination, which is an address of node-1 itself): no rule \
         marked the packet for masquerading",
    ] {
        assert!(
            conclusion_of_call.contains(words),
            "{words}: {conclusion_of_call}"
        );
    }
}

/// The kernel log at the end of the fourth write-up. Its stages are nat OUTPUT, then KUBE-SERVICES
/// before and after the mark, then filter OUTPUT and nat POSTROUTING with the mark, and the
/// masquerading rule.
#[test]
fn explain_missing_cidr_hop_matches_follow_logged_order() {
    let case = "missing-cluster-cidr/clusterCIDR=right,byHand=nothing,apiserver=apart";
    let connections = explain_connections(case, "fromNode");
    let hop = &connections[0]["packets"][0]["hops"][0];
    assert_eq!(hop["namespace"], "node-1");
    let matches = hop["matches"].as_array().expect("steps");
    let stages: Vec<(&str, &str, u64, &str)> = matches
        .iter()
        .map(|step| {
            let text = |of: &'static str| step[of].as_str().unwrap_or_default();
            let to = step["flow"]["destination"].as_str().unwrap_or_default();
            (
                text("table"),
                text("chain"),
                step["mark"].as_u64().unwrap_or(0),
                to,
            )
        })
        .collect();
    let (service, real) = ("10.20.0.1:443", "10.19.9.120:6443");
    let mut rest = stages.iter();
    for stage in [
        ("nat", "OUTPUT", 0, service),
        ("nat", "KUBE-SERVICES", 0, service),
        ("nat", "OUTPUT", 0x4000, service),
        ("filter", "OUTPUT", 0x4000, real),
        ("nat", "POSTROUTING", 0x4000, real),
        ("nat", "KUBE-POSTROUTING", 0x4000, real),
    ] {
        assert!(rest.any(|found| *found == stage), "{stage:?}: {stages:?}");
    }
}
