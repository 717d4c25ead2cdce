//! Writes a new lab: a client, a service, and one pod per node that answers.

use std::fmt::Write as _;
use std::num::NonZeroU8;

use svclab_model::plan::Mode;
use svclab_rules::kube_proxy::Version;

/// Properties of a new lab.
#[derive(Debug, Clone)]
pub struct NewLab {
    /// Name of the lab.
    pub name: String,
    /// Mode of kube-proxy.
    pub mode: Mode,
    /// Whether the service has a load balancer.
    pub load_balancer: bool,
    /// Number of nodes.
    pub nodes: NonZeroU8,
}

/// Writes a lab with comments that passes when it runs.
#[must_use]
pub fn new_lab(lab: &NewLab) -> String {
    let nodes = lab.nodes.get();
    let mut text = head(lab);
    for node in 1..=nodes {
        let _ = write!(
            text,
            "---
apiVersion: v1
kind: Node
metadata: {{name: node-{node}}}
spec: {{podCIDR: 10.244.{node}.0/24}}
status: {{addresses: [{{type: InternalIP, address: 172.18.0.{}}}]}}
",
            10 + u16::from(node)
        );
    }
    text += "---
# A pod without labels of a service is a client.
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec: {nodeName: node-1, containers: [{name: client}]}
status: {podIP: 10.244.1.9}
";
    for node in 1..=nodes {
        let _ = write!(
            text,
            "---
apiVersion: v1
kind: Pod
metadata: {{name: web-{node}, namespace: default, labels: {{app: web}}}}
spec: {{nodeName: node-{node}, containers: [{{name: web, ports: [{{containerPort: 8080}}]}}]}}
status: {{podIP: 10.244.{node}.10}}
"
        );
    }
    let (service_type, status) = if lab.load_balancer {
        (
            "LoadBalancer",
            "status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}\n",
        )
    } else {
        ("NodePort", "")
    };
    let _ = write!(
        text,
        "---
# Its endpoints are derived from the selector and the pods.
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: default}}
spec:
  type: {service_type}
  clusterIP: 10.96.0.10
  selector: {{app: web}}
  ports: [{{port: 80, targetPort: 8080, nodePort: 30080}}]
{status}"
    );
    text
}

/// Writes the lab document.
fn head(lab: &NewLab) -> String {
    let NewLab { name, mode, .. } = lab;
    let version = Version::NEWEST;
    let (balancers, probe, row) = if lab.load_balancer {
        (
            "  # A load balancer in front of the nodes. It has the addresses in the service's status.
  loadBalancers:
    cloud: {service: default/web}
",
            "    balancer: {from: laptop, to: \"lb/default/web:80\", connections: 4}\n",
            "    balancer: {connected: 4}\n",
        )
    } else {
        ("", "", "")
    };
    format!(
        "# Run this lab with `svclab run {name}.yaml`. `svclab explain {name}.yaml` prints the way of
# every packet, and `svclab schema` describes every field.
apiVersion: svclab/v1
kind: Lab
metadata: {{name: {name}}}
spec:
  about: A pod and an external host connect to a service.
  kubeProxy: {{version: {version}, mode: {mode}, clusterCIDR: 10.244.0.0/16}}
  # All nodes are on one bridge. With `routed`, each is in a subnet of its own.
  fabric: {{type: switched}}
  # Hosts outside the cluster.
  hosts:
    laptop: {{address: 203.0.113.9/24}}
{balancers}  # Connections. Sources are pods, nodes and hosts. Targets are names or addresses, with a port.
  probes:
    cluster-ip: {{from: pod/default/client, to: \"service/default/web:80\", connections: 4}}
    node-port: {{from: laptop, to: \"node-1:30080\", connections: 4}}
{probe}  # Each value of an axis makes a case, with these patches of the objects or of the lab.
  axes:
    policy:
      Cluster: []
      Local:
      - {{patch: Service/default/web, merge: {{spec: {{externalTrafficPolicy: Local}}}}}}
  # Expectations: the first row whose `when` matches a case applies to that case.
  expect:
  - when: {{policy: Local}}
    cluster-ip: {{connected: 4, seenSource: pod/default/client}}
    # With this policy, a node answers with its own pods only, and keeps the source.
    node-port: {{connected: 4, endpoints: [web-1], seenSource: laptop}}
{row}  - when: {{}}
    cluster-ip: {{connected: 4, seenSource: pod/default/client}}
    node-port: {{connected: 4}}
{row}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use svclab_diagnostic::source::Source;

    #[test]
    fn new_labs_load_without_warnings() {
        for mode in [Mode::Iptables, Mode::Ipvs, Mode::Nftables] {
            for (load_balancer, nodes) in [(false, 1), (true, 3), (false, 200)] {
                let text = new_lab(&NewLab {
                    name: "mine".to_owned(),
                    mode,
                    load_balancer,
                    nodes: NonZeroU8::new(nodes).unwrap(),
                });
                let loaded = Scenario::load(&Source::from_text("mine.yaml", text).into());
                let (scenario, warnings) = loaded.expect("a valid lab");
                assert_eq!(warnings, []);
                assert_eq!(scenario.cases().len(), 2);
            }
        }
    }

    #[test]
    fn new_lab_has_comments() {
        insta::assert_snapshot!(new_lab(&NewLab {
            name: "mine".to_owned(),
            mode: Mode::Iptables,
            load_balancer: true,
            nodes: NonZeroU8::new(2).unwrap(),
        }));
    }
}
