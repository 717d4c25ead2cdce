//! Tests `svclab bisect` and `svclab explain` with a load balancer that checks health.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::SVCLAB;

/// Lab in which a service is reached through a route, or through a load balancer that replaces the
/// source of the client.
const LAB: &str = r#"apiVersion: svclab/v1
kind: Lab
metadata: {name: balancer}
spec:
  about: A service behind a route or behind a load balancer.
  kubeProxy: {version: v1.34, mode: iptables, clusterCIDR: 10.244.0.0/16}
  fabric: {type: routed}
  hosts:
    laptop: {address: 198.51.100.9/24}
  probes:
    call: {from: host/laptop, to: "lb/default/front:80", connections: 2}
  axes:
    edge:
      route:
      - {patch: Lab, merge: {spec: {fabric: {routes: [{to: 203.0.113.64/26, via: node-1}]}}}}
      balancer:
      - {patch: Lab, merge: {spec: {loadBalancers: {edge: {service: default/front, healthCheck: {}, keepSource: false}}}}}
  expect:
  - call: {connected: 2, endpoints: [front], seenSource: laptop}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.244.1.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.1.11}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
spec: {podCIDR: 10.244.2.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.2.12}]}
---
apiVersion: v1
kind: Pod
metadata: {name: front, namespace: default, labels: {app: front}}
spec: {nodeName: node-1, containers: [{name: front, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.244.1.12}
---
apiVersion: v1
kind: Service
metadata: {name: front, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.14
  externalTrafficPolicy: Local
  healthCheckNodePort: 32001
  selector: {app: front}
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30081}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.71}]}}
"#;

/// Runs a command in the directory of the lab, and returns its JSON.
fn run(arguments: &[&str]) -> Value {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("balancer.yaml"), LAB).expect("a file");
    let output = Command::new(SVCLAB)
        .current_dir(directory.path())
        .args(arguments)
        .args(["--kernel=6.12", "--format=json"])
        .output()
        .expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Trials without the virtual server have no backend that a health check could exclude.
#[test]
fn bisect_balancer_with_health_checks_finds_its_masquerading() {
    let found = run(&[
        "bisect",
        "--good=balancer.yaml/edge=route",
        "--bad=balancer.yaml/edge=balancer",
    ]);
    assert_eq!(found["symptom"]["detail"], "source", "{found:#}");
    let groups = found["breaks"].as_array().expect("a list").iter();
    let mut differences = groups.flat_map(|group| group.as_array().expect("a list"));
    let is_masquerading = |difference: &Value| {
        let rule = difference["bad"].as_str().unwrap_or_default();
        difference["namespace"] == "fabric" && rule.ends_with("-j MASQUERADE")
    };
    assert!(differences.any(is_masquerading), "{found:#}");
}

#[test]
fn explain_balancer_that_replaces_source_is_named() {
    let found = run(&["explain", "balancer.yaml/edge=balancer"]);
    let connection = &found["cases"][0]["stages"][0]["connections"][0];
    let conclusion = connection["conclusion"].to_string();
    let expected = "the load balancer edge chose the backend node-1, with the source 192.168.1.1:";
    assert!(
        conclusion.contains(expected) && conclusion.contains("(`keepSource`)"),
        "{connection:#}"
    );
}
