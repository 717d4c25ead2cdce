//! Breaks a healthy node in nftables mode by one change of kube-proxy's table. `svclab diff` names
//! exactly this change, and `svclab bisect` finds exactly this change.

use crate::dump::replay::{CALL, collect_node, write_objects};
use crate::running::Labs;
use crate::support::{LAB, run, stderr, stdout};

/// Applies commands of `nft` on a node. Returns the output of `diff` and of `bisect` for the dumps
/// of the node before and after.
fn compare_before_and_after(commands: &[&str]) -> String {
    let nftables = LAB.replacen("version: v1.30", "version: v1.30, mode: nftables", 1);
    assert_ne!(nftables, LAB);
    let labs = Labs::from_text(&nftables);
    labs.runtime.up(&labs.case("Cluster"));
    let directory = tempfile::tempdir().expect("a directory");
    let collect = |name: &str| {
        let file = directory.path().join(name);
        collect_node(&labs.runtime, "node-1", &file);
        file.display().to_string()
    };
    let good = collect("good.tar.gz");
    for command in commands {
        let output = labs.runtime.run(&["exec", "node-1", "--", "nft", command]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let bad = collect("bad.tar.gz");
    let objects = write_objects(directory.path());
    let diff = run(&["diff", &good, &bad]);
    assert_eq!(diff.status.code(), Some(1), "{}", stderr(&diff));
    let sides = ["--good", &good, "--bad", &bad, "--node", "node-1"];
    let probe = ["--objects", &objects, "--probe", CALL];
    let bisect = run(&[&["bisect", "--kernel=host"], &sides[..], &probe].concat());
    assert_eq!(bisect.status.code(), Some(0), "{}", stderr(&bisect));
    let home = directory.path().display().to_string();
    (stdout(&diff) + "\n" + &stdout(&bisect)).replace(&home, "DIR")
}

macro_rules! assert_output_snapshot {
    ($text:expr) => {
        insta::with_settings!({filters => vec![
            (r"\d+ trials in \d+\.\d s on \S+;", "N trials in N s on KERNEL;"),
            (r"(connected|timeout|refused) \d+", "$1 N"),
        ]}, {
            insta::assert_snapshot!($text);
        });
    };
}

#[test]
fn nft_map_element_removed_is_named() {
    let delete = "delete element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 }";
    assert_output_snapshot!(compare_before_and_after(&[delete]));
}

#[test]
fn nft_map_element_with_other_target_is_named() {
    let delete = "delete element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 }";
    let add = "add element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 : goto mark-for-masquerade }";
    assert_output_snapshot!(compare_before_and_after(&[delete, add]));
}

#[test]
fn nft_rule_inserted_is_named() {
    let insert = "insert rule ip kube-proxy filter-forward ip daddr 10.244.1.10 drop";
    assert_output_snapshot!(compare_before_and_after(&[insert]));
}

#[test]
fn nft_chain_policy_changed_is_named() {
    let drop = "chain ip kube-proxy filter-forward { policy drop ; }";
    assert_output_snapshot!(compare_before_and_after(&[drop]));
}

/// Harmless changes of other objects are differences, but no culprits.
#[test]
fn nft_map_element_among_other_changes_is_found() {
    let delete = "delete element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 }";
    let add = "add element ip kube-proxy cluster-ips { 10.96.0.99 }";
    let insert = "insert rule ip kube-proxy filter-input ip saddr 203.0.113.77 drop";
    let create =
        "table inet fw { chain in { type filter hook input priority 5 ; tcp dport 99 drop ; } ; }";
    assert_output_snapshot!(compare_before_and_after(&[delete, add, insert, create]));
}

#[test]
fn nft_rule_removed_is_named() {
    let flush = "flush chain ip kube-proxy nat-prerouting";
    assert_output_snapshot!(compare_before_and_after(&[flush]));
}
