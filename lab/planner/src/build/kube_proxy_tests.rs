//! Tests the problems of kube-proxy's configuration.

use std::time::Duration;

use crate::build::{PlanInput, StageInput, plan};
use crate::cluster::{self, ClusterInputs};
use svclab_diagnostic::source::{Source, Sources};
use svclab_scenario::Scenario;

const LAB: &str = "\
apiVersion: svclab/v1
kind: Lab
metadata: {name: lab}
spec:
  about: A kube-proxy without a bridge.
  kubeProxy: {version: v1.24, detectLocalMode: BridgeInterface}
  probes:
    call: {from: node-1, to: node-2:9}
  expect:
  - call: {refused: 1}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
status: {addresses: [{type: InternalIP, address: 192.168.51.12}]}
";

#[test]
fn kube_proxy_error_of_all_nodes_is_reported_once() {
    let source = Source::from_bytes("<test>", LAB.into()).expect("the text can be parsed");
    let (scenario, _) = Scenario::load(&Sources::from(source)).expect("the lab is valid");
    let case = &scenario.cases()[0];
    let nodes = case.objects.nodes.iter();
    let cluster = cluster::build(&ClusterInputs {
        has_dumps: false,
        spec: &case.spec,
        nodes: &nodes.map(|node| (*node.value).clone()).collect::<Vec<_>>(),
        pods: &[],
        services: &[],
        service_cidrs: &[],
        slices: &[],
    })
    .expect("the cluster is valid");
    let problems = plan(&PlanInput {
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
    .expect_err("the bridge is missing");
    let messages: Vec<&str> = problems
        .iter()
        .map(|problem| problem.message.as_str())
        .collect();
    assert_eq!(
        messages,
        ["kube-proxy: detectLocalMode BridgeInterface requires bridgeInterface"]
    );
}
