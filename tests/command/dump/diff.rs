//! Tests `svclab diff`: exit codes, differences, and errors in dumps.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::{project, run, stderr, stdout};

/// Writes files to a directory.
fn dump(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).expect("a file");
    }
    directory
}

/// Compares two paths. Returns the exit code and both output streams, without the names of the
/// directories.
fn run_diff(first: &Path, second: &Path, names: &[(&Path, &str)]) -> (Option<i32>, String) {
    let paths = [first.display().to_string(), second.display().to_string()];
    let output = run(&["diff", &paths[0], &paths[1]]);
    let mut text = format!("{}{}", stderr(&output), stdout(&output));
    for (path, name) in names {
        text = text.replace(&path.display().to_string(), name);
    }
    (output.status.code(), text)
}

/// Compares two sets of files.
fn diff_files(first: &[(&str, &str)], second: &[(&str, &str)]) -> (Option<i32>, String) {
    let (first, second) = (dump(first), dump(second));
    let (a, b) = (first.path(), second.path());
    run_diff(a, b, &[(a, "A"), (b, "B")])
}

/// Returns the error for an invalid dump that is compared with a good one.
fn invalid_dump_error(files_of_first: &[(&str, &str)]) -> String {
    let (code, said) = diff_files(files_of_first, &[("iptables-save", GOOD)]);
    assert_eq!(code, Some(2), "{said}");
    said
}

const GOOD: &str =
    "*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n";

macro_rules! dump_is_refused {
    ($($name:ident: $file:literal = $text:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(invalid_dump_error(&[($file, $text)]));
        }
    )*};
}

dump_is_refused! {
    iptables_unclosed_quote_is_refused: "iptables-save" = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -m comment --comment \"default/a:p cluster IP -j RETURN\nCOMMIT\n";
    iptables_rule_of_undeclared_chain_is_refused: "iptables-save" = "*nat\n:OUTPUT ACCEPT [0:0]\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n";
    iptables_chain_declared_twice_is_refused: "iptables-save" = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SERVICES - [0:0]\nCOMMIT\n";
    iptables_table_printed_twice_is_refused: "iptables-save" = "*nat\nCOMMIT\n*nat\nCOMMIT\n";
    iptables_truncated_dump_is_refused: "iptables-save" = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\n";
    iptables_lines_without_table_are_refused: "iptables-save" = ":KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n";
    iptables_file_with_sets_is_refused: "iptables-save" = "create A hash:ip family inet\nadd A 10.0.0.1\n";
    ipset_entry_of_unknown_set_is_refused: "ipset-save" = "add KUBE-CLUSTER-IP 10.96.0.1,tcp:80\n";
    ipvsadm_servers_by_name_are_refused: "ipvsadm-Sn" = "-A -t web.example.com:http -s rr\n";
    ip_route_unknown_option_is_refused: "ip-route" = "default via 10.0.0.1 dve eth0\n";
    ip_rule_missing_value_is_refused: "ip-rule" = "100:\tfrom all lookup\n";
    ip_addr_invalid_prefix_length_is_refused: "ip-addr" = "2: eth0: <UP> mtu 1500\n    inet 10.0.0.1/40 scope global eth0\n";
    nft_unclosed_table_is_refused: "nft" = "table ip a {\n\tchain b {\n\t\taccept\n\t}\n";
    nft_duplicate_chain_is_refused: "nft" = "table ip a {\n\tchain b {\n\t}\n\tchain b {\n\t}\n}\n";
    nft_duplicate_element_is_refused: "nft" = "table ip a {\n\tset b {\n\t\ttype ipv4_addr\n\t\telements = { 10.0.0.1,\n\t\t\t     10.0.0.1 }\n\t}\n}\n";
    nft_rule_outside_chain_is_refused: "nft" = "table ip a {\n\tip saddr 10.0.0.1 drop\n}\n";
    nft_unknown_priority_is_refused: "nft" = "table ip a {\n\tchain b {\n\t\ttype filter hook input priority soon; policy accept;\n\t}\n}\n";
    nft_unclosed_quote_is_refused: "nft" = "table ip a {\n\tchain b {\n\t\taccept comment \"c\n\t}\n}\n";
    nft_chain_without_table_is_refused: "nft" = "chain b {\n\taccept\n}\n";
    sysctl_without_value_is_refused: "sysctl-a" = "net.ipv4.ip_forward\n";
    ip_addr_empty_file_is_refused: "ip-addr" = "";
    sysctl_empty_file_is_refused: "sysctl-a" = "\n";
    iptables_control_character_is_not_printed: "iptables-save" = "*nat\n:X - [0:0]\n-A X \u{8}[2J\nCOMMIT\n";
}

#[test]
fn diff_many_errors_prints_first_20() {
    let text = format!("*nat\n{}COMMIT\n", "-A X -j Y\n".repeat(25));
    let (code, said) = diff_files(&[("iptables-save", &text)], &[("iptables-save", GOOD)]);
    assert_eq!(code, Some(2));
    assert_eq!(said.matches("chain `X` is not declared").count(), 20);
    assert!(
        said.contains("A/iptables-save: 5 more, not shown"),
        "{said}"
    );
}

/// A listing from an incident that no kernel would accept: `diff` reports this and still compares
/// the dumps.
#[test]
fn diff_impossible_rules_are_reported_and_compared() {
    let first = "*nat\n:KUBE-LOAD-BALANCER - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
        -A KUBE-LOAD-BALANCER -m comment --comment \"Kubernetes service load balancer ip + port with externalTrafficPolicy=local\" -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN\n\
        -A KUBE-LOAD-BALANCER -m comment --comment \"Kubernetes service lb portal\" -m set --match-set KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER\n\
        -A KUBE-LOAD-BALANCER -m addtype --dst-type LOCAL -j KUBE-MARK-MASK\nCOMMIT\n";
    let second = "*nat\n:KUBE-LOAD-BALANCER - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ\nCOMMIT\n";
    let sets = "create KUBE-LOAD-BALANCER hash:ip,port family inet\n";
    let (code, said) = diff_files(
        &[("iptables-save", first), ("ipset-save", sets)],
        &[("iptables-save", second), ("ipset-save", sets)],
    );
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said);
}

#[test]
fn diff_equivalent_text_reports_no_difference() {
    let equivalent = "# Generated by iptables-save\n*filter\n:INPUT ACCEPT [5:300]\nCOMMIT\n*nat\n:KUBE-SERVICES - [0:0]\n:OUTPUT ACCEPT [0:0]\n[7:420] -A OUTPUT -j KUBE-SERVICES\nCOMMIT\n";
    let (code, said) = diff_files(&[("iptables-save", GOOD)], &[("iptables-save", equivalent)]);
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "no difference in iptables-save\n")
    );
}

#[test]
fn diff_missing_file_is_difference_unknown_is_reported() {
    let (code, said) = diff_files(
        &[("iptables-save", GOOD), ("ipset-save", ""), ("notes", "")],
        &[("iptables-save", GOOD)],
    );
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said);
}

#[test]
fn diff_directory_with_file_compares_same_format() {
    let first = dump(&[("iptables-save", GOOD), ("ipset-save", "")]);
    let second = dump(&[("saved", &GOOD.replace("ACCEPT", "DROP"))]);
    let (code, said) = run_diff(
        first.path(),
        &second.path().join("saved"),
        &[(first.path(), "A"), (second.path(), "B")],
    );
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said);
}

#[test]
fn diff_incomparable_files_exits_2() {
    let first = dump(&[
        ("a", GOOD),
        ("b", "create A hash:ip family inet\n"),
        ("c", "hello\n"),
    ]);
    std::fs::create_dir(first.path().join("empty")).expect("a directory");
    let at = |name: &str| first.path().join(name);
    let names = [(first.path(), "A")];
    let mut reports = String::new();
    for (left, right) in [("a", "b"), ("a", "c"), ("a", "no"), ("a", "empty")] {
        let (code, said) = run_diff(&at(left), &at(right), &names);
        assert_eq!(code, Some(2), "{said}");
        reports.push_str(&said);
    }
    insta::assert_snapshot!(reports);
}

/// Recorded dumps, selected by a prefix of their file names.
#[test]
fn diff_recordings_by_name_prefix_are_compared() {
    let home = project().join("tests/recorded/kube-proxy");
    let at = |name: &str| home.join(name);
    let names = [(home.as_path(), "recorded")];
    let recording = at("v1.36.2/ipvs/e_all.cidr");
    let (code, said) = run_diff(&recording, &recording, &names);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run_diff(
        &at("v1.20.2/ipvs/a_clusterip.cidr"),
        &at("v1.20.2/ipvs/a_clusterip.nocidr"),
        &names,
    );
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said);
    let at_nft = |flags: &str| at(&format!("v1.36.2/nftables/c_loadbalancer.{flags}"));
    let (code, said) = run_diff(&at_nft("cidr"), &at_nft("nocidr"), &names);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!("tables_of_nftables_are_compared", said);
    let (code, said) = run_diff(&at("v1.36.2/ipvs"), &recording, &names);
    assert_eq!(code, Some(2));
    insta::assert_snapshot!(said);
}

#[test]
fn diff_json_format_matches_schema() {
    let first = dump(&[("iptables-save", GOOD)]);
    let second = dump(&[("iptables-save", &GOOD.replace("ACCEPT", "DROP"))]);
    let at = |dump: &TempDir| dump.path().display().to_string();
    let output = run(&["diff", "--format", "json", &at(&first), &at(&second)]);
    assert_eq!(output.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("a document");
    assert_eq!(document["schema"], "svclab/diff/v1");
    assert_eq!(document["same"], false);
    assert_eq!(document["differences"][0]["location"]["chain"], "OUTPUT");
    let schema = run(&["schema", "diff"]);
    assert!(stdout(&schema).contains("svclab/diff/v1"));
}

/// Writes an archive of some files of a directory.
fn archive(directory: &Path, archive: &Path, files: &[&str]) {
    let status = Command::new("tar")
        .arg("-czf")
        .arg(archive)
        .arg("-C")
        .arg(directory)
        .args(files)
        .status();
    assert!(status.expect("tar starts").success());
}

#[test]
fn diff_file_that_only_directory_has_is_difference_from_archive() {
    let directory = dump(&[
        ("iptables-save", GOOD),
        ("ipset-save", "create S hash:ip\nadd S 10.0.0.1\n"),
    ]);
    let other = tempfile::tempdir().expect("a temporary directory");
    let tarball = other.path().join("node.tar.gz");
    archive(directory.path(), &tarball, &["iptables-save"]);
    for [first, second] in [[directory.path(), &tarball], [&tarball, directory.path()]] {
        let (code, said) = run_diff(first, second, &[]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("ipset"), "{said}");
    }
    // A single output is compared with the same output.
    let file = directory.path().join("iptables-save");
    let (code, said) = run_diff(&file, &tarball, &[]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn diff_files_that_cannot_be_read_are_not_compared() {
    let good = dump(&[("iptables-save", GOOD)]);
    let elsewhere = dump(&[("ipset-save", "create S hash:ip\n")]);
    let mut messages = Vec::new();
    for (name, bytes) in [
        ("ipset-save.gz", &b"\x1f\x8b\x08\x00\x00\x00"[..]),
        ("ipset-save.bz2", b"BZh91AY&SY"),
        ("node.tar.lz4", b"\x04\x22\x4d\x18\x00"),
        ("link", b""),
    ] {
        let damaged = dump(&[("iptables-save", GOOD)]);
        let file = damaged.path().join(name);
        if name == "link" {
            symlink(elsewhere.path(), &file).expect("a link");
        } else {
            std::fs::write(&file, bytes).expect("a file");
        }
        let (code, said) = run_diff(
            good.path(),
            damaged.path(),
            &[(good.path(), "A"), (damaged.path(), "B")],
        );
        assert_eq!(code, Some(1), "{name}: {said}");
        messages.push(said);
    }
    insta::assert_snapshot!(messages.join("\n"));
    // Files without the name of output are listed, but have no effect.
    let other = dump(&[("iptables-save", GOOD), ("core.bz2", "BZh91AY&SY")]);
    let (code, said) = run_diff(good.path(), other.path(), &[]);
    assert_eq!(code, Some(0), "{said}");
}
