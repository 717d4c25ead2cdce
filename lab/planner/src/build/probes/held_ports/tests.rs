//! Tests which ports each version of kube-proxy holds, and on which addresses.

use std::time::Duration;

use crate::build::{PlanInput, StageInput, plan};
use crate::cluster::{self, ClusterInputs};
use svclab_diagnostic::source::{Source, Sources};
use svclab_model::plan::ServerKind;
use svclab_scenario::Scenario;
use svclab_scenario::objects::Object;

/// A lab with one node and one service.
struct PortsLab {
    /// Fields of `kubeProxy`.
    proxy: &'static str,
    /// Addresses of the node.
    addresses: &'static [&'static str],
    /// Fields of the service spec, except its ports.
    service: &'static str,
    /// Ports of the service.
    ports: &'static str,
    /// Further objects of the lab.
    objects: &'static str,
}

const LAB: PortsLab = PortsLab {
    proxy: "version: v1.23",
    addresses: &["192.168.50.11"],
    service: "clusterIP: 10.96.0.10",
    ports: "{port: 80, nodePort: 30080}",
    objects: "",
};

impl PortsLab {
    fn yaml(&self) -> String {
        let Self {
            proxy,
            service,
            ports,
            objects,
            ..
        } = self;
        let addresses: Vec<String> = self
            .addresses
            .iter()
            .map(|address| format!("{{type: InternalIP, address: \"{address}\"}}"))
            .collect();
        let addresses = addresses.join(", ");
        format!(
            "\
apiVersion: svclab/v1
kind: Lab
metadata: {{name: lab}}
spec:
  about: Held node ports.
  kubeProxy: {{{proxy}}}
  hosts:
    laptop: {{address: 203.0.113.9/24}}
  probes:
    call: {{from: host/laptop, to: node-1:9}}
  expect:
  - call: {{refused: 1}}
---
apiVersion: v1
kind: Node
metadata: {{name: node-1}}
status: {{addresses: [{addresses}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: default}}
spec: {{type: NodePort, selector: {{app: none}}, {service}, ports: [{ports}]}}
{objects}"
        )
    }

    /// Returns the held ports of the node as address, protocol and port.
    fn held_ports(&self) -> Vec<String> {
        let source =
            Source::from_bytes("<test>", self.yaml().into()).expect("the text can be parsed");
        let (scenario, _) = Scenario::load(&Sources::from(source)).expect("the lab is valid");
        let case = &scenario.cases()[0];
        let nodes = values(&case.objects.nodes);
        let pods = values(&case.objects.pods);
        let services = values(&case.objects.services);
        let slices = values(&case.objects.endpoint_slices);
        let cluster = cluster::build(&ClusterInputs {
            has_dumps: false,
            spec: &case.spec,
            nodes: &nodes,
            pods: &pods,
            services: &services,
            service_cidrs: &[],
            slices: &slices,
        })
        .expect("the cluster is valid");
        let (plan, _) = plan(&PlanInput {
            case: &case.id,
            stages: &[StageInput {
                step: None,
                cluster: &cluster,
                probes: &case.spec.probes,
            }],
            row: case.expected(),
            row_index: case.row,
            max_wait: Duration::from_secs(1).into(),
        })
        .expect("the plan can be built");
        let mut ports: Vec<String> = plan
            .servers
            .iter()
            .filter(|server| server.kind == ServerKind::ListenOnly)
            .map(|server| {
                assert_eq!(server.namespace, "node-1");
                let address = server.address.expect("a held port has an address");
                format!("{address} {} {}", server.protocol, server.port)
            })
            .collect();
        ports.sort();
        ports
    }
}

fn values<T: Clone>(objects: &[Object<T>]) -> Vec<T> {
    objects
        .iter()
        .map(|object| (*object.value).clone())
        .collect()
}

#[test]
fn held_ports_up_to_1_23_node_ports_on_all_addresses() {
    for (proxy, held) in [
        ("version: v1.9", vec!["0.0.0.0 tcp 30080"]),
        ("version: v1.23", vec!["0.0.0.0 tcp 30080"]),
        ("version: v1.23, mode: ipvs", vec!["0.0.0.0 tcp 30080"]),
        ("version: v1.24", vec![]),
    ] {
        assert_eq!(PortsLab { proxy, ..LAB }.held_ports(), held, "{proxy}");
    }
}

#[test]
fn held_ports_udp_is_held_sctp_is_not() {
    let lab = PortsLab {
        ports: "{name: t, port: 80, nodePort: 30080}, \
                {name: u, port: 80, nodePort: 30080, protocol: UDP}, \
                {name: s, port: 80, nodePort: 30080, protocol: SCTP}",
        ..LAB
    };
    assert_eq!(lab.held_ports(), ["0.0.0.0 tcp 30080", "0.0.0.0 udp 30080"]);
}

#[test]
fn held_ports_from_1_11_follow_node_port_addresses() {
    for (proxy, held) in [
        (
            "version: v1.10, nodePortAddresses: [192.168.50.0/24]",
            vec!["0.0.0.0 tcp 30080"],
        ),
        (
            "version: v1.11, nodePortAddresses: [192.168.50.0/24]",
            vec!["192.168.50.11 tcp 30080"],
        ),
        (
            "version: v1.23, nodePortAddresses: [192.168.0.0/16, 127.0.0.0/8]",
            vec!["127.0.0.1 tcp 30080", "192.168.50.11 tcp 30080"],
        ),
        (
            "version: v1.23, nodePortAddresses: [192.168.0.0/16, 0.0.0.0/0]",
            vec!["0.0.0.0 tcp 30080"],
        ),
        ("version: v1.23, nodePortAddresses: [10.9.0.0/16]", vec![]),
    ] {
        assert_eq!(PortsLab { proxy, ..LAB }.held_ports(), held, "{proxy}");
    }
}

#[test]
fn held_ports_external_ip_of_node_is_held() {
    for proxy in ["version: v1.23", "version: v1.23, mode: ipvs"] {
        let lab = PortsLab {
            proxy,
            service: "clusterIP: 10.96.0.10, externalIPs: [192.168.50.11, 198.51.100.7]",
            ports: "{port: 80}",
            ..LAB
        };
        // In ipvs mode, kube-proxy itself binds both addresses; 198.51.100.7 does not count as the
        // node's own.
        assert_eq!(lab.held_ports(), ["192.168.50.11 tcp 80"], "{proxy}");
    }
}

#[test]
fn held_ports_dual_stack_service_holds_both_families() {
    let lab = PortsLab {
        addresses: &["192.168.50.11", "2001:db8::11"],
        service: "clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, \"fd00::10\"], \
                  ipFamilies: [IPv4, IPv6]",
        ..LAB
    };
    assert_eq!(lab.held_ports(), ["0.0.0.0 tcp 30080", ":: tcp 30080"]);
    let single_stack = PortsLab {
        service: "clusterIP: 10.96.0.10",
        ..lab
    };
    assert_eq!(single_stack.held_ports(), ["0.0.0.0 tcp 30080"]);
}

#[test]
fn held_ports_host_network_pod_port_is_skipped() {
    let lab = PortsLab {
        ports: "{name: a, port: 80, nodePort: 30080}, {name: b, port: 81, nodePort: 30081}",
        objects: "\
---
apiVersion: v1
kind: Pod
metadata: {name: squatter, namespace: default}
spec: {nodeName: node-1, hostNetwork: true, containers: [{name: c, ports: [{containerPort: 30080}]}]}
",
        ..LAB
    };
    assert_eq!(lab.held_ports(), ["0.0.0.0 tcp 30081"]);
}
