//! Tests of invalid files. Snapshots contain the diagnostics.

use std::fmt::Write as _;

use super::example_tests::{EXAMPLE, told, with};
use svclab_diagnostic::source::MAX_BYTES;
use svclab_diagnostic::source::Source;

#[test]
fn the_example_is_right() {
    assert_eq!(told(EXAMPLE), "");
}

#[test]
fn unknown_field_of_the_lab() {
    insta::assert_snapshot!(told(&with("  axes:\n", "  axess:\n")));
}

#[test]
fn unknown_field_deep_in_the_lab() {
    insta::assert_snapshot!(told(&with("connections: 8", "conections: 8")));
}

#[test]
fn unknown_field_like_no_other() {
    insta::assert_snapshot!(told(&with("connections: 8", "zzz: 8")));
}

#[test]
fn wrong_type() {
    insta::assert_snapshot!(told(&with("connections: 8", "connections: many")));
}

#[test]
fn number_that_does_not_fit() {
    insta::assert_snapshot!(told(&with("connections: 8", "connections: -1")));
}

#[test]
fn list_where_a_map_belongs() {
    insta::assert_snapshot!(told(&with(
        "  hosts:\n    laptop: {address: 203.0.113.9/24}",
        "  hosts: [laptop]"
    )));
}

#[test]
fn nothing_where_a_map_belongs() {
    insta::assert_snapshot!(told(&with("{address: 203.0.113.9/24}", "")));
}

#[test]
fn missing_field() {
    insta::assert_snapshot!(told(&with("{from: pod/default/client, to", "{bind: x, to")));
}

#[test]
fn number_where_a_string_is_wanted() {
    insta::assert_snapshot!(told(&with(
        "about: A pod calls its own cluster through an internal load balancer and every other call times out.",
        "about: 1.20"
    )));
}

#[test]
fn word_that_is_not_one() {
    insta::assert_snapshot!(told(&with("iptables: nft", "iptables: nftt")));
}

#[test]
fn subnet_with_host_bits() {
    insta::assert_snapshot!(told(&with(
        "subnet: 172.18.1.0/24",
        "subnet: 172.18.1.1/24"
    )));
}

#[test]
fn address_without_prefix() {
    insta::assert_snapshot!(told(&with("203.0.113.9/24", "203.0.113.9")));
}

#[test]
fn packet_that_does_not_parse() {
    insta::assert_snapshot!(told(&with("SYN from pod", "SYN form pod")));
}

#[test]
fn count_that_does_not_parse() {
    insta::assert_snapshot!(told(&with("hits: \">=1\"", "hits: \"1..x\"")));
}

#[test]
fn neither_see_nor_never() {
    insta::assert_snapshot!(told(&with(", see: \"SYN from pod/default/client\"", "")));
}

#[test]
fn packets_that_have_no_such_thing() {
    let wire = |words: &str| {
        told(&with(
            ", see: \"SYN from pod/default/client\"",
            &format!(", {words}"),
        ))
    };
    let all = [
        "see: UDP, window: 1",
        "see: RST, mss: 1460",
        "never: SYN, resent: [1s]",
        "see: SYN, resent: []",
        "see: SYN, resent: [soon]",
    ];
    insta::assert_snapshot!(all.map(wire).join("\n\n"));
}

#[test]
fn what_the_kernel_holds_that_does_not_parse() {
    let row = |words: &str| told(&with("    wire:\n", &format!("    {words}\n    wire:\n")));
    let all = [
        "sets: [{on: node-1, set: KUBE-CLUSTER-IP, members: []}]",
        "sets: [{on: node-1, set: KUBE-CLUSTER-IP, typ: \"hash:ip\", members: []}]",
        "ipvs: [{on: node-1, server: 10.20.0.1, is: []}]",
        "links: [{on: eth0, flags: [], addresses: []}]",
        "links: [{on: node-1/eth0, flags: [], addresses: [10.20.0.1]}]",
    ];
    insta::assert_snapshot!(all.map(row).join("\n\n"));
}

#[test]
fn source_port_that_is_no_word() {
    insta::assert_snapshot!(told(&with(
        "call: {connected: 4,",
        "call: {sourcePort: same, connected: 4,"
    )));
}

#[test]
fn patch_of_no_object() {
    insta::assert_snapshot!(told(&with(
        "patch: Service/default/nginx,",
        "patch: Service/default/ngnix,"
    )));
}

#[test]
fn patch_of_no_reference() {
    insta::assert_snapshot!(told(&with(
        "patch: Service/default/nginx,",
        "patch: Service/nginx,"
    )));
}

#[test]
fn patch_of_the_wrong_type() {
    insta::assert_snapshot!(told(&with(
        "merge: {spec: {externalTrafficPolicy: Cluster}}",
        "merge: Cluster"
    )));
}

#[test]
fn patch_that_makes_an_object_wrong() {
    insta::assert_snapshot!(told(&with(
        "{externalTrafficPolicy: Cluster}",
        "{ports: 443}"
    )));
}

#[test]
fn patch_that_makes_the_lab_wrong() {
    insta::assert_snapshot!(told(&with(
        "{nodes: {node-1: {sysctls: {net.ipv4.conf.all.rp_filter: 1}}}}",
        "{probes: {call: {to: null}}}"
    )));
}

#[test]
fn patch_of_what_is_expected() {
    insta::assert_snapshot!(told(&with(
        "{nodes: {node-1: {sysctls: {net.ipv4.conf.all.rp_filter: 1}}}}",
        "{expect: []}"
    )));
}

#[test]
fn patch_that_renames() {
    insta::assert_snapshot!(told(&with(
        "{spec: {externalTrafficPolicy: Cluster}}",
        "{metadata: {name: other}}"
    )));
}

#[test]
fn patch_without_merge() {
    insta::assert_snapshot!(told(&with(
        ", merge: {spec: {externalTrafficPolicy: Cluster}}",
        ""
    )));
}

#[test]
fn object_deleted_twice() {
    insta::assert_snapshot!(told(&with(
        "- {patch: Service/default/nginx, merge: {spec: {externalTrafficPolicy: Cluster}}}",
        "- {delete: Pod/default/nginx-a}\n      - {delete: Pod/default/nginx-a}"
    )));
}

#[test]
fn object_added_that_is_there() {
    insta::assert_snapshot!(told(&with(
        "- {patch: Service/default/nginx, merge: {spec: {externalTrafficPolicy: Cluster}}}",
        "- add: {apiVersion: v1, kind: Pod, metadata: {name: client}}"
    )));
}

#[test]
fn case_without_row() {
    insta::assert_snapshot!(told(&with("rpFilter: [0, 1]}", "rpFilter: 0}")));
}

#[test]
fn row_no_case_reaches() {
    insta::assert_snapshot!(told(&with(
        "{policy: Cluster, rpFilter: [0, 1]}",
        "{policy: [Local]}"
    )));
}

#[test]
fn row_of_an_unknown_axis_and_value() {
    insta::assert_snapshot!(told(&with(
        "{policy: Cluster, rpFilter: [0, 1]}",
        "{polcy: Cluster, rpFilter: [0, 2]}"
    )));
}

#[test]
fn row_of_an_unknown_probe() {
    insta::assert_snapshot!(told(&with(
        "    call: {connected: 8, endpoints",
        "    cal: {connected: 8, endpoints"
    )));
}

#[test]
fn misspelt_key_of_a_row() {
    insta::assert_snapshot!(told(&with("    claims: [S1-18]", "    clams: [S1-18]")));
}

#[test]
fn verdict_of_another_protocol() {
    insta::assert_snapshot!(told(&with(
        "{connected: 4, timeout: 4,",
        "{answered: 4, timeout: 4,"
    )));
}

#[test]
fn counts_that_do_not_add_up() {
    insta::assert_snapshot!(told(&with(
        "{connected: 4, timeout: 4,",
        "{connected: 4, timeout: 3,"
    )));
}

#[test]
fn undeclared_claim() {
    insta::assert_snapshot!(told(&with("claims: [S1-18]", "claims: [S1-81]")));
}

#[test]
fn claim_that_no_row_speaks_of() {
    insta::assert_snapshot!(told(&with(", notCheckable: no numbers are given", "")));
}

#[test]
fn duration_out_of_bounds_in_any_field_is_refused() {
    let all = [
        ("maxWait: 3s", "maxWait: 400000000000y"),
        ("maxWait: 3s", "maxWait: 0s"),
        ("healthCheck: {}", "healthCheck: {every: 61m}"),
        ("healthCheck: {}", "retryAfter: 2h"),
        (
            "see: \"SYN from pod/default/client\"",
            "see: SYN, resent: [1s, 1y]",
        ),
    ];
    let all = all.map(|(good, bad)| told(&with(good, bad)));
    insta::assert_snapshot!(all.join("\n\n"));
    // A patch is decoded as strictly as the lab.
    let patched = with(
        "merge: {spec: {externalTrafficPolicy: Cluster}}",
        "merge: {spec: {externalTrafficPolicy: Cluster}}}\n      - {patch: Lab, merge: {spec: {probes: {call: {maxWait: 2h}}}}",
    );
    insta::assert_snapshot!(told(&patched));
}

#[test]
fn probe_that_waits_for_itself() {
    insta::assert_snapshot!(told(&with("maxWait: 3s", "after: call")));
}

#[test]
fn name_that_is_not_the_file_s() {
    insta::assert_snapshot!(told(&with(
        "metadata: {name: example}",
        "metadata: {name: sample}"
    )));
}

#[test]
fn duplicate_key() {
    insta::assert_snapshot!(told(&with(
        "  iptables: nft\n",
        "  iptables: nft\n  about: twice\n"
    )));
}

#[test]
fn tab() {
    insta::assert_snapshot!(told(&with("  iptables: nft\n", "\tiptables: nft\n")));
}

#[test]
fn no_yaml() {
    insta::assert_snapshot!(told(&with("source: [S0, S1]", "source: [S0, S1")));
}

#[test]
fn alias_of_nothing() {
    insta::assert_snapshot!(told(&with("source: [S0, S1]", "source: *sources")));
}

#[test]
fn no_lab_document() {
    insta::assert_snapshot!(told("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"));
}

#[test]
fn two_lab_documents() {
    let lab =
        "---\napiVersion: svclab/v1\nkind: Lab\nmetadata: {name: example}\nspec: {about: x}\n";
    insta::assert_snapshot!(told(&format!("{EXAMPLE}{lab}")));
}

#[test]
fn lab_of_an_unknown_version() {
    insta::assert_snapshot!(told(&with(
        "apiVersion: svclab/v1",
        "apiVersion: svclab/v2"
    )));
}

#[test]
fn lab_of_an_unknown_kind() {
    insta::assert_snapshot!(told(&with("kind: Lab", "kind: lab")));
}

#[test]
fn document_without_kind() {
    insta::assert_snapshot!(told(&with("kind: Service", "knid: Service")));
}

#[test]
fn document_that_is_no_map() {
    insta::assert_snapshot!(told(&format!("{EXAMPLE}---\njust words\n")));
}

#[test]
fn misspelt_field_of_a_kubernetes_object() {
    insta::assert_snapshot!(told(&with(
        "  selector: {app: nginx}",
        "  selctor: {app: nginx}"
    )));
}

#[test]
fn misspelt_kind() {
    insta::assert_snapshot!(told(&with("kind: ConfigMap", "kind: Sevice")));
}

#[test]
fn wrong_type_in_a_kubernetes_object() {
    insta::assert_snapshot!(told(&with("labels: {app: nginx}", "labels: {app: 1.20}")));
}

#[test]
fn wrong_word_in_a_kubernetes_object() {
    insta::assert_snapshot!(told(&with("type: LoadBalancer", "type: Loadbalancer")));
}

#[test]
fn kubernetes_object_of_an_unknown_version() {
    insta::assert_snapshot!(told(&with(
        "apiVersion: v1\nkind: Service",
        "apiVersion: v1beta3\nkind: Service"
    )));
}

#[test]
fn port_that_is_none() {
    insta::assert_snapshot!(told(&with("port: 443, ", "port: 70000, ")));
    insta::assert_snapshot!(told(&with("port: 443, ", "")));
}

#[test]
fn two_objects_of_one_name() {
    insta::assert_snapshot!(told(&with(
        "metadata: {name: nginx-b,",
        "metadata: {name: nginx-a,"
    )));
}

#[test]
fn object_without_name() {
    insta::assert_snapshot!(told(&with(
        "metadata: {name: nginx}",
        "metadata: {labels: {}}"
    )));
}

#[test]
fn object_with_a_name_kubernetes_does_not_take() {
    insta::assert_snapshot!(told(&with(
        "metadata: {name: client}",
        "metadata: {name: The_Client}"
    )));
}

#[test]
fn nothing_at_all() {
    insta::assert_snapshot!(told(" \n"), @"error: example.yaml: the file is empty; write at least one YAML document");
}

#[test]
fn files_that_are_no_text() {
    let read = |path: &std::path::Path| match Source::read(path) {
        Ok(_) => String::new(),
        Err(error) => error
            .to_string()
            .replace(&path.display().to_string(), "PATH"),
    };
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(read(directory.path()), @"PATH: this is a directory; name a lab file in it");
    let path = directory.path().join("lab.yaml");
    insta::assert_snapshot!(read(&path), @"PATH: there is no such file");
    std::fs::write(&path, b"a: 1\n\xc3(\n").expect("written");
    insta::assert_snapshot!(read(&path), @"PATH: line 2 is not UTF-8; save the file as UTF-8");
    std::fs::write(&path, "[".repeat(MAX_BYTES + 1)).expect("written");
    insta::assert_snapshot!(read(&path), @"PATH: larger than 64 MiB, the most that svclab reads; leave out objects that play no part");
}

#[test]
fn nesting_without_end() {
    for opener in ["[", "{a: ", "- ", "? "] {
        let text = opener.repeat((4 << 20) / opener.len());
        let told = told(&text);
        assert!(
            told.contains("nest deeper than 100 levels"),
            "{opener}: {told}"
        );
        assert!(told.len() < 1000, "{opener}: {told}");
    }
}

#[test]
fn alias_bomb() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let below = level - 1;
        let aliases = vec![format!("*a{below}"); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{aliases}]").expect("written");
    }
    insta::assert_snapshot!(told(&text));
}

#[test]
fn alias_of_what_contains_it() {
    insta::assert_snapshot!(told("a: &a [1, *a]\n"));
}

#[test]
fn merge_key() {
    insta::assert_snapshot!(told("a: &a {b: 1}\nc: {<<: *a}\n"));
}

#[test]
fn axes_without_end() {
    let values: Vec<String> = (0..70).map(|n| format!("v{n}: []")).collect();
    let axis = format!("{{{}}}", values.join(", "));
    let text = with(
        "    rpFilter:\n",
        &format!("    x: {axis}\n    y: {axis}\n    rpFilter:\n"),
    );
    let told = told(&text);
    assert!(
        told.contains("the axes make 19600 cases, more than 4096"),
        "{told}"
    );
}
