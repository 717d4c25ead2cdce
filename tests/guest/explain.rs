//! Tests explanations of the write-ups that need IPVS, in a guest, whose kernel also reports drops.

use std::process::Command;

use serde_json::Value;

use super::SVCLAB;

/// Runs `explain` and returns the connections of a probe.
fn connections(case: &str, probe: &str) -> Vec<Value> {
    let output = Command::new(SVCLAB)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
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
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let connections = &document["cases"][0]["connections"];
    connections.as_array().expect("connections").clone()
}

fn conclusion(connection: &Value) -> String {
    let said = connection["conclusion"].as_array().expect("sentences");
    let said: Vec<&str> = said.iter().filter_map(Value::as_str).collect();
    said.join("\n")
}

#[test]
fn the_hairpin_names_its_rule_its_entry_and_who_never_saw_the_reply() {
    let case = "clb-hairpin/policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing";
    let connections = connections(case, "call");
    let (lost, well): (Vec<_>, Vec<_>) = connections
        .iter()
        .partition(|connection| connection["verdict"] == "timeout");
    assert_eq!((lost.len(), well.len()), (4, 4));
    for connection in lost {
        let said = conclusion(connection);
        for words in [
            "SYN reached pod/default/nginx-a at 172.17.1.10:443",
            "SYN-ACK reached pod/default/client from 172.18.1.10:30443 (node-1), which it never \
             called; it answered RST; fabric, which had rewritten the call, never saw it",
            "node-1 kept its source 172.17.1.9: it was let off by nat KUBE-NODE-PORT rule 1: ",
            "--match-set KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN`, by the entry \
             KUBE-NODE-PORT-LOCAL-TCP 30443",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}

#[test]
fn a_node_without_cluster_cidr_keeps_its_source_and_nothing_brings_the_answer_back() {
    let case = "missing-cluster-cidr/clusterCIDR=missing,byHand=nothing,apiserver=apart";
    let connections = connections(case, "fromNode");
    let said = conclusion(&connections[0]);
    for words in [
        "SYN reached apiserver-1 at 10.19.9.120:6443",
        "was refused in fabric with ICMP net unreachable: no route",
        "node-1 kept its source 10.20.0.1: no rule marked it for masquerading",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// The kernel log at the end of the fourth write-up. Its stages are nat OUTPUT, then KUBE-SERVICES
/// before and after the mark, then filter OUTPUT and nat POSTROUTING with the mark, and the
/// masquerading rule.
#[test]
fn the_stages_of_the_write_up_s_log_come_in_its_order() {
    let case = "missing-cluster-cidr/clusterCIDR=right,byHand=nothing,apiserver=apart";
    let connections = connections(case, "fromNode");
    let hop = &connections[0]["flights"][0]["hops"][0];
    assert_eq!(hop["namespace"], "node-1");
    let met = hop["met"].as_array().expect("steps");
    let stages: Vec<(&str, &str, u64, &str)> = met
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
        assert!(rest.any(|own| *own == stage), "{stage:?}: {stages:?}");
    }
}
