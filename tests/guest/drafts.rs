//! Runs the labs that `svclab new` writes for IPVS and load balancers.

use std::path::Path;
use std::process::{Command, Output};

use crate::SVCLAB;

fn run_in(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(SVCLAB)
        .current_dir(directory)
        .env("NO_COLOR", "1")
        .args(arguments)
        .output()
        .expect("the command starts")
}

/// Checks that the run of `name` succeeded with this summary.
fn assert_passed(output: &Output, summary: &str, name: &str) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {text}{errors}");
    assert!(text.contains(summary), "{name}: {text}");
}

#[test]
fn new_lab_with_ipvs_or_balancer_passes_in_every_guest() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, options) in [
        ("ipvs", &["--mode=ipvs"][..]),
        ("balancer", &["--load-balancer"]),
        ("both", &["--load-balancer", "--mode=ipvs", "--nodes=1"]),
    ] {
        let new = [&["new", name][..], options].concat();
        assert!(run_in(directory.path(), &new).status.success(), "{name}");
        for kernel in ["6.1", "6.12"] {
            let file = format!("{name}.yaml");
            let output = run_in(directory.path(), &["run", "--kernel", kernel, &file]);
            assert_passed(&output, "0 failed, 0 errors", name);
        }
    }
}

/// Objects of a cluster with both families and a load balancer that has an address of each.
const DUAL_STACK: &str = r#"apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24, "fd00:10:244:1::/64"]}
status: {addresses: [{type: InternalIP, address: 172.18.1.1}, {type: InternalIP, address: "fd00:172:1::1"}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
spec: {podCIDR: 10.244.2.0/24, podCIDRs: [10.244.2.0/24, "fd00:10:244:2::/64"]}
status: {addresses: [{type: InternalIP, address: 172.18.2.1}, {type: InternalIP, address: "fd00:172:2::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: node-2, containers: [{name: main}]}
status: {phase: Running, podIP: 10.244.2.7, podIPs: [{ip: 10.244.2.7}, {ip: "fd00:10:244:2::7"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1, "fd00:96::1"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 192.0.2.50}, {ip: "2001:db8:5::5"}]}}
"#;

/// The balancer has health checks, and both of its addresses keep the source of the client.
#[test]
fn imported_balancer_of_both_families_passes_in_guest() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("objects.yaml"), DUAL_STACK).expect("written");
    let ipv6_only = DUAL_STACK.replace("192.0.2.50}, {ip: ", "");
    std::fs::write(directory.path().join("ipv6.yaml"), ipv6_only).expect("written");
    for (objects, mode, options) in [
        ("objects.yaml", "iptables", "healthCheck: {}"),
        ("objects.yaml", "ipvs", "keepSource: false"),
        ("objects.yaml", "nftables", "target: pods"),
        (
            "ipv6.yaml",
            "iptables",
            "securityGroup: {allow: [\"2001:db8:9::/64\"]}",
        ),
    ] {
        let import = ["import", objects, "--mode", mode, "--output", "lab.yaml"];
        let output = run_in(directory.path(), &import);
        assert!(output.status.success(), "{output:?}");
        let file = directory.path().join("lab.yaml");
        let lab = std::fs::read_to_string(&file).expect("the lab");
        let balancer = "{service: shop/web}";
        assert!(
            lab.contains(balancer) && lab.contains("[2001:db8:5::5]") || objects == "ipv6.yaml",
            "{lab}"
        );
        let lab = lab.replace(balancer, &format!("{{service: shop/web, {options}}}"));
        std::fs::write(&file, lab).expect("written");
        let output = run_in(directory.path(), &["run", "--kernel", "6.12", "lab.yaml"]);
        assert_passed(&output, "1 passed, 0 failed, 0 errors", options);
        std::fs::remove_file(&file).expect("the lab is removed");
    }
}
