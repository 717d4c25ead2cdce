//! Tests `svclab diff`: exit codes, differences, and errors in dumps.

use std::path::Path;

use tempfile::TempDir;

use super::support::{project, run, stderr, stdout};

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
fn diff(first: &Path, second: &Path, names: &[(&Path, &str)]) -> (Option<i32>, String) {
    let paths = [first.display().to_string(), second.display().to_string()];
    let output = run(&["diff", &paths[0], &paths[1]]);
    let mut said = format!("{}{}", stderr(&output), stdout(&output));
    for (path, name) in names {
        said = said.replace(&path.display().to_string(), name);
    }
    (output.status.code(), said)
}

/// Compares two sets of files.
fn files(first: &[(&str, &str)], second: &[(&str, &str)]) -> (Option<i32>, String) {
    let (first, second) = (dump(first), dump(second));
    let (a, b) = (first.path(), second.path());
    diff(a, b, &[(a, "A"), (b, "B")])
}

/// Returns the error for an invalid dump that is compared with a good one.
fn refused(files_of_first: &[(&str, &str)]) -> String {
    let (code, said) = files(files_of_first, &[("iptables-save", GOOD)]);
    assert_eq!(code, Some(2), "{said}");
    said
}

const GOOD: &str =
    "*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n";

macro_rules! refused {
    ($($name:ident: $file:literal = $text:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(refused(&[($file, $text)]));
        }
    )*};
}

refused! {
    quote_that_is_not_closed: "iptables-save" = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -m comment --comment \"default/a:p cluster IP -j RETURN\nCOMMIT\n";
    rule_of_a_chain_that_is_not_declared: "iptables-save" = "*nat\n:OUTPUT ACCEPT [0:0]\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n";
    chain_that_is_declared_twice: "iptables-save" = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SERVICES - [0:0]\nCOMMIT\n";
    table_that_is_printed_twice: "iptables-save" = "*nat\nCOMMIT\n*nat\nCOMMIT\n";
    dump_that_was_cut_off: "iptables-save" = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\n";
    lines_picked_by_grep: "iptables-save" = ":KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n";
    sets_in_the_file_of_rules: "iptables-save" = "create A hash:ip family inet\nadd A 10.0.0.1\n";
    listing_of_sets: "ipset-save" = "Name: KUBE-CLUSTER-IP\nType: hash:ip,port\n";
    entry_of_no_set: "ipset-save" = "add KUBE-CLUSTER-IP 10.96.0.1,tcp:80\n";
    servers_by_name: "ipvsadm-Sn" = "-A -t web.example.com:http -s rr\n";
    option_of_a_route: "ip-route" = "default via 10.0.0.1 dve eth0\n";
    value_that_is_missing: "ip-rule" = "100:\tfrom all lookup\n";
    address_of_no_network: "ip-addr" = "2: eth0: <UP> mtu 1500\n    inet 10.0.0.1/40 scope global eth0\n";
    table_of_nftables_that_does_not_end: "nft" = "table ip a {\n\tchain b {\n\t\taccept\n\t}\n";
    chain_of_nftables_that_is_there_twice: "nft" = "table ip a {\n\tchain b {\n\t}\n\tchain b {\n\t}\n}\n";
    entry_of_nftables_that_is_there_twice: "nft" = "table ip a {\n\tset b {\n\t\ttype ipv4_addr\n\t\telements = { 10.0.0.1,\n\t\t\t     10.0.0.1 }\n\t}\n}\n";
    rule_of_nftables_outside_of_a_chain: "nft" = "table ip a {\n\tip saddr 10.0.0.1 drop\n}\n";
    priority_of_nftables_that_is_none: "nft" = "table ip a {\n\tchain b {\n\t\ttype filter hook input priority soon; policy accept;\n\t}\n}\n";
    quote_of_nftables_that_is_not_closed: "nft" = "table ip a {\n\tchain b {\n\t\taccept comment \"c\n\t}\n}\n";
    listing_of_one_chain: "nft" = "chain b {\n\taccept\n}\n";
    setting_without_a_value: "sysctl-a" = "net.ipv4.ip_forward\n";
    file_of_interfaces_that_is_empty: "ip-addr" = "";
    file_of_settings_that_is_empty: "sysctl-a" = "\n";
    escape_in_a_message: "iptables-save" = "*nat\n:X - [0:0]\n-A X \u{1b}[2J\nCOMMIT\n";
}

#[test]
fn all_that_is_wrong_is_told_up_to_a_limit() {
    let text = format!("*nat\n{}COMMIT\n", "-A X -j Y\n".repeat(25));
    let (code, said) = files(&[("iptables-save", &text)], &[("iptables-save", GOOD)]);
    assert_eq!(code, Some(2));
    assert_eq!(said.matches("chain X is not declared").count(), 20);
    assert!(
        said.contains("A/iptables-save: 5 more, not shown"),
        "{said}"
    );
}

/// A listing from an incident that no kernel would accept: `diff` reports this and still compares
/// the dumps.
#[test]
fn what_no_kernel_holds_is_told_and_compared() {
    let first = "*nat\n:KUBE-LOAD-BALANCER - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
        -A KUBE-LOAD-BALANCER -m comment --comment \"Kubernetes service load balancer ip + port with externalTrafficPolicy=local\" -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN\n\
        -A KUBE-LOAD-BALANCER -m comment --comment \"Kubernetes service lb portal\" -m set --match-set KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER\n\
        -A KUBE-LOAD-BALANCER -m addtype --dst-type LOCAL -j KUBE-MARK-MASK\nCOMMIT\n";
    let second = "*nat\n:KUBE-LOAD-BALANCER - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ\nCOMMIT\n";
    let sets = "create KUBE-LOAD-BALANCER hash:ip,port family inet\n";
    let (code, said) = files(
        &[("iptables-save", first), ("ipset-save", sets)],
        &[("iptables-save", second), ("ipset-save", sets)],
    );
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said);
}

#[test]
fn the_same_in_other_words_is_no_difference() {
    let other = "# Generated by iptables-save\n*filter\n:INPUT ACCEPT [5:300]\nCOMMIT\n*nat\n:KUBE-SERVICES - [0:0]\n:OUTPUT ACCEPT [0:0]\n[7:420] -A OUTPUT -j KUBE-SERVICES\nCOMMIT\n";
    let (code, said) = files(&[("iptables-save", GOOD)], &[("iptables-save", other)]);
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "no difference in iptables-save\n")
    );
}

#[test]
fn what_only_one_dump_has_is_a_difference_and_what_is_unknown_is_told() {
    let (code, said) = files(
        &[("iptables-save", GOOD), ("ipset-save", ""), ("notes", "")],
        &[("iptables-save", GOOD)],
    );
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said);
}

#[test]
fn a_file_is_compared_with_its_like_in_a_directory() {
    let first = dump(&[("iptables-save", GOOD), ("ipset-save", "")]);
    let second = dump(&[("saved", &GOOD.replace("ACCEPT", "DROP"))]);
    let (code, said) = diff(
        first.path(),
        &second.path().join("saved"),
        &[(first.path(), "A"), (second.path(), "B")],
    );
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said);
}

#[test]
fn what_cannot_be_compared_is_wrong_input() {
    let first = dump(&[
        ("a", GOOD),
        ("b", "create A hash:ip family inet\n"),
        ("c", "hello\n"),
    ]);
    let at = |name: &str| first.path().join(name);
    let names = [(first.path(), "A")];
    let mut told = String::new();
    for (one, other) in [("a", "b"), ("a", "c"), ("a", "no"), ("a", "")] {
        let (code, said) = diff(&at(one), &at(other), &names);
        assert_eq!(code, Some(2), "{said}");
        told.push_str(&said);
    }
    insta::assert_snapshot!(told);
}

/// Recorded dumps, selected by a prefix of their file names.
#[test]
fn recordings_are_compared_by_name() {
    let home = project().join("tests/recorded/kube-proxy");
    let at = |name: &str| home.join(name);
    let names = [(home.as_path(), "recorded")];
    let one = at("v1.36.2/ipvs/e_all.cidr");
    let (code, said) = diff(&one, &one, &names);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = diff(
        &at("v1.20.2/ipvs/a_clusterip.cidr"),
        &at("v1.20.2/ipvs/a_clusterip.nocidr"),
        &names,
    );
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said);
    let at_nft = |flags: &str| at(&format!("v1.36.2/nftables/c_loadbalancer.{flags}"));
    let (code, said) = diff(&at_nft("cidr"), &at_nft("nocidr"), &names);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!("tables_of_nftables_are_compared", said);
    let (code, said) = diff(&at("v1.36.2/ipvs"), &one, &names);
    assert_eq!(code, Some(2));
    insta::assert_snapshot!(said);
}

#[test]
fn programs_read_differences_as_json() {
    let first = dump(&[("iptables-save", GOOD)]);
    let second = dump(&[("iptables-save", &GOOD.replace("ACCEPT", "DROP"))]);
    let at = |dump: &TempDir| dump.path().display().to_string();
    let output = run(&["diff", "--format", "json", &at(&first), &at(&second)]);
    assert_eq!(output.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("a document");
    assert_eq!(document["schema"], "svclab/diff/v1");
    assert_eq!(document["same"], false);
    assert_eq!(document["differences"][0]["place"]["chain"], "OUTPUT");
    let schema = run(&["schema", "diff"]);
    assert!(stdout(&schema).contains("svclab/diff/v1"));
}
