//! Tests invalid input: exit code 2, file, line, caret, a suggestion, and no lab built.

use std::path::Path;
use std::process::Output;

use super::support::{LAB, lab, run, stderr, stdout, svclab};

/// Runs a lab and returns standard error without the directory name.
fn refuse(text: impl AsRef<[u8]>, code: i32) -> String {
    let (directory, path) = lab(text);
    let output = run(&["run", &path.display().to_string()]);
    said(&output, directory.path(), code)
}

fn said(output: &Output, directory: &Path, code: i32) -> String {
    let text = stderr(output).replace(&format!("{}/", directory.display()), "");
    assert_eq!(output.status.code(), Some(code), "{text}{}", stdout(output));
    text
}

/// Returns the good lab with one text replaced.
fn changed(from: &str, to: &str) -> String {
    assert!(LAB.contains(from), "the lab has no `{from}`");
    LAB.replacen(from, to, 1)
}

macro_rules! refused {
    ($($name:ident: $from:expr => $to:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(refuse(changed($from, $to), 2));
        }
    )*};
}

refused! {
    unknown_field: "  axes:" => "  axess:";
    nftables_mode_of_a_version_without: "kubeProxy: {version: v1.30" => "kubeProxy: {mode: nftables, version: v1.28";
    nftables_mode_told_of_ipvs: "kubeProxy: {version" => "kubeProxy: {mode: nftables, bindLoadBalancerIPs: false, ipvsScheduler: wrr, version";
    nftables_mode_with_beginnings_of_names: "kubeProxy: {version" => "kubeProxy: {mode: nftables, detectLocalMode: InterfaceNamePrefix, interfaceNamePrefix: cali, version";
    nftables_mode_by_a_bridge_that_is_not_there: "kubeProxy: {version" => "kubeProxy: {mode: nftables, detectLocalMode: BridgeInterface, bridgeInterface: br9, version";
    bridge_that_is_a_rule: "kubeProxy: {version" => "kubeProxy: {detectLocalMode: BridgeInterface, bridgeInterface: \"x -j DROP\", version";
    primary_address_of_a_version_without: "kubeProxy: {version" => "kubeProxy: {nodePortAddresses: [primary], version";
    primary_address_beside_networks: "kubeProxy: {version: v1.30" => "kubeProxy: {nodePortAddresses: [primary, 10.0.0.0/8], version: v1.31";
    node_port_address_that_is_none: "kubeProxy: {version" => "kubeProxy: {mode: nftables, nodePortAddresses: [node-1], version";
    misspelt_component: "kubeProxy: {version" => "kubeproxy: {version";
    unknown_version: "version: v1.30" => "version: v1.99";
    probe_from_nobody: "from: pod/default/client" => "from: pod/default/cilent";
    probe_without_namespace: "from: pod/default/client" => "from: pod/client";
    probe_to_no_such_port: "service/default/web:80" => "service/default/web:81";
    probe_to_no_such_service: "service/default/web:80" => "service/default/wed:80";
    probe_to_port_nothing_serves: "service/default/web:80" => "pod/default/web:9999";
    probe_without_port: "service/default/web:80" => "service/default/web";
    selects_nobody: "selector: {app: web}" => "selector: {app: wed}";
    unknown_node_of_pod: "nodeName: node-1, containers: [{name: client}]" => "nodeName: node-9, containers: [{name: client}]";
    unknown_node_in_lab: "    node-1:\n      leftovers" => "    node-7:\n      leftovers";
    overlapping_addresses: "podIP: 10.244.1.10" => "podIP: 10.244.1.9";
    address_outside_pod_cidr: "podIP: 10.244.1.10" => "podIP: 10.245.1.10";
    address_outside_subnet: "    node-1:\n" => "    node-1:\n      subnet: 10.0.0.0/24\n";
    cluster_ip_in_pod_cidr: "clusterIP: 10.96.0.10" => "clusterIP: 10.244.1.77";
    host_in_nodes_subnet_with_its_address: "203.0.113.9/24" => "192.168.50.11/24";
    overlapping_subnets: "203.0.113.9/24" => "192.168.0.9/16";
    patch_names_nothing: "patch: Service/default/web" => "patch: Service/default/wed";
    patch_that_removes_a_misspelt_key: "internalTrafficPolicy: Local" => "selectro: null";
    patch_that_removes_nobody: "{patch: Service/default/web, merge: {spec: {internalTrafficPolicy: Local}}}" => "{patch: Lab, merge: {spec: {hosts: {labtop: null}}}}";
    load_balancers_of_one_address: "Cluster: []" => "Cluster: [{patch: Service/default/web, merge: {status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}}, {patch: Lab, merge: {spec: {loadBalancers: {one: {service: web, target: pods}, other: {service: web, target: pods}}}}}]";
    masquerade_bit_that_no_mark_has: "version: v1.30" => "masqueradeBit: 32, version: v1.30";
    cluster_ips_that_contradict: "  clusterIP: 10.96.0.10" => "  clusterIPs: [10.96.0.11]\n  clusterIP: 10.96.0.10";
    pod_ips_that_contradict: "status: {podIP: 10.244.1.9}" => "status: {podIP: 10.244.1.9, podIPs: [{ip: 10.244.1.8}]}";
    pod_cidrs_that_contradict: "podCIDR: 10.244.1.0/24" => "podCIDR: 10.244.1.0/24, podCIDRs: [10.244.2.0/24]";
    phase_that_is_none: "status: {podIP: 10.244.1.9}" => "status: {podIP: 10.244.1.9, phase: running}";
    ip_family_that_is_none: "  clusterIP: 10.96.0.10" => "  ipFamilies: [ipv4]\n  clusterIP: 10.96.0.10";
    ip_mode_that_is_none: "Cluster: []" => "Cluster: [{patch: Service/default/web, merge: {status: {loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: proxy}]}}}}]";
    patch_of_wrong_type: "internalTrafficPolicy: Local" => "ports: 80";
    no_row_matches: "  - when: {policy: Local}\n    call: {connected: 1, endpoints: [web], seenSource: pod/default/client}\n" => "";
    expectation_of_nobody: "endpoints: [web]" => "endpoints: [wed]";
    source_of_nobody: "seenSource: pod/default/client" => "seenSource: pod/default/cilent";
    not_yaml: "  probes:" => "  probes: [";
    duplicate_keys: "  about:" => "  about: twice\n  about:";
    wrong_type: "to: \"service/default/web:80\"" => "to: \"service/default/web:80\", connections: many";
    sysctl_of_the_machine: "leftovers: {iptables: []}" => "sysctls: {vm.swappiness: 1}";
    sysctl_of_no_interface: "leftovers: {iptables: []}" => "sysctls: {net.ipv4.conf.eth7.rp_filter: 1}";
    nodes_in_one_subnet: "---\napiVersion: v1\nkind: Pod\nmetadata: {name: client" => "---\napiVersion: v1\nkind: Node\nmetadata: {name: node-2}\nstatus: {addresses: [{type: InternalIP, address: 192.168.50.12}]}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: client";
    leftover_without_table: "iptables: []" => "iptables: [\"-A POSTROUTING -j RETURN\"]";
    wire_of_no_interface: "  - when: {policy: Local}\n" => "  - when: {policy: Local}\n    wire: [{on: node-1/eth1, see: SYN}]\n";
    link_of_no_interface: "  - when: {policy: Local}\n" => "  - when: {policy: Local}\n    links: [{on: node-1/kube-ipvs0, flags: [], addresses: []}]\n";
    set_of_nobody: "  - when: {policy: Local}\n" => "  - when: {policy: Local}\n    sets: [{on: node-9, set: KUBE-CLUSTER-IP, type: \"hash:ip,port\", members: []}]\n";
    virtual_server_of_nobody: "  - when: {policy: Local}\n" => "  - when: {policy: Local}\n    ipvs: [{on: node-2, server: \"10.96.0.10:80\", is: []}]\n";
    sysctl_of_two_lines: "leftovers: {iptables: []}" => "sysctls: {net.ipv4.ip_forward: \"1\\n0\"}";
    host_with_port_zero: "203.0.113.9/24}" => "203.0.113.9/24, ports: [80, 0]}";
    connections_with_a_fraction: "to: \"service/default/web:80\"" => "to: \"service/default/web:80\", connections: 1.0";
    time_limit_of_zero: "leftovers: {iptables: []}" => "byHand: {commands: [ip link], timeLimit: 0s}";
    vni_without_an_interface: "kubeProxy: {version" => "flannel: {version: v0.25.1, network: 10.244.0.0/16, vni: 99999999}\n  kubeProxy: {version";
    route_that_is_there_twice: "  hosts:" => "  fabric: {routes: [{to: 10.9.0.0/24, via: node-1}, {to: 10.9.0.0/24, via: node-1}]}\n  hosts:";
    balancer_with_a_backend_twice: "  probes:" => "  loadBalancers: {lb: {service: default/web, target: pods, scheduler: foo, backends: [node-1, node-1]}}\n  probes:";
    unknown_scheduler_of_kube_proxy: "kubeProxy: {version" => "kubeProxy: {mode: ipvs, ipvsScheduler: foo, version";
    two_hosts_of_a_name: "    laptop: {address: 203.0.113.9/24}" => "    node-1: {address: 203.0.113.9/24}";
}

/// Returns the good lab with a step.
fn with_step(change: &str, probes: &str) -> String {
    let step = format!(
        "  steps:\n  - name: later\n    change: [{change}]\n    probes: {{{probes}}}\n  axes:"
    );
    let text = changed("  axes:", &step);
    if probes.is_empty() {
        return text;
    }
    text.replace(
        "    call: {connected",
        "    callLater: any\n    call: {connected",
    )
}

macro_rules! refused_step {
    ($($name:ident: $change:expr, $probes:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(refuse(with_step($change, $probes), 2));
        }
    )*};
}

refused_step! {
    step_that_changes_nothing: "{patch: Service/default/web, merge: {spec: {clusterIP: 10.96.0.10}}}", "";
    step_with_another_node: "{add: {apiVersion: v1, kind: Node, metadata: {name: node-2}, spec: {podCIDR: 10.244.2.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.51.12}]}}}", "";
    step_with_another_fabric: "{patch: Lab, merge: {spec: {hosts: {desk: {address: 203.0.114.9/24}}}}}", "";
    step_with_another_iptables: "{patch: Lab, merge: {spec: {iptables: legacy}}}", "";
    step_after_which_a_probe_has_no_caller: "{delete: Pod/default/client}", "callLater: {from: pod/default/client, to: \"service/default/web:80\"}";
    step_with_a_pod_outside_its_network: "{add: {apiVersion: v1, kind: Pod, metadata: {name: late, namespace: default}, spec: {nodeName: node-1, containers: [{name: late}]}, status: {podIP: 10.245.1.3}}}", "";
}

/// A rule that svclab accepts and only iptables rejects.
#[test]
fn rule_that_iptables_rejects() {
    let rules = "iptables: [\"*nat\", \"-A POSTROUTING -m nosuchmatch -j RETURN\"]";
    fails("rule_that_iptables_rejects", "iptables: []", rules, 2);
}

/// Chain from the dump of a write-up (S0): it jumps to itself, which no iptables can have printed.
#[test]
fn chain_that_jumps_to_itself() {
    let text = changed(
        "iptables: []",
        "iptables: [\"*nat\", \":KUBE-LOAD-BALANCER - [0:0]\", \"-A PREROUTING -j KUBE-LOAD-BALANCER\", \"-A KUBE-LOAD-BALANCER -j KUBE-LOAD-BALANCER\"]",
    );
    let (directory, path) = lab(text);
    let output = run(&["run", &format!("{}/policy=Local", path.display())]);
    let told = said(&output, directory.path(), 2) + &stdout(&output);
    for words in [
        "refuses this line on node `node-1`",
        "-A KUBE-LOAD-BALANCER -j KUBE-LOAD-BALANCER\"",
        // EMLINK: nf_tables found a loop. Every later line fails with the same error.
        "RULE_APPEND failed (Too many links): rule in chain KUBE-LOAD-BALANCER",
    ] {
        assert!(told.contains(words), "{told}");
    }
}

/// A sysctl that another kernel may have: exit code 3.
#[test]
fn sysctl_that_this_kernel_lacks() {
    let sysctl = "sysctls: {net.ipv4.no_such: 1}";
    fails(
        "sysctl_that_this_kernel_lacks",
        "leftovers: {iptables: []}",
        sysctl,
        3,
    );
}

/// A counter that another kernel may have; the counter would never grow.
#[test]
fn counter_that_this_kernel_lacks() {
    let row = "  - when: {policy: Local}\n";
    let counter =
        format!("{row}    counters: [{{on: node-1, counter: IpForwDatagram, grows: 0}}]\n");
    fails("counter_that_this_kernel_lacks", row, &counter, 3);
}

/// Runs a case of the good lab with one text replaced. Compares the output with the named snapshot.
fn fails(name: &str, from: &str, to: &str, code: i32) {
    let (directory, path) = lab(changed(from, to));
    let output = run(&["run", &format!("{}/policy=Local", path.display())]);
    assert_eq!(output.status.code(), Some(code));
    shown(&output, directory.path(), name);
}

/// Compares the output of a run with a snapshot, without values that differ between machines.
fn shown(output: &Output, directory: &Path, name: &str) {
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
fn empty_file() {
    insta::assert_snapshot!(refuse("", 2));
}

#[test]
fn not_utf8() {
    insta::assert_snapshot!(refuse(b"spec: \xff\xfe", 2));
}

#[test]
fn a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.yaml");
    std::fs::create_dir(&path).unwrap();
    let output = run(&["run", &path.display().to_string()]);
    // A directory selects the labs in it; this one contains none.
    insta::assert_snapshot!(said(&output, directory.path(), 4));
}

#[test]
fn ten_megabytes_of_nesting() {
    insta::assert_snapshot!(refuse("[".repeat(10 << 20), 2));
    insta::assert_snapshot!(refuse("[".repeat(3 << 20), 2));
}

#[test]
fn a_misspelt_field_of_an_object_is_a_warning() {
    let text = changed(
        "ports: [{port: 80, targetPort: 8080}]",
        "ports: [{port: 80, targetPort: 8080}]\n  selctor: {}",
    );
    let (directory, path) = lab(text);
    let output = run(&["run", &path.display().to_string()]);
    insta::assert_snapshot!(said(&output, directory.path(), 0));
}

#[test]
fn no_such_lab_or_case() {
    let tell = |name: &str, code: i32| {
        let output = run(&["run", name]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        stderr(&output)
    };
    insta::assert_snapshot!(tell("canal-stale-rul", 4));
    insta::assert_snapshot!(tell("canal-stale-rule/rpfilter=1", 4));
    insta::assert_snapshot!(tell("canal-stale-rule/rpFilter=7", 4));
    insta::assert_snapshot!(tell("canal-stale-rule/strict", 4));
    insta::assert_snapshot!(tell("./no/such/file.yaml", 2));
}

#[test]
fn arguments_that_are_none() {
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
fn a_lab_that_is_elsewhere() {
    let (directory, _) = lab(LAB);
    let tell = |arguments: &[&str]| {
        let output = svclab()
            .current_dir(directory.path())
            .args(arguments)
            .output()
            .expect("the command starts");
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        stderr(&output)
    };
    insta::assert_snapshot!(tell(&["run", "lab/policy=Local"]));
    insta::assert_snapshot!(tell(&["run"]));
}

#[test]
fn a_disk_that_is_full() {
    for arguments in [
        &["completions", "bash"][..],
        &["schema"],
        &["plan", "canal-stale-rule"],
        &[
            "run",
            "canal-stale-rule/stale=removed,rpFilter=0,underlay=passes",
        ],
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("there is /dev/full");
        let output = svclab()
            .args(arguments)
            .stdout(full)
            .output()
            .expect("the command starts");
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {told}");
        assert!(told.contains("cannot write the output"), "{told}");
    }
}

/// Writes the lab, its objects and a dump of its node to a directory.
fn files_of_replay() -> (tempfile::TempDir, [String; 3]) {
    let (directory, lab) = lab(LAB);
    let (_, objects) = LAB.split_once("---\n").expect("objects");
    let [objects, dump] = [
        ("objects.yaml", objects),
        ("iptables-save", "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"),
    ]
    .map(|(name, text)| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    });
    let lab = lab.display().to_string();
    (directory, [lab, objects, dump])
}

/// Returns the error for arguments that are refused.
fn refused_arguments(directory: &Path, arguments: &[&str], code: i32) -> String {
    let output = run(arguments);
    assert_eq!(stdout(&output), "", "{arguments:?}");
    said(&output, directory, code)
}

#[test]
fn two_dumps_of_one_node_are_refused() {
    let (directory, [lab, objects, dump]) = files_of_replay();
    let of_node = format!("node-1={dump}");
    let case = format!("{lab}/policy=Local");
    let refused = |arguments: &[&str]| refused_arguments(directory.path(), arguments, 2);
    let expected = "error: two of the dumps are of the node `node-1`\n  what to do: give one dump of each node\n";
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
fn two_results_in_one_file_are_refused() {
    let (directory, lab) = lab(LAB);
    let file = directory.path().join("a");
    let other = directory.path().join("./a");
    let [json, junit] = [("json", &file), ("junit", &other)]
        .map(|(format, file)| format!("{format}={}", file.display()));
    let lab = lab.display().to_string();
    let arguments = ["run", "--write", &json, "--write", &junit, &lab];
    insta::assert_snapshot!(refused_arguments(directory.path(), &arguments, 2));
    assert!(!file.exists());
}

#[test]
fn objects_beside_two_cases_are_refused() {
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
fn nothing_to_try_is_no_success() {
    let (directory, [lab, objects, dump]) = files_of_replay();
    let refused = |arguments: &[&str]| refused_arguments(directory.path(), arguments, 4);
    insta::assert_snapshot!(refused(&["replay", &dump, "--objects", &objects]));
    insta::assert_snapshot!(refused(&["claims", &lab]));
}

#[test]
fn case_that_names_no_axis_or_an_axis_twice_is_refused() {
    let (directory, path) = lab(LAB);
    let case = format!("{}/policy=Local,policy=Cluster", path.display());
    let refused = |case: &str| refused_arguments(directory.path(), &["plan", case], 4);
    insta::assert_snapshot!(refused(&case));
    let (front, rest) = LAB.split_once("  axes:").expect("axes");
    let (_, objects) = rest.split_once("---\n").expect("objects");
    let plain = format!("{front}  expect: [{{call: {{connected: 1}}}}]\n---\n{objects}");
    std::fs::write(&path, plain).expect("it can be written");
    insta::assert_snapshot!(refused(&format!("{}/a=b", path.display())));
}
