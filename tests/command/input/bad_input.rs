//! Tests invalid input: exit code 2, file, line, caret, a suggestion, and no lab built.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{LAB, run, stderr, stdout, svclab, without_newest_version, write_lab};

/// Runs a lab and returns standard error without the directory name.
fn run_lab(text: impl AsRef<[u8]>, code: i32) -> String {
    let (directory, path) = write_lab(text);
    let output = run(&["run", &path.display().to_string()]);
    checked_stderr(&output, directory.path(), code)
}

fn checked_stderr(output: &Output, directory: &Path, code: i32) -> String {
    let text = stderr(output).replace(&format!("{}/", directory.display()), "");
    let text = without_newest_version(&text);
    assert_eq!(output.status.code(), Some(code), "{text}{}", stdout(output));
    text
}

/// Returns the good lab with one text replaced.
fn good_lab_with(from: &str, to: &str) -> String {
    assert!(LAB.contains(from), "the lab has no `{from}`");
    LAB.replacen(from, to, 1)
}

macro_rules! lab_is_refused {
    ($($name:ident: $from:expr => $to:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(run_lab(good_lab_with($from, $to), 2));
        }
    )*};
}

lab_is_refused! {
    lab_unknown_field_is_refused: "  axes:" => "  axess:";
    nftables_mode_unsupported_version_is_refused: "kubeProxy: {version: v1.30" => "kubeProxy: {mode: nftables, version: v1.28";
    nftables_mode_with_ipvs_options_is_refused: "kubeProxy: {version" => "kubeProxy: {mode: nftables, bindLoadBalancerIPs: false, ipvsScheduler: wrr, version";
    nftables_mode_with_interface_prefix_is_refused: "kubeProxy: {version" => "kubeProxy: {mode: nftables, detectLocalMode: InterfaceNamePrefix, interfaceNamePrefix: cali, version";
    nftables_mode_missing_bridge_is_refused: "kubeProxy: {version" => "kubeProxy: {mode: nftables, detectLocalMode: BridgeInterface, bridgeInterface: br9, version";
    bridge_name_with_rule_text_is_refused: "kubeProxy: {version" => "kubeProxy: {detectLocalMode: BridgeInterface, bridgeInterface: \"x -j DROP\", version";
    dual_stack_unsupported_version_is_refused: "version: v1.30, clusterCIDR: 10.244.0.0/16" => "version: v1.20, clusterCIDR: '10.244.0.0/16,fd00:10:244::/56'";
    primary_address_unsupported_version_is_refused: "kubeProxy: {version" => "kubeProxy: {nodePortAddresses: [primary], version";
    primary_address_with_networks_is_refused: "kubeProxy: {version: v1.30" => "kubeProxy: {nodePortAddresses: [primary, 10.0.0.0/8], version: v1.31";
    node_port_address_not_a_network_is_refused: "kubeProxy: {version" => "kubeProxy: {mode: nftables, nodePortAddresses: [node-1], version";
    component_misspelt_is_refused: "kubeProxy: {version" => "kubeproxy: {version";
    kube_proxy_unknown_version_is_refused: "version: v1.30" => "version: v1.99";
    probe_unknown_source_is_refused: "from: pod/default/client" => "from: pod/default/cilent";
    probe_source_without_namespace_is_refused: "from: pod/default/client" => "from: pod/client";
    probe_unknown_service_port_is_refused: "service/default/web:80" => "service/default/web:81";
    probe_unknown_service_is_refused: "service/default/web:80" => "service/default/wed:80";
    probe_unserved_pod_port_is_refused: "service/default/web:80" => "pod/default/web:9999";
    probe_without_port_is_refused: "service/default/web:80" => "service/default/web";
    service_selector_without_pods_is_refused: "selector: {app: web}" => "selector: {app: wed}";
    pod_unknown_node_is_refused: "nodeName: node-1, containers: [{name: client}]" => "nodeName: node-9, containers: [{name: client}]";
    lab_unknown_node_is_refused: "    node-1:\n      leftovers" => "    node-7:\n      leftovers";
    pods_same_address_are_refused: "podIP: 10.244.1.10" => "podIP: 10.244.1.9";
    node_address_outside_subnet_is_refused: "    node-1:\n" => "    node-1:\n      subnet: 10.0.0.0/24\n";
    cluster_ip_in_pod_cidr_is_refused: "clusterIP: 10.96.0.10" => "clusterIP: 10.244.1.77";
    host_with_address_of_node_is_refused: "203.0.113.9/24" => "192.168.50.11/24";
    subnets_overlapping_are_refused: "203.0.113.9/24" => "192.168.0.9/16";
    patch_unknown_object_is_refused: "patch: Service/default/web" => "patch: Service/default/wed";
    patch_removing_unknown_key_is_refused: "internalTrafficPolicy: Local" => "selectro: null";
    patch_removing_unknown_host_is_refused: "{patch: Service/default/web, merge: {spec: {internalTrafficPolicy: Local}}}" => "{patch: Lab, merge: {spec: {hosts: {labtop: null}}}}";
    load_balancers_same_address_are_refused: "Cluster: []" => "Cluster: [{patch: Service/default/web, merge: {status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}}, {patch: Lab, merge: {spec: {loadBalancers: {one: {service: web, target: pods}, other: {service: web, target: pods}}}}}]";
    masquerade_bit_out_of_range_is_refused: "version: v1.30" => "masqueradeBit: 32, version: v1.30";
    cluster_ips_contradictory_are_refused: "  clusterIP: 10.96.0.10" => "  clusterIPs: [10.96.0.11]\n  clusterIP: 10.96.0.10";
    pod_ips_contradictory_are_refused: "status: {podIP: 10.244.1.9}" => "status: {podIP: 10.244.1.9, podIPs: [{ip: 10.244.1.8}]}";
    pod_cidrs_contradictory_are_refused: "podCIDR: 10.244.1.0/24" => "podCIDR: 10.244.1.0/24, podCIDRs: [10.244.2.0/24]";
    pod_unknown_phase_is_refused: "status: {podIP: 10.244.1.9}" => "status: {podIP: 10.244.1.9, phase: running}";
    service_unknown_ip_family_is_refused: "  clusterIP: 10.96.0.10" => "  ipFamilies: [ipv4]\n  clusterIP: 10.96.0.10";
    ingress_unknown_ip_mode_is_refused: "Cluster: []" => "Cluster: [{patch: Service/default/web, merge: {status: {loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: proxy}]}}}}]";
    patch_wrong_type_is_refused: "internalTrafficPolicy: Local" => "ports: 80";
    case_without_matching_row_is_refused: "  - when: {policy: Local}\n    call: {connected: 1, endpoints: [web], seenSource: pod/default/client}\n" => "";
    expectation_unknown_endpoint_is_refused: "endpoints: [web]" => "endpoints: [wed]";
    expectation_unknown_source_is_refused: "seenSource: pod/default/client" => "seenSource: pod/default/cilent";
    lab_invalid_yaml_is_refused: "  probes:" => "  probes: [";
    lab_duplicate_keys_are_refused: "  about:" => "  about: twice\n  about:";
    field_wrong_type_is_refused: "to: \"service/default/web:80\"" => "to: \"service/default/web:80\", connections: many";
    sysctl_outside_network_is_refused: "leftovers: {iptables: []}" => "sysctls: {vm.swappiness: 1}";
    sysctl_unknown_interface_is_refused: "leftovers: {iptables: []}" => "sysctls: {net.ipv4.conf.eth7.rp_filter: 1}";
    nodes_in_same_subnet_are_refused: "---\napiVersion: v1\nkind: Pod\nmetadata: {name: client" => "---\napiVersion: v1\nkind: Node\nmetadata: {name: node-2}\nstatus: {addresses: [{type: InternalIP, address: 192.168.50.12}]}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: client";
    leftover_rule_without_table_is_refused: "iptables: []" => "iptables: [\"-A POSTROUTING -j RETURN\"]";
    wire_unknown_interface_is_refused: "  - when: {policy: Local}\n" => "  - when: {policy: Local}\n    wire: [{on: node-1/eth1, see: SYN}]\n";
    link_unknown_interface_is_refused: "  - when: {policy: Local}\n" => "  - when: {policy: Local}\n    links: [{on: node-1/kube-ipvs0, flags: [], addresses: []}]\n";
    set_unknown_node_is_refused: "  - when: {policy: Local}\n" => "  - when: {policy: Local}\n    sets: [{on: node-9, set: KUBE-CLUSTER-IP, type: \"hash:ip,port\", members: []}]\n";
    virtual_server_unknown_node_is_refused: "  - when: {policy: Local}\n" => "  - when: {policy: Local}\n    ipvs: [{on: node-2, server: \"10.96.0.10:80\", is: []}]\n";
    sysctl_value_with_newline_is_refused: "leftovers: {iptables: []}" => "sysctls: {net.ipv4.ip_forward: \"1\\n0\"}";
    host_port_zero_is_refused: "203.0.113.9/24}" => "203.0.113.9/24, ports: [80, 0]}";
    probe_fractional_connections_is_refused: "to: \"service/default/web:80\"" => "to: \"service/default/web:80\", connections: 1.0";
    by_hand_time_limit_zero_is_refused: "leftovers: {iptables: []}" => "byHand: {commands: [ip link], timeLimit: 0s}";
    flannel_vni_out_of_range_is_refused: "kubeProxy: {version" => "flannel: {version: v0.25.1, network: 10.244.0.0/16, vni: 99999999}\n  kubeProxy: {version";
    fabric_duplicate_route_is_refused: "  hosts:" => "  fabric: {routes: [{to: 10.9.0.0/24, via: node-1}, {to: 10.9.0.0/24, via: node-1}]}\n  hosts:";
    balancer_duplicate_backend_is_refused: "  probes:" => "  loadBalancers: {lb: {service: default/web, target: pods, scheduler: foo, backends: [node-1, node-1]}}\n  probes:";
    ipvs_unknown_scheduler_is_refused: "kubeProxy: {version" => "kubeProxy: {mode: ipvs, ipvsScheduler: foo, version";
    host_with_name_of_loopback_is_refused: "    laptop: {address" => "    lo: {address";
    host_unspecified_address_is_refused: "203.0.113.9/24" => "0.0.0.0/24";
    node_broadcast_address_is_refused: "192.168.50.11" => "192.168.50.255";
    pod_with_address_of_bridge_is_refused: "podIP: 10.244.1.10" => "podIP: 10.244.1.1";
    pod_cidr_ipv6_without_address_is_refused: "podCIDR: 10.244.1.0/24" => "podCIDRs: [10.244.1.0/24, \"fd00:1::/64\"]";
    by_hand_shell_syntax_is_refused: "leftovers: {iptables: []}" => "byHand: {commands: [\"echo 0 > /proc/sys/net/ipv4/ip_forward\"]}";
    kube_proxy_reserved_flags_are_refused: "kubeProxy: {version" => "kubeProxy: {args: [--proxy-mode, ipvs, --v=2, --config=x], version";
    host_with_name_of_node_is_refused: "    laptop: {address: 203.0.113.9/24}" => "    node-1: {address: 203.0.113.9/24}";
}

/// Returns the good lab with a step.
fn with_step(change: &str, probes: &str) -> String {
    let step = format!(
        "  steps:\n  - name: later\n    change: [{change}]\n    probes: {{{probes}}}\n  axes:"
    );
    let text = good_lab_with("  axes:", &step);
    if probes.is_empty() {
        return text;
    }
    text.replace(
        "    call: {connected",
        "    callLater: any\n    call: {connected",
    )
}

macro_rules! step_is_refused {
    ($($name:ident: $change:expr, $probes:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(run_lab(with_step($change, $probes), 2));
        }
    )*};
}

step_is_refused! {
    step_without_change_is_refused: "{patch: Service/default/web, merge: {spec: {clusterIP: 10.96.0.10}}}", "";
    step_adding_node_is_refused: "{add: {apiVersion: v1, kind: Node, metadata: {name: node-2}, spec: {podCIDR: 10.244.2.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.51.12}]}}}", "";
    step_changing_fabric_is_refused: "{patch: Lab, merge: {spec: {hosts: {desk: {address: 203.0.114.9/24}}}}}", "";
    step_changing_iptables_backend_is_refused: "{patch: Lab, merge: {spec: {iptables: legacy}}}", "";
    step_deleting_probe_source_is_refused: "{delete: Pod/default/client}", "callLater: {from: pod/default/client, to: \"service/default/web:80\"}";
}

/// A rule that svclab accepts and only iptables rejects.
#[test]
fn leftover_rule_rejected_by_iptables_exits_2() {
    let rules = "iptables: [\"*nat\", \"-A POSTROUTING -m nosuchmatch -j RETURN\"]";
    check_failing_case(
        "leftover_rule_rejected_by_iptables_exits_2",
        "iptables: []",
        rules,
        2,
    );
}

/// Chain from the dump of a write-up (S0): it jumps to itself, which no iptables can have printed.
#[test]
fn leftover_chain_with_loop_is_refused_by_kernel() {
    let text = good_lab_with(
        "iptables: []",
        "iptables: [\"*nat\", \":KUBE-LOAD-BALANCER - [0:0]\", \"-A PREROUTING -j KUBE-LOAD-BALANCER\", \"-A KUBE-LOAD-BALANCER -j KUBE-LOAD-BALANCER\"]",
    );
    let (directory, path) = write_lab(text);
    let output = run(&["run", &format!("{}/policy=Local", path.display())]);
    let printed = checked_stderr(&output, directory.path(), 2) + &stdout(&output);
    for words in [
        "rejects this line on node `node-1`",
        "-A KUBE-LOAD-BALANCER -j KUBE-LOAD-BALANCER\"",
        // EMLINK: nf_tables found a loop. Every later line fails with the same error.
        "RULE_APPEND failed (Too many links): rule in chain KUBE-LOAD-BALANCER",
    ] {
        assert!(printed.contains(words), "{printed}");
    }
}

/// A sysctl that another kernel may have: exit code 3.
#[test]
fn node_sysctl_missing_in_kernel_exits_3() {
    let sysctl = "sysctls: {net.ipv4.no_such: 1}";
    check_failing_case(
        "node_sysctl_missing_in_kernel_exits_3",
        "leftovers: {iptables: []}",
        sysctl,
        3,
    );
}

/// A counter that another kernel may have; the counter would never grow.
#[test]
fn expected_counter_missing_in_kernel_exits_3() {
    check_counter(
        "expected_counter_missing_in_kernel_exits_3",
        "TcpExtZzzzzzzzzzzzzzzzzz",
        3,
    );
}

#[test]
fn expected_counter_misspelt_exits_2() {
    check_counter("expected_counter_misspelt_exits_2", "IpForwDatagram", 2);
}

/// Runs a case that expects a counter.
fn check_counter(name: &str, counter: &str, code: i32) {
    let row = "  - when: {policy: Local}\n";
    let expected = format!("{row}    counters: [{{on: node-1, counter: {counter}, grows: 0}}]\n");
    check_failing_case(name, row, &expected, code);
}

/// Runs a case of the good lab with one text replaced. Compares the output with the named snapshot.
fn check_failing_case(name: &str, from: &str, to: &str, code: i32) {
    let (directory, path) = write_lab(good_lab_with(from, to));
    let output = run(&["run", &format!("{}/policy=Local", path.display())]);
    assert_eq!(output.status.code(), Some(code));
    assert_output_snapshot(&output, directory.path(), name);
}

/// Compares the output of a run with a snapshot, without values that differ between machines.
fn assert_output_snapshot(output: &Output, directory: &Path, name: &str) {
    let text = stdout(output).replace(&directory.display().to_string(), "DIR");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains(" passed, "))
        .collect();
    insta::with_settings!({filters => vec![(r"v\d+\.\d+\.\d+", "VERSION"), (r"\(\d+\.\d+ s\)", "(TIME)")]}, {
        insta::assert_snapshot!(name, lines.join("\n"));
    });
}

#[test]
fn lab_empty_file_is_refused() {
    insta::assert_snapshot!(run_lab("", 2));
}

#[test]
fn lab_invalid_utf8_is_refused() {
    insta::assert_snapshot!(run_lab(b"spec: \xff\xfe", 2));
}

#[test]
fn lab_empty_directory_selects_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.yaml");
    fs::create_dir(&path).unwrap();
    let output = run(&["run", &path.display().to_string()]);
    // A directory selects the labs in it; this one contains none.
    insta::assert_snapshot!(checked_stderr(&output, directory.path(), 4));
}

#[test]
fn lab_10_mib_of_nesting_is_refused() {
    insta::assert_snapshot!(run_lab("[".repeat(10 << 20), 2));
    insta::assert_snapshot!(run_lab("[".repeat(3 << 20), 2));
}

#[test]
fn object_misspelt_field_is_warned_about() {
    let text = good_lab_with(
        "ports: [{port: 80, targetPort: 8080}]",
        "ports: [{port: 80, targetPort: 8080}]\n  selctor: {}",
    );
    let (directory, path) = write_lab(text);
    let output = run(&["run", &path.display().to_string()]);
    insta::assert_snapshot!(checked_stderr(&output, directory.path(), 0));
}

#[test]
fn run_unknown_lab_or_case_suggests_names() {
    let stderr_of = |name: &str, code: i32| {
        let output = run(&["run", name]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        stderr(&output)
    };
    insta::assert_snapshot!(stderr_of("canal-stale-rul", 4));
    insta::assert_snapshot!(stderr_of("canal-stale-rule/rpfilter=1", 4));
    insta::assert_snapshot!(stderr_of("canal-stale-rule/rpFilter=7", 4));
    insta::assert_snapshot!(stderr_of("canal-stale-rule/strict", 4));
    insta::assert_snapshot!(stderr_of("./no/such/file.yaml", 2));
}

#[test]
fn run_invalid_arguments_are_refused() {
    for arguments in [
        &["run", "--max-wait", "soon"][..],
        &["run", "-j", "0"],
        &["run", "--format", "xml"],
        &["rum"],
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn run_lab_outside_topologies_is_refused() {
    let (directory, _) = write_lab(LAB);
    let stderr_of = |arguments: &[&str]| {
        let output = svclab()
            .current_dir(directory.path())
            .args(arguments)
            .output()
            .expect("the command starts");
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        stderr(&output)
    };
    insta::assert_snapshot!(stderr_of(&["run", "lab/policy=Local"]));
    insta::assert_snapshot!(stderr_of(&["run", "--topologies=topologies"]));
}

#[test]
fn stdout_full_disk_exits_3() {
    for arguments in [
        &["completions", "bash"][..],
        &["schema"],
        &["plan", "canal-stale-rule"],
        &[
            "run",
            "canal-stale-rule/stale=removed,rpFilter=0,underlay=passes",
        ],
    ] {
        let full = fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full exists");
        let output = svclab()
            .args(arguments)
            .stdout(full)
            .output()
            .expect("the command starts");
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {message}");
        assert!(message.contains("cannot write the output"), "{message}");
    }
}

/// Writes the lab, its objects and a dump of its node to a directory.
fn files_of_replay() -> (tempfile::TempDir, [String; 3]) {
    let (directory, lab) = write_lab(LAB);
    let (_, objects) = LAB.split_once("---\n").expect("objects");
    let [objects, dump] = [
        ("objects.yaml", objects),
        ("iptables-save", "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"),
    ]
    .map(|(name, text)| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("the file can be written");
        path.display().to_string()
    });
    let lab = lab.display().to_string();
    (directory, [lab, objects, dump])
}

/// Returns the error for arguments that are refused.
fn refused_arguments(directory: &Path, arguments: &[&str], code: i32) -> String {
    let output = run(arguments);
    assert_eq!(stdout(&output), "", "{arguments:?}");
    checked_stderr(&output, directory, code)
}

#[test]
fn replay_two_dumps_of_same_node_is_refused() {
    let (directory, [lab, objects, dump]) = files_of_replay();
    let of_node = format!("node-1={dump}");
    let case = format!("{lab}/policy=Local");
    let refused = |arguments: &[&str]| refused_arguments(directory.path(), arguments, 2);
    let expected = "error: two dumps are for node `node-1`\nhelp: give one dump per node\n";
    for arguments in [
        &[
            "replay",
            &of_node,
            &dump,
            "--objects",
            &objects,
            "--probe=a->b",
        ][..],
        &["replay", &of_node, &of_node, "--objects", &case],
        &["why", &case, "--dump", &of_node, "--dump", &dump],
    ] {
        assert_eq!(refused(arguments), expected, "{arguments:?}");
    }
}

#[test]
fn run_two_results_in_same_file_is_refused() {
    let (directory, lab) = write_lab(LAB);
    let file = directory.path().join("a");
    let same_file = directory.path().join("link/a");
    symlink(directory.path(), directory.path().join("link")).expect("a link");
    let [json, junit] = [("json", &file), ("junit", &same_file)]
        .map(|(format, file)| format!("{format}={}", file.display()));
    let lab = lab.display().to_string();
    let arguments = ["run", "--write", &json, "--write", &junit, &lab];
    insta::assert_snapshot!(refused_arguments(directory.path(), &arguments, 2));
    assert!(!file.exists());
}

#[test]
fn bisect_cases_with_objects_is_refused() {
    let (directory, [lab, objects, _]) = files_of_replay();
    let [good, bad] = ["Local", "Cluster"].map(|policy| format!("{lab}/policy={policy}"));
    let arguments = [
        "bisect",
        "--good",
        &good,
        "--bad",
        &bad,
        "--objects",
        &objects,
    ];
    insta::assert_snapshot!(refused_arguments(directory.path(), &arguments, 2));
}

#[test]
fn command_with_nothing_to_run_exits_4() {
    let (directory, [lab, objects, dump]) = files_of_replay();
    let refused = |arguments: &[&str]| refused_arguments(directory.path(), arguments, 4);
    insta::assert_snapshot!(refused(&["replay", &dump, "--objects", &objects]));
    insta::assert_snapshot!(refused(&["claims", &lab]));
}

#[test]
fn case_name_unknown_or_duplicate_axis_is_refused() {
    let (directory, path) = write_lab(LAB);
    let case = format!("{}/policy=Local,policy=Cluster", path.display());
    let refused = |case: &str| refused_arguments(directory.path(), &["plan", case], 4);
    insta::assert_snapshot!(refused(&case));
    let (front, rest) = LAB.split_once("  axes:").expect("axes");
    let (_, objects) = rest.split_once("---\n").expect("objects");
    let plain = format!("{front}  expect: [{{call: {{connected: 1}}}}]\n---\n{objects}");
    fs::write(&path, plain).expect("the file can be written");
    insta::assert_snapshot!(refused(&format!("{}/a=b", path.display())));
}

#[test]
fn node_with_more_pods_than_bridge_ports_is_refused() {
    let text = good_lab_with("podCIDR: 10.244.1.0/24", "podCIDR: 10.244.0.0/20");
    let many = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many}\nspec:\n  \
                replicas: 1022\n  selector: {matchLabels: {app: many}}\n  template:\n    \
                metadata: {labels: {app: many}}\n    spec: {containers: [{name: many}]}\n";
    insta::assert_snapshot!(run_lab(format!("{text}\n{many}"), 2));
}

#[test]
fn subnet_with_more_nodes_than_bridge_ports_is_refused() {
    let names: Vec<String> = (0..1023).map(|number| format!("extra-{number}")).collect();
    let subnets: Vec<String> = names
        .iter()
        .map(|name| format!("    {name}: {{subnet: 192.168.48.0/20}}\n"))
        .collect();
    let fabric = "  fabric: {type: switched}\n  nodes:\n    node-1:\n      \
                  subnet: 192.168.48.0/20\n      leftovers: {iptables: []}\n";
    let text = good_lab_with(
        "  nodes:\n    node-1:\n      leftovers: {iptables: []}\n",
        &format!("{fabric}{}", subnets.concat()),
    );
    let nodes: Vec<String> = (0..1023)
        .map(|number| {
            let (third, fourth) = (52 + number / 200, 1 + number % 200);
            format!(
                "\n---\n{{apiVersion: v1, kind: Node, metadata: {{name: extra-{number}}}, status: \
                 {{addresses: [{{type: InternalIP, address: 192.168.{third}.{fourth}}}]}}}}"
            )
        })
        .collect();
    insta::assert_snapshot!(run_lab(text + &nodes.concat(), 2));
}

#[test]
fn lab_many_scalar_documents_limits_errors_and_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("lab.yaml");
    // 12 MB used 1.2 GB before the limit.
    let memory_limit = 500 << 20;
    let plan_documents = |documents: usize| {
        fs::write(&path, "1\n--- \n".repeat(documents)).expect("the file can be written");
        let output = Command::new("prlimit")
            .arg(format!("--data={memory_limit}"))
            .args([crate::SVCLAB, "plan"])
            .arg(&path)
            .output()
            .expect("the command starts");
        checked_stderr(&output, directory.path(), 2)
    };
    let text = plan_documents(300);
    assert_eq!(text.matches("a document must be a map").count(), 100);
    assert!(text.contains("and 200 more errors"), "{text}");
    let text = plan_documents(1_700_000);
    assert!(
        text.contains("more than 1000000 values in one file"),
        "{text}"
    );
}
