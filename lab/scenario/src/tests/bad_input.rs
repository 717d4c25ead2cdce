//! Tests of invalid files. Snapshots contain the diagnostics.

use std::fmt::Write as _;

use crate::tests::example::{EXAMPLE, example_with, load_diagnostics};
use svclab_diagnostic::source::MAX_BYTES;
use svclab_diagnostic::source::Source;

/// Defines tests of the example with one text replaced.
macro_rules! test_replaced {
    ($($name:ident: $text:literal => $replacement:literal;)+) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!(load_diagnostics(&example_with($text, $replacement)));
        })+
    };
}

test_replaced! {
    unknown_lab_field_is_refused: "  axes:\n" => "  axess:\n";
    nested_unknown_lab_field_is_refused: "connections: 8" => "conections: 8";
    unknown_field_without_similar_name_is_refused: "connections: 8" => "zzz: 8";
    wrong_type_is_refused: "connections: 8" => "connections: many";
    number_out_of_range_is_refused: "connections: 8" => "connections: -1";
    list_instead_of_map_is_refused:
        "  hosts:\n    laptop: {address: 203.0.113.9/24}" =>
        "  hosts: [laptop]";
    null_instead_of_map_is_refused: "{address: 203.0.113.9/24}" => "";
    missing_field_is_refused: "{from: pod/default/client, to" => "{bind: x, to";
    number_instead_of_string_is_refused:
        "about: A pod calls its own cluster through an internal load balancer and every other call times out." =>
        "about: 1.20";
    unknown_keyword_is_refused: "iptables: nft" => "iptables: nftt";
    subnet_with_host_bits_is_refused: "subnet: 172.18.1.0/24" => "subnet: 172.18.1.1/24";
    address_without_prefix_is_refused: "203.0.113.9/24" => "203.0.113.9";
    invalid_packet_pattern_is_refused: "SYN from pod" => "SYN form pod";
    invalid_count_is_refused: "hits: \">=1\"" => "hits: \"1..x\"";
    wire_without_see_and_never_is_refused: ", see: \"SYN from pod/default/client\"" => "";
    unknown_source_port_keyword_is_refused:
        "call: {connected: 4," =>
        "call: {sourcePort: same, connected: 4,";
    patch_of_unknown_object_is_refused:
        "patch: Service/default/nginx," =>
        "patch: Service/default/ngnix,";
    patch_of_invalid_reference_is_refused:
        "patch: Service/default/nginx," =>
        "patch: Service/nginx,";
    patch_of_wrong_type_is_refused:
        "merge: {spec: {externalTrafficPolicy: Cluster}}" =>
        "merge: Cluster";
    patch_that_invalidates_object_is_refused: "{externalTrafficPolicy: Cluster}" => "{ports: 443}";
    patch_that_invalidates_lab_is_refused:
        "{nodes: {node-1: {sysctls: {net.ipv4.conf.all.rp_filter: 1}}}}" =>
        "{probes: {call: {to: null}}}";
    patch_of_expectations_is_refused:
        "{nodes: {node-1: {sysctls: {net.ipv4.conf.all.rp_filter: 1}}}}" =>
        "{expect: []}";
    patch_that_renames_object_is_refused:
        "{spec: {externalTrafficPolicy: Cluster}}" =>
        "{metadata: {name: other}}";
    patch_without_merge_is_refused: ", merge: {spec: {externalTrafficPolicy: Cluster}}" => "";
    second_deletion_is_refused:
        "- {patch: Service/default/nginx, merge: {spec: {externalTrafficPolicy: Cluster}}}" =>
        "- {delete: Pod/default/nginx-a}\n      - {delete: Pod/default/nginx-a}";
    added_object_that_exists_is_refused:
        "- {patch: Service/default/nginx, merge: {spec: {externalTrafficPolicy: Cluster}}}" =>
        "- add: {apiVersion: v1, kind: Pod, metadata: {name: client}}";
    added_object_of_unmodelled_kind_is_refused:
        "- {patch: Service/default/nginx, merge: {spec: {externalTrafficPolicy: Cluster}}}" =>
        "- add: {apiVersion: v1, kind: ConfigMap, metadata: {name: client}}";
    field_that_kube_proxy_program_ignores_warns:
        "mode: ipvs, bindLoadBalancerIPs: false" =>
        "mode: ipvs, binary: kube-proxy, randomFully: false, accounting: false";
    container_port_out_of_range_is_refused:
        "name: https, containerPort: 8443" =>
        "name: https, containerPort: 70000";
    container_port_zero_is_refused:
        "name: https, containerPort: 8443" =>
        "name: https, containerPort: 0";
    container_without_port_number_is_refused:
        "name: https, containerPort: 8443" =>
        "name: https";
    container_host_port_out_of_range_is_refused:
        "name: https, containerPort: 8443" =>
        "name: https, containerPort: 8443, hostPort: 65536";
    container_probe_port_out_of_range_is_refused:
        "containers: [{name: nginx, ports" =>
        "containers: [{name: nginx, livenessProbe: {httpGet: {port: -1}}, ports";
    target_port_out_of_range_is_refused: "targetPort: https" => "targetPort: 70000";
    health_check_node_port_out_of_range_is_refused:
        "healthCheckNodePort: 30100" =>
        "healthCheckNodePort: -1";
    list_of_sources_as_one_source_is_refused:
        "endpoints: [nginx-b], seenSource: pod/default/client" =>
        "endpoints: [nginx-b], seenSource: [node-1, node-1/cbr0]";
    pod_ip_of_no_address_is_refused: "podIP: 10.244.1.10" => "podIP: 10.244.1.1000";
    node_pod_cidr_of_no_network_is_refused:
        "  status: {addresses: [{type: InternalIP, address: 172.18.1.1" =>
        "  spec: {podCIDR: 10.244.1.0/40}\n  \
         status: {addresses: [{type: InternalIP, address: 172.18.1.1";
    node_address_of_no_address_is_refused:
        "type: InternalIP, address: " =>
        "type: InternalIP, address: x";
    cluster_ip_of_no_address_is_refused:
        "clusterIP: 10.96.0.10" =>
        "clusterIP: 300.96.0.10";
    second_cluster_ip_of_no_address_is_refused:
        "clusterIP: 10.96.0.10" =>
        "clusterIP: 10.96.0.10\n  clusterIPs: [10.96.0.10, \"fd00::x\"]";
    external_ip_of_no_address_is_refused:
        "clusterIP: 10.96.0.10" =>
        "clusterIP: 10.96.0.10\n  externalIPs: [192.0.2.1/32]";
    source_range_of_no_network_is_refused:
        "clusterIP: 10.96.0.10" =>
        "clusterIP: 10.96.0.10\n  loadBalancerSourceRanges: [203.0.113.0/33]";
    load_balancer_address_of_no_address_is_refused:
        "ingress: [{ip: 172.18.0.100}]" =>
        "ingress: [{ip: lb.example.org}]";
    affinity_time_out_of_range_is_refused:
        "clusterIP: 10.96.0.10" =>
        "clusterIP: 10.96.0.10\n  sessionAffinity: ClientIP\n  \
         sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}";
    service_port_given_twice_is_refused:
        "  - {name: https, port: 443, targetPort: https, nodePort: 30443}" =>
        "  - {name: https, port: 443, targetPort: https, nodePort: 30443}\n  \
         - {name: other, port: 443, targetPort: https}";
    node_port_of_health_check_is_refused:
        "healthCheckNodePort: 30100" =>
        "healthCheckNodePort: 30443";
    node_port_of_two_services_is_refused:
        "---\napiVersion: v1\nkind: Service\n" =>
        "---\napiVersion: v1\nkind: Service\nmetadata: {name: other}\nspec:\n  type: NodePort\n  \
         clusterIP: 10.96.0.11\n  selector: {app: nginx}\n  ports: [{port: 80, targetPort: https, \
         nodePort: 30443}]\n---\napiVersion: v1\nkind: Service\n";
    case_without_row_is_refused: "rpFilter: [0, 1]}" => "rpFilter: 0}";
    unreached_row_is_refused: "{policy: Cluster, rpFilter: [0, 1]}" => "{policy: [Local]}";
    row_with_unknown_axis_or_value_is_refused:
        "{policy: Cluster, rpFilter: [0, 1]}" =>
        "{polcy: Cluster, rpFilter: [0, 2]}";
    row_with_unknown_probe_is_refused:
        "    call: {connected: 8, endpoints" =>
        "    cal: {connected: 8, endpoints";
    misspelt_row_key_is_refused: "    claims: [S1-18]" => "    clams: [S1-18]";
    verdict_of_other_protocol_is_refused:
        "{connected: 4, timeout: 4," =>
        "{answered: 4, timeout: 4,";
    counts_with_wrong_sum_are_refused: "{connected: 4, timeout: 4," => "{connected: 4, timeout: 3,";
    undeclared_claim_is_refused: "claims: [S1-18]" => "claims: [S1-81]";
    unused_claim_warns: ", notCheckable: no numbers are given" => "";
    probe_that_waits_for_itself_is_refused: "maxWait: 3s" => "after: call";
    lab_name_with_slash_is_refused:
        "metadata: {name: example}" =>
        "metadata: {name: labs/example}";
    duplicate_key_is_refused: "  iptables: nft\n" => "  iptables: nft\n  about: twice\n";
    tab_indentation_is_refused: "  iptables: nft\n" => "\tiptables: nft\n";
    invalid_yaml_is_refused: "source: [S0, S1]" => "source: [S0, S1";
    alias_without_anchor_is_refused: "source: [S0, S1]" => "source: *sources";
    lab_of_unknown_version_is_refused: "apiVersion: svclab/v1" => "apiVersion: svclab/v2";
    lab_of_unknown_kind_is_refused: "kind: Lab" => "kind: lab";
    document_without_kind_is_refused: "kind: Service" => "knid: Service";
    misspelt_kubernetes_field_warns: "  selector: {app: nginx}" => "  selctor: {app: nginx}";
    misspelt_kind_warns: "kind: ConfigMap" => "kind: Sevice";
    wrong_type_in_kubernetes_object_is_refused: "labels: {app: nginx}" => "labels: {app: 1.20}";
    unknown_kubernetes_keyword_is_refused: "type: LoadBalancer" => "type: Loadbalancer";
    kubernetes_object_of_other_version_is_refused:
        "apiVersion: v1\nkind: Service" =>
        "apiVersion: v1beta3\nkind: Service";
    duplicate_object_name_is_refused: "metadata: {name: nginx-b," => "metadata: {name: nginx-a,";
    object_without_name_is_refused: "metadata: {name: nginx}" => "metadata: {labels: {}}";
    invalid_kubernetes_name_is_refused:
        "metadata: {name: client}" =>
        "metadata: {name: The_Client}";
}

#[test]
fn example_loads_without_warnings() {
    assert_eq!(load_diagnostics(EXAMPLE), "");
}

#[test]
fn wire_field_of_other_packet_kind_is_refused() {
    let wire = |words: &str| {
        load_diagnostics(&example_with(
            ", see: \"SYN from pod/default/client\"",
            &format!(", {words}"),
        ))
    };
    let inputs = [
        "see: UDP, window: 1",
        "see: RST, mss: 1460",
        "never: SYN, resent: [1s]",
        "see: SYN, resent: []",
        "see: SYN, resent: [soon]",
    ];
    insta::assert_snapshot!(inputs.map(wire).join("\n\n"));
}

#[test]
fn invalid_state_expectation_is_refused() {
    let row = |words: &str| {
        load_diagnostics(&example_with(
            "    wire:\n",
            &format!("    {words}\n    wire:\n"),
        ))
    };
    let inputs = [
        "sets: [{on: node-1, set: KUBE-CLUSTER-IP, members: []}]",
        "sets: [{on: node-1, set: KUBE-CLUSTER-IP, typ: \"hash:ip\", members: []}]",
        "ipvs: [{on: node-1, server: 10.20.0.1, is: []}]",
        "links: [{on: eth0, flags: [], addresses: []}]",
        "links: [{on: node-1/eth0, flags: [], addresses: [10.20.0.1]}]",
    ];
    insta::assert_snapshot!(inputs.map(row).join("\n\n"));
}

#[test]
fn duration_out_of_bounds_in_any_field_is_refused() {
    let inputs = [
        ("maxWait: 3s", "maxWait: 400000000000y"),
        ("maxWait: 3s", "maxWait: 0s"),
        ("healthCheck: {}", "healthCheck: {every: 61m}"),
        ("healthCheck: {}", "retryAfter: 2h"),
        (
            "see: \"SYN from pod/default/client\"",
            "see: SYN, resent: [1s, 1y]",
        ),
    ];
    let diagnostics = inputs.map(|(good, bad)| load_diagnostics(&example_with(good, bad)));
    insta::assert_snapshot!(diagnostics.join("\n\n"));
    // A patch is decoded as strictly as the lab.
    let patched = example_with(
        "merge: {spec: {externalTrafficPolicy: Cluster}}",
        "merge: {spec: {externalTrafficPolicy: Cluster}}}\n      - {patch: Lab, merge: {spec: {probes: {call: {maxWait: 2h}}}}",
    );
    insta::assert_snapshot!(load_diagnostics(&patched));
}

#[test]
fn file_without_lab_is_refused() {
    insta::assert_snapshot!(load_diagnostics(
        "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
    ));
}

#[test]
fn second_lab_document_is_refused() {
    let lab =
        "---\napiVersion: svclab/v1\nkind: Lab\nmetadata: {name: example}\nspec: {about: x}\n";
    insta::assert_snapshot!(load_diagnostics(&format!("{EXAMPLE}{lab}")));
}

#[test]
fn document_other_than_map_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&format!("{EXAMPLE}---\njust words\n")));
}

#[test]
fn port_out_of_range_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "port: 443, ",
        "port: 70000, "
    )));
    insta::assert_snapshot!(load_diagnostics(&example_with("port: 443, ", "")));
}

#[test]
fn empty_file_is_refused() {
    insta::assert_snapshot!(load_diagnostics(" \n"), @"error: example.yaml is empty; write at least one YAML document");
}

#[test]
fn unreadable_file_is_refused() {
    let read = |path: &std::path::Path| match Source::read(path) {
        Ok(_) => String::new(),
        Err(error) => error
            .to_string()
            .replace(&path.display().to_string(), "PATH"),
    };
    let directory = tempfile::tempdir().expect("a directory");
    insta::assert_snapshot!(read(directory.path()), @"cannot read PATH: is a directory; name a lab file in it");
    let path = directory.path().join("lab.yaml");
    insta::assert_snapshot!(read(&path), @"cannot read PATH: no such file");
    std::fs::write(&path, b"a: 1\n\xc3(\n").expect("written");
    insta::assert_snapshot!(read(&path), @"PATH: line 2 is not UTF-8; save the file as UTF-8");
    std::fs::write(&path, "[".repeat(MAX_BYTES + 1)).expect("written");
    insta::assert_snapshot!(read(&path), @"PATH is larger than 64 MiB, the maximum; remove objects that the lab does not need");
}

#[test]
fn deep_nesting_is_refused() {
    for opener in ["[", "{a: ", "- ", "? "] {
        let text = opener.repeat((4 << 20) / opener.len());
        let diagnostics = load_diagnostics(&text);
        assert!(
            diagnostics.contains("nest deeper than 100 levels"),
            "{opener}: {diagnostics}"
        );
        assert!(diagnostics.len() < 1000, "{opener}: {diagnostics}");
    }
}

#[test]
fn alias_bomb_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let below = level - 1;
        let aliases = vec![format!("*a{below}"); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{aliases}]").expect("written");
    }
    insta::assert_snapshot!(load_diagnostics(&text));
}

#[test]
fn alias_loop_is_refused() {
    insta::assert_snapshot!(load_diagnostics("a: &a [1, *a]\n"));
}

#[test]
fn merge_key_is_refused() {
    insta::assert_snapshot!(load_diagnostics("a: &a {b: 1}\nc: {<<: *a}\n"));
}

#[test]
fn too_many_cases_are_refused() {
    let values: Vec<String> = (0..70).map(|n| format!("v{n}: []")).collect();
    let axis = format!("{{{}}}", values.join(", "));
    let text = example_with(
        "    rpFilter:\n",
        &format!("    x: {axis}\n    y: {axis}\n    rpFilter:\n"),
    );
    let diagnostics = load_diagnostics(&text);
    assert!(
        diagnostics.contains("the axes make 19600 cases, more than 4096"),
        "{diagnostics}"
    );
}
