//! Tests `svclab rules`: printed rules, loaded rules, and errors for invalid input.

use std::fs;
use std::process::Output;

use crate::support::{LAB, run, stderr, stdout, svclab, without_newest_version, write_lab};

/// The objects of the good lab, and services that kube-proxy ignores.
const OBJECTS: &str = "\
apiVersion: v1
kind: Node
metadata: {name: node-a}
spec: {podCIDR: 10.244.1.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.50.10}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: ns1}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  ports: [{name: p, port: 80, targetPort: 8080, nodePort: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: quiet, namespace: ns1}
spec: {clusterIP: None, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: others, namespace: ns1, labels: {service.kubernetes.io/service-proxy-name: x}}
spec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: far, namespace: ns1}
spec: {type: ExternalName, externalName: example.org}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: ns1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: p, port: 8080}]
endpoints: [{addresses: [10.244.1.5], nodeName: node-a, conditions: {ready: true}}]
";

fn run_rules(text: &str, arguments: &[&str]) -> (tempfile::TempDir, Output) {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("objects.yaml"), text).expect("a file");
    let output = svclab()
        .current_dir(directory.path())
        .arg("rules")
        .args(arguments)
        .arg("objects.yaml")
        .output()
        .expect("the command starts");
    (directory, output)
}

fn printed_rules(arguments: &[&str]) -> String {
    let (_, output) = run_rules(OBJECTS, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output) + &stderr(&output)
}

fn refused_rules(text: &str, arguments: &[&str]) -> String {
    let (_, output) = run_rules(text, arguments);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert_eq!(stdout(&output), "");
    without_newest_version(&stderr(&output))
}

#[test]
fn rules_iptables_mode_prints_program_input() {
    insta::assert_snapshot!(printed_rules(&[
        "--kube-version=v1.20",
        "--cluster-cidr=10.244.0.0/16"
    ]));
}

#[test]
fn rules_ipvs_mode_prints_sets_servers_and_addresses() {
    insta::assert_snapshot!(printed_rules(&[
        "--kube-version=v1.20",
        "--proxy-mode=ipvs",
        "--ipvs-scheduler=wrr"
    ]));
}

#[test]
fn rules_verbose_names_ignored_services() {
    let output_text = printed_rules(&["--kube-version=v1.20", "-v"]);
    let ignored: Vec<&str> = output_text
        .lines()
        .filter(|line| line.starts_with("ignored: "))
        .collect();
    insta::assert_snapshot!(ignored.join("\n"));
}

/// Renders services with one endpoint each.
fn many_services(services: usize) -> String {
    (0..services).map(service).collect()
}

fn service(n: usize) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: web-{n}, namespace: ns2}}\n\
         spec: {{clusterIP: 10.96.1.{n}, ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: web-{n}, namespace: ns2, \
         labels: {{kubernetes.io/service-name: web-{n}}}}}\n\
         addressType: IPv4\nports: [{{port: 8080}}]\n\
         endpoints: [{{addresses: [10.244.2.{n}]}}]\n"
    )
}

/// Loads the rules on this host.
const READ_BACK: [&str; 2] = ["--kernel=host", "--read-back=back"];

/// Loads more rules than iptables-nft can send at once in a user namespace.
#[test]
fn rules_many_services_load_as_printed() {
    let text = format!("{OBJECTS}{}", many_services(150));
    let arguments = ["--kube-version=v1.36"];
    let (_directory, printed) = run_rules(&text, &arguments);
    let (directory, loaded) = run_rules(&text, &[&arguments[..], &READ_BACK].concat());
    assert_eq!(loaded.status.code(), Some(0), "{}", stderr(&loaded));
    let back = fs::read_to_string(directory.path().join("back/iptables-save")).unwrap();
    let rules = |text: &str| {
        let rules = text.lines().filter(|line| line.starts_with("-A KUBE-"));
        rules.count()
    };
    // The printed rules are for IPv4 and IPv6; all services are IPv4.
    let ip6tables_rules = fs::read_to_string(directory.path().join("back/ip6tables-save")).unwrap();
    assert!(rules(&back) > 600, "{back}");
    assert_eq!(
        rules(&back) + rules(&ip6tables_rules),
        rules(&stdout(&printed))
    );
}

#[test]
fn rules_loaded_are_read_back_into_files() {
    let (directory, output) = run_rules(
        OBJECTS,
        &[&["--kube-version=v1.36"], &READ_BACK[..]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let read = |name: &str| fs::read_to_string(directory.path().join("back").join(name)).unwrap();
    let rules = read("iptables-save");
    assert!(rules.contains("ct_state_invalid_dropped_pkts"), "{rules}");
    assert!(
        rules.contains("-j DNAT --to-destination 10.244.1.5:8080"),
        "{rules}"
    );
    assert!(read("ip6tables-save").contains(":KUBE-SERVICES "));
    assert!(!directory.path().join("back/ipset-save").exists());
}

/// In nftables mode, the loaded ruleset equals the printed one for any number of services.
#[test]
fn rules_nftables_mode_reads_back_as_printed() {
    let text = format!("{OBJECTS}{}", many_services(150));
    for version in ["--kube-version=v1.30", "--kube-version=v1.36"] {
        let arguments = [version, "--proxy-mode=nftables"];
        let (_directory, printed) = run_rules(&text, &arguments);
        let (directory, loaded) = run_rules(&text, &[&arguments[..], &READ_BACK].concat());
        assert_eq!(loaded.status.code(), Some(0), "{}", stderr(&loaded));
        let back = directory.path().join("back/nft");
        let written = directory.path().join("nft");
        fs::write(&written, stdout(&printed)).expect("a file");
        let paths = [&back, &written].map(|path| path.display().to_string());
        let same = run(&["diff", &paths[0], &paths[1]]);
        assert_eq!(same.status.code(), Some(0), "{}", stdout(&same));
        assert!(!directory.path().join("back/iptables-save").exists());
    }
}

#[test]
fn rules_nftables_mode_prints_ruleset() {
    let (_directory, output) = run_rules(
        OBJECTS,
        &[
            "--kube-version=v1.36",
            "--proxy-mode=nftables",
            "--masquerade-all",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!(stdout(&output));
}

/// Like kube-proxy, nftables mode ignores the flag up to v1.30.
#[test]
fn rules_nftables_masquerade_all_applies_from_1_31() {
    let masquerades = |version: &str| {
        let arguments = [version, "--proxy-mode=nftables", "--masquerade-all"];
        let (_directory, output) = run_rules(OBJECTS, &arguments);
        stdout(&output).contains("ip daddr 10.96.0.10 tcp dport 80 jump mark-for-masquerade")
    };
    assert!(!masquerades("--kube-version=v1.30"));
    assert!(masquerades("--kube-version=v1.31"));
}

#[test]
fn rules_history_prints_changes_of_version() {
    let output = run(&["rules", "--history", "v1.17"]);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!(stdout(&output));
}

#[test]
fn rules_invalid_arguments_are_refused() {
    for (name, arguments) in [
        ("old", &["--kube-version=v1.8"][..]),
        ("new", &["--kube-version=v1.99.1"]),
        ("odd", &["--kube-version=latest"]),
        ("mode", &["--kube-version=v1.30", "--proxy-mode=userspace"]),
        (
            "nftables",
            &["--kube-version=v1.28", "--proxy-mode=nftables"],
        ),
        (
            "cidr",
            &["--kube-version=v1.30", "--cluster-cidr=10.244.0.0"],
        ),
        (
            "dual-stack",
            &[
                "--kube-version=v1.20",
                "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
            ],
        ),
        (
            "bit",
            &["--kube-version=v1.30", "--iptables-masquerade-bit=32"],
        ),
        ("node", &["--kube-version=v1.30", "--node=node-b"]),
        (
            "bridge-too-early",
            &[
                "--kube-version=v1.23",
                "--detect-local-mode=BridgeInterface",
                "--pod-bridge-interface=cni0",
            ],
        ),
        (
            "bridge",
            &[
                "--kube-version=v1.30",
                "--detect-local-mode=BridgeInterface",
            ],
        ),
    ] {
        insta::assert_snapshot!(name, refused_rules(OBJECTS, arguments));
    }
}

#[test]
fn rules_invalid_objects_report_location() {
    for (name, from, to) in [
        (
            "cluster-ip",
            "clusterIP: 10.96.0.10",
            "clusterIP: 10.96.0.300",
        ),
        (
            "endpoint",
            "addresses: [10.244.1.5]",
            "addresses: [10.244.1.x]",
        ),
        ("port", "nodePort: 30080", "nodePort: 300800"),
        (
            "service-cidr",
            "apiVersion: v1\nkind: Node\n",
            "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.1/16]}\n---\napiVersion: v1\nkind: Node\n",
        ),
        (
            "protocol",
            "{name: p, port: 80",
            "{name: p, protocol: ICMP, port: 80",
        ),
        ("yaml", "spec: {clusterIP: None", "spec: {clusterIP: [None"),
        ("no-node", "kind: Node", "kind: Nodes"),
    ] {
        assert!(OBJECTS.contains(from), "{from}");
        let text = OBJECTS.replacen(from, to, 1);
        insta::assert_snapshot!(name, refused_rules(&text, &["--kube-version=v1.30"]));
    }
}

/// Rules from v1.31 on count with nfacct objects, which must exist.
#[test]
fn lab_kube_proxy_1_36_counts_with_nfacct() {
    let (_directory, path) = write_lab(LAB.replacen("version: v1.30", "version: v1.36", 1));
    let output = run(&["run", "--kernel=host", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}
