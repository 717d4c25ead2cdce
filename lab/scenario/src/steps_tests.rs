//! Tests of labs with steps: the state of a case after each step, and the diagnostics of invalid
//! steps.

use super::Scenario;
use super::example_tests::{EXAMPLE, told};
use svclab_diagnostic::source::{Source, Sources};

/// Valid lab with two steps.
const STEPPED: &str = r#"apiVersion: svclab/v1
kind: Lab
metadata: {name: example}
spec:
  about: A pod leaves while somebody is connected to it.
  kubeProxy: {version: v1.30, clusterCIDR: 10.244.0.0/16}
  probes:
    call: {from: pod/default/client, to: "service/default/web:80"}
    stay: {from: pod/default/client, to: "service/default/web:80", across: leaves}
  steps:
  - name: leaves
    change:
    - {terminate: Pod/default/web}
    probes:
      callLeaving: {from: pod/default/client, to: "service/default/web:80"}
  - name: gone
    change:
    - {delete: Pod/default/web}
    - {patch: Lab, merge: {spec: {nodes: {node-1: {sysctls: {net.ipv4.ip_forward: 1}}}}}}
    probes:
      callGone: {from: pod/default/client, to: "service/default/web:80"}
  expect:
  - call: {connected: 1}
    stay: {connected: 1}
    callLeaving: {connected: 1}
    callGone: {refused: 1}
    steps: {gone: {within: 2s}}
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
spec: {nodeName: node-1, containers: [{name: client}]}
status: {podIP: 10.244.1.9}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: web, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.244.1.10}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.10
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"#;

/// Replaces one part of the lab.
fn with(part: &str, replacement: &str) -> String {
    assert!(STEPPED.contains(part), "{part} is not in the lab");
    STEPPED.replacen(part, replacement, 1)
}

#[test]
fn a_case_is_another_after_each_step() {
    let source = Source::from_bytes("example.yaml", STEPPED.into()).expect("a source");
    let (scenario, warnings) = Scenario::load(&Sources::from(source)).expect("a lab");
    assert_eq!(warnings, []);
    let case = &scenario.cases()[0];
    let conditions = |at: Option<usize>| {
        let case = match at {
            None => case.clone(),
            Some(at) => case.after(at).expect("there is such a step"),
        };
        let slice = case
            .objects
            .slices_of("default", "web")
            .next()?
            .value
            .clone();
        let endpoint = slice.endpoints.as_ref()?.first()?.clone();
        let conditions = endpoint.conditions?;
        Some((conditions.ready, conditions.serving, conditions.terminating))
    };
    let [yes, no] = [Some(true), Some(false)];
    assert_eq!(conditions(None), Some((yes, yes, no)));
    assert_eq!(conditions(Some(0)), Some((no, yes, yes)));
    assert_eq!(conditions(Some(1)), None);
    let forwards = |at: usize| {
        let case = case.after(at).expect("there is such a step");
        let node = case.spec.nodes.get("node-1").cloned();
        node.is_some_and(|node| node.sysctls.contains_key("net.ipv4.ip_forward"))
    };
    assert!(!forwards(0) && forwards(1));
    assert!(case.after(2).is_none());
}

#[test]
fn the_schema_takes_what_the_reader_takes() {
    let schema = jsonschema::validator_for(super::schema::lab().as_value()).expect("a schema");
    let source = Source::from_bytes("x", STEPPED.into()).expect("a source");
    let trees =
        super::yaml::parse(&source, svclab_diagnostic::source::FileId::default()).expect("YAML");
    let lab: serde_json::Value = super::decode::strict(&trees[0]).expect("JSON");
    assert!(schema.is_valid(&lab));
    for (at, value) in [
        ("/spec/steps/0/change/0/terminate", 7.into()),
        ("/spec/steps/0/name", serde_json::Value::Null),
        ("/spec/expect/0/steps/gone/within", 2.into()),
        ("/spec/probes/stay/across", 1.into()),
    ] {
        let mut lab = lab.clone();
        *lab.pointer_mut(at).expect("it is there") = value;
        assert!(!schema.is_valid(&lab), "{at}");
    }
}

macro_rules! wrong {
    ($($name:ident: $part:expr => $replacement:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(told(&with($part, $replacement)));
        }
    )*};
}

wrong! {
    step_for_nobody: "delete: Pod/default/web}" => "delete: Pod/default/wed}";
    step_for_who_is_gone: "- {terminate: Pod/default/web}" => "- {delete: Pod/default/web}";
    step_that_terminates_twice: "- {delete: Pod/default/web}" => "- {terminate: Pod/default/web}";
    step_that_terminates_a_service: "terminate: Pod/default/web" => "terminate: Service/default/web";
    step_without_change: "    change:\n    - {terminate: Pod/default/web}\n" => "    change: []\n";
    step_that_changes_probes: "merge: {spec: {nodes:" => "merge: {spec: {probes: {}, nodes:";
    step_that_changes_expectations: "merge: {spec: {nodes:" => "merge: {spec: {expect: [], nodes:";
    two_steps_of_a_name: "- name: gone" => "- name: leaves";
    step_of_no_name: "- name: gone" => "- name: now it is\n    change: [{delete: Pod/default/client}]\n  - name: gone";
    two_probes_of_a_name: "      callGone: {from" => "      call: {from: pod/default/client, to: pod/default/web}\n      callGone: {from";
    probe_of_a_step_called_steps: "      callLeaving: {from" => "      steps: {from: pod/default/client, to: pod/default/web}\n      callLeaving: {from";
    across_no_step: "across: leaves" => "across: leave";
    across_the_step_it_belongs_to: "callGone: {from: pod/default/client," => "callGone: {across: gone, from: pod/default/client,";
    ping_across_a_step: "to: \"service/default/web:80\", across: leaves" => "to: pod/default/web, protocol: ping, across: leaves";
    across_and_after: "across: leaves" => "across: leaves, after: call";
    after_what_stays_open: "call: {from: pod/default/client," => "call: {after: stay, from: pod/default/client,";
    after_what_is_tried_before_the_step: "callGone: {from" => "callGone: {after: call, from";
    expectation_of_no_step: "steps: {gone: {within" => "steps: {gon: {within";
    expectation_that_is_no_time: "within: 2s" => "within: soon";
    expectation_within_a_year: "within: 2s" => "within: 1y";
    expectation_of_nothing: "{within: 2s}" => "{}";
    probe_of_a_step_that_nobody_has: "    callGone: {refused: 1}" => "    calGone: {refused: 1}";
    step_with_two_changes_in_one: "{terminate: Pod/default/web}" => "{terminate: Pod/default/web, delete: Pod/default/web}";
}

#[test]
fn an_axis_may_have_a_pod_terminate() {
    let axis =
        |pod: &str| format!("  axes: {{web: {{leaves: [{{terminate: {pod}}}]}}}}\n  steps:\n");
    let without = STEPPED.replace(
        "- {terminate: Pod/default/web}",
        "- {delete: Pod/default/web}",
    );
    let without = without.replacen(
        "    - {delete: Pod/default/web}\n    - {patch: Lab",
        "    - {patch: Lab",
        1,
    );
    assert_eq!(
        told(&without.replace("  steps:\n", &axis("Pod/default/web"))),
        ""
    );
    let nobody = told(&without.replace("  steps:\n", &axis("Pod/default/wed")));
    assert!(
        nobody.contains("there is no Pod/default/wed to patch"),
        "{nobody}"
    );
}

#[test]
fn steps_are_no_part_of_an_axis() {
    let text = EXAMPLE.replace("merge: {spec: {nodes:", "merge: {spec: {steps: [], nodes:");
    assert!(told(&text).contains("a patch cannot change the lab's `steps`"));
}
