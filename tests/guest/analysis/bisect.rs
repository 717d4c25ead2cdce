//! Tests `svclab bisect` with nodes of the write-ups that need IPVS.

use std::process::Command;

use serde_json::Value;
use svclab_test_support::block_on;
use svclab_test_support::guests::{new_guest, shared_cache};

use crate::SVCLAB;

/// Runs `bisect` on dumps of a write-up that replace a node of a case.
fn bisect(case: &str, good: &str, bad: &str) -> Value {
    // Fetches the kernel.
    block_on(new_guest("6.12"));
    let output = Command::new(SVCLAB)
        .current_dir(svclab_test_support::root())
        .env("SVCLAB_CACHE", shared_cache().directory())
        .args(["bisect", "--kernel=6.12", "--format=json", "--case", case])
        .args(["--node=node-1", "--good", good, "--bad", bad])
        .output()
        .expect("the command starts");
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr_text}");
    assert_eq!(stderr_text, "");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns each difference of a result: location, text on the good side, text on the bad side.
fn differences(side: &Value) -> Vec<[&str; 3]> {
    let groups = side.as_array().expect("a list");
    groups
        .iter()
        .flat_map(|together| together.as_array().expect("a list"))
        .map(|difference| {
            ["location", "good", "bad"].map(|key| difference[key].as_str().unwrap_or("none"))
        })
        .collect()
}

#[test]
fn bisect_s4_nodes_finds_missing_masquerade_rule() {
    let found = bisect(
        "missing-cluster-cidr/clusterCIDR=right,byHand=nothing,apiserver=apart",
        "tests/recorded/bisect/s4/good.iptables-save",
        "tests/recorded/bisect/s4/bad.iptables-save",
    );
    let rule = "! -s 172.16.128.0/17 -m comment --comment \"Kubernetes service cluster ip + port \
                for masquerade purpose\" -m set --match-set KUBE-CLUSTER-IP dst,dst -j \
                KUBE-MARK-MASQ";
    let expected = [["iptables nat KUBE-SERVICES", rule, "none"]];
    assert_eq!(differences(&found["breaks"]), expected, "{found:#}");
    assert_eq!(differences(&found["fixes"]), expected, "{found:#}");
    assert_eq!(found["symptom"]["probe"], "fromNode");
    assert!(found["differences"].as_u64() > Some(10), "{found:#}");
}

#[test]
fn bisect_s0_nodes_finds_rule_and_set_entry() {
    let found = bisect(
        "clb-hairpin/policy=Local,ingress=both,balancer=internal,rpFilter=0,byHand=nothing",
        "tests/recorded/bisect/s0/good",
        "tests/recorded/bisect/s0/bad",
    );
    let rule = "-m comment --comment \"Kubernetes service load balancer ip + port with \
                externalTrafficPolicy=local\" -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst \
                -j RETURN";
    let both = [
        [
            "ipset KUBE-LOAD-BALANCER-LOCAL",
            "none",
            "172.18.96.4,tcp:443",
        ],
        ["iptables nat KUBE-LOAD-BALANCER", "none", rule],
    ];
    // Neither the rule alone nor the entry alone causes the return.
    assert_eq!(differences(&found["breaks"]), both, "{found:#}");
    let fixes = differences(&found["fixes"]);
    assert!(fixes.len() == 1 && both.contains(&fixes[0]), "{found:#}");
    // Every second connection fails, in turn.
    assert_eq!(found["symptom"]["detail"], "verdict");
    assert!(found["errorPerMillion"].as_u64() <= Some(1000), "{found:#}");
}
