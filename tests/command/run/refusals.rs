//! Tests that the number of refused connections does not depend on timing. The kernels of a lab do
//! not limit ICMP errors, unless the lab sets a limit.

use crate::support::{run, stderr, stdout, write_lab};

/// More connections from one pod than a kernel refuses at once: 6 to one destination, and 50 in
/// total.
const LAB: &str = "\
apiVersion: svclab/v1
kind: Lab
metadata: {name: lab}
spec:
  about: A service without endpoints.
  kubeProxy: {version: v1.36, mode: nftables, clusterCIDR: 10.244.0.0/16}
  probes:
    call: {from: pod/default/client, to: 'service/default/none:80', connections: 80}
    datagram: {from: pod/default/client, to: 'service/default/none:80', protocol: udp, connections: 80}
    closed: {from: node-1, to: pod/default/client:9999, protocol: udp, connections: 80}
  axes:
    mode:
      nftables: []
      iptables:
      - {patch: Lab, merge: {spec: {kubeProxy: {mode: iptables}}}}
    limit:
      none: []
      # One in half an hour.
      some:
      - {patch: Lab, merge: {spec: {nodes: {node-1: {sysctls: {net.ipv4.icmp_ratelimit: 1800000}}}}}}
  expect:
  - when: {limit: none}
    call: {refused: 80}
    datagram: {refused: 80}
    closed: {refused: 80}
  - when: {limit: some}
    call: {timeout: 80}
    datagram: {timeout: 80}
    closed: {refused: 80}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.244.1.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec: {nodeName: node-1, containers: [{name: c}]}
status: {podIP: 10.244.1.10}
---
apiVersion: v1
kind: Service
metadata: {name: none, namespace: default}
spec:
  clusterIP: 10.96.0.10
  selector: {app: none}
  ports:
  - {name: t, port: 80}
  - {name: u, port: 80, protocol: UDP}
";

#[test]
fn probe_many_connections_are_all_refused_without_limit() {
    let (_directory, path) = write_lab(LAB);
    let output = run(&["run", "--kernel=host", &path.display().to_string()]);
    let output_text = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{output_text}");
}
