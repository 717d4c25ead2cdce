//! Up to v1.23, kube-proxy listens on every node port: a connection that no rule matches reaches
//! kube-proxy itself, which never answers.

use crate::support::{run, stderr, stdout, write_lab};

/// A rule before kube-proxy's accepts the packets, so that none of its rules matches.
const LAB: &str = "\
apiVersion: svclab/v1
kind: Lab
metadata: {name: lab}
spec:
  about: A node port whose rules no packet reaches.
  kubeProxy: {version: v1.23}
  nodes:
    node-1: {byHand: {iptables: ['*nat', '-I PREROUTING -j ACCEPT']}}
  hosts:
    laptop: {address: 203.0.113.9/24}
  probes:
    call: {from: host/laptop, to: node-1:30080, maxWait: 500ms}
    datagram: {from: host/laptop, to: node-1:30080, protocol: udp, maxWait: 500ms}
  axes:
    version:
      v1.23: []
      v1.24:
      - {patch: Lab, merge: {spec: {kubeProxy: {version: v1.24}}}}
  expect:
  - when: {version: v1.23}
    call: {silent: 1}
    datagram: {timeout: 1}
  - when: {version: v1.24}
    call: {refused: 1}
    datagram: {refused: 1}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.244.1.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: c, ports: [{containerPort: 8080}, {containerPort: 8080, protocol: UDP}]}]}
status: {podIP: 10.244.1.10}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  selector: {app: web}
  ports:
  - {name: t, port: 80, targetPort: 8080, nodePort: 30080}
  - {name: u, port: 80, protocol: UDP, targetPort: 8080, nodePort: 30080}
";

#[test]
fn node_port_without_matching_rule_reaches_kube_proxy() {
    let (_directory, path) = write_lab(LAB);
    let output = run(&["run", "--kernel=host", &path.display().to_string()]);
    let output_text = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{output_text}");
}
