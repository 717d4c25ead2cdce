//! Tests `svclab why` with labs that need IPVS, and with each available kernel.

use std::process::Command;

use serde_json::Value;

use crate::SVCLAB;

/// Runs `why` on a case and returns a finding for each kernel.
fn findings(kernel: &str, case: &str) -> Vec<Value> {
    let output = Command::new(SVCLAB)
        .current_dir(svclab_test_support::root())
        .args(["why", "--format=json", "--kernel", kernel, case])
        .output()
        .expect("the command starts");
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr_text}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    document["cases"].as_array().expect("cases").clone()
}

/// Returns the descriptions of the fixes of a probe.
fn fixes(finding: &Value) -> Vec<&str> {
    let changes = finding["failing"][0]["fixes"].as_array().expect("fixes");
    let words = changes
        .iter()
        .map(|cure| &cure["changes"][0]["description"]);
    words
        .map(|words| words.as_str().expect("a description"))
        .collect()
}

#[test]
fn why_stale_rule_every_kernel_has_same_fixes() {
    let case = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";
    let found = findings("all", case);
    let kernels: Vec<&str> = found
        .iter()
        .map(|finding| finding["kernel"].as_str().expect("a release"))
        .collect();
    assert!(kernels.len() >= 3, "{kernels:?}");
    for finding in &found {
        assert_eq!(fixes(finding), fixes(&found[0]), "{kernels:?}");
    }
    assert_eq!(fixes(&found[0]).len(), 4);
}

/// In S4, the operator flushes the rules. Of the rules that come back, two matter.
#[test]
fn why_flushed_rules_names_two_that_matter() {
    let case = "missing-cluster-cidr/clusterCIDR=right,byHand=flushed,apiserver=apart";
    let found = findings("6.12", case);
    for wrong in found[0]["failing"].as_array().expect("probes") {
        let cures = wrong["fixes"].as_array().expect("fixes");
        assert_eq!(cures.len(), 1, "{wrong}");
        let changes = cures[0]["changes"].as_array().expect("changes");
        let matters = changes.iter().map(|described| &described["change"]);
        let rules: Vec<&str> = matters
            .flat_map(|change| change["differences"].as_array().expect("differences"))
            .map(|difference| difference["good"].as_str().expect("the missing rule"))
            .collect();
        assert!(
            rules.iter().any(|rule| rule.contains("! -s 11.0.0.0/16")
                && rule.contains("--match-set KUBE-CLUSTER-IP dst,dst")
                && rule.ends_with("-j KUBE-MARK-MASQ")),
            "{rules:?}"
        );
        assert!(
            rules.iter().any(|rule| rule.contains("MASQUERADE")),
            "{rules:?}"
        );
        assert_eq!(rules.len(), 2, "{rules:?}");
    }
}

/// A guest gets the programs that read what manual commands left, so that single objects are
/// restored.
#[test]
fn why_manual_changes_in_guest_restores_rule() {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = directory.path().join("lab.yaml");
    let text = include_str!("../../command/analysis/cures.yaml");
    std::fs::write(&lab, text).expect("a lab");
    let case = format!("{}/fault=missingRule", lab.display());
    let found = findings("6.12", &case);
    let cure = &found[0]["failing"][0]["fixes"][0]["changes"][0];
    let command = cure["commands"][0]["command"].as_str().unwrap_or_default();
    assert!(
        command.starts_with("iptables-nft -t nat -A KUBE-SEP-"),
        "{found:#?}"
    );
}

/// A command that mixes changes is kept in copies of the case. A rule of it is then deleted by
/// `iptables-nft`, which labs do not use otherwise.
#[test]
fn why_unread_changes_in_guest_deletes_rule() {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = directory.path().join("lab.yaml");
    let text = include_str!("../../command/analysis/cures.yaml");
    let command = "iptables-nft -I FORWARD 1 -d 10.244.2.10/32 -j DROP";
    let mixed = r#"sh -c '(echo \"*filter\"; echo -I FORWARD 1 -d 10.244.2.10/32 -j DROP; echo COMMIT) | iptables-nft-restore -n; ip nexthop flush'"#;
    let changed = text.replacen(command, mixed, 1);
    assert_ne!(changed, text);
    std::fs::write(&lab, changed).expect("a lab");
    let case = format!("{}/fault=dropRule", lab.display());
    let found = findings("6.12", &case);
    let tried = found[0]["tried"].to_string();
    assert!(!tried.contains("is not installed"), "{tried}");
    let fixes = fixes(&found[0]);
    let rule = "delete rule 1 of filter FORWARD on node-1: `-d 10.244.2.10/32 -j DROP`";
    assert!(fixes.contains(&rule), "{fixes:?}");
}
