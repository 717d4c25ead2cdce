//! Tests of labs with steps: the state of a case after each step, and the diagnostics of invalid
//! steps.

use crate::Scenario;
use crate::tests::example::{EXAMPLE, load_diagnostics};
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
fn steps_with(part: &str, replacement: &str) -> String {
    assert!(STEPPED.contains(part), "{part} is not in the lab");
    STEPPED.replacen(part, replacement, 1)
}

#[test]
fn case_stage_after_each_step_has_its_changes() {
    let source = Source::from_bytes("example.yaml", STEPPED.into()).expect("a source");
    let (scenario, warnings) = Scenario::load(&Sources::from(source)).expect("a lab");
    assert_eq!(warnings, []);
    let stages: Vec<_> = scenario.cases()[0].stages().collect();
    assert_eq!(stages.len(), 3);
    let conditions = |stage: usize| {
        let slice = stages[stage]
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
    assert_eq!(conditions(0), Some((yes, yes, no)));
    assert_eq!(conditions(1), Some((no, yes, yes)));
    assert_eq!(conditions(2), None);
    let forwards = |stage: usize| {
        let node = stages[stage].spec.nodes.get("node-1");
        node.is_some_and(|node| node.sysctls.contains_key("net.ipv4.ip_forward"))
    };
    assert!(!forwards(1) && forwards(2));
}

#[test]
fn schema_accepts_lab_with_steps() {
    let schema =
        jsonschema::validator_for(crate::lab::schema::lab_schema().as_value()).expect("a schema");
    let source = Source::from_bytes("x", STEPPED.into()).expect("a source");
    let trees =
        crate::yaml::parse(&source, svclab_diagnostic::source::FileId::default()).expect("YAML");
    let lab: serde_json::Value = crate::decode::strict(&trees[0]).expect("JSON");
    assert!(schema.is_valid(&lab));
    for (pointer, value) in [
        ("/spec/steps/0/change/0/terminate", 7.into()),
        ("/spec/steps/0/name", serde_json::Value::Null),
        ("/spec/expect/0/steps/gone/within", 2.into()),
        ("/spec/probes/stay/across", 1.into()),
    ] {
        let mut lab = lab.clone();
        *lab.pointer_mut(pointer).expect("the pointer exists") = value;
        assert!(!schema.is_valid(&lab), "{pointer}");
    }
}

macro_rules! refused_labs {
    ($($name:ident: $part:expr => $replacement:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(load_diagnostics(&steps_with($part, $replacement)));
        }
    )*};
}

refused_labs! {
    step_for_unknown_object_is_refused: "delete: Pod/default/web}" => "delete: Pod/default/wed}";
    step_for_deleted_object_is_refused: "- {terminate: Pod/default/web}" => "- {delete: Pod/default/web}";
    second_termination_is_refused: "- {delete: Pod/default/web}" => "- {terminate: Pod/default/web}";
    termination_of_service_is_refused: "terminate: Pod/default/web" => "terminate: Service/default/web";
    step_without_change_is_refused: "    change:\n    - {terminate: Pod/default/web}\n" => "    change: []\n";
    step_that_changes_probes_is_refused: "merge: {spec: {nodes:" => "merge: {spec: {probes: {}, nodes:";
    step_that_changes_expectations_is_refused: "merge: {spec: {nodes:" => "merge: {spec: {expect: [], nodes:";
    duplicate_step_name_is_refused: "- name: gone" => "- name: leaves";
    invalid_step_name_is_refused: "- name: gone" => "- name: now it is\n    change: [{delete: Pod/default/client}]\n  - name: gone";
    duplicate_probe_name_is_refused: "      callGone: {from" => "      call: {from: pod/default/client, to: pod/default/web}\n      callGone: {from";
    step_probe_named_steps_is_refused: "      callLeaving: {from" => "      steps: {from: pod/default/client, to: pod/default/web}\n      callLeaving: {from";
    across_unknown_step_is_refused: "across: leaves" => "across: leave";
    across_own_step_is_refused: "callGone: {from: pod/default/client," => "callGone: {across: gone, from: pod/default/client,";
    ping_across_step_is_refused: "to: \"service/default/web:80\", across: leaves" => "to: pod/default/web, protocol: ping, across: leaves";
    across_with_after_is_refused: "across: leaves" => "across: leaves, after: call";
    after_open_probe_is_refused: "call: {from: pod/default/client," => "call: {after: stay, from: pod/default/client,";
    after_probe_of_earlier_stage_is_refused: "callGone: {from" => "callGone: {after: call, from";
    expectation_for_unknown_step_is_refused: "steps: {gone: {within" => "steps: {gon: {within";
    step_within_without_duration_is_refused: "within: 2s" => "within: soon";
    step_within_one_year_is_refused: "within: 2s" => "within: 1y";
    empty_step_expectation_is_refused: "{within: 2s}" => "{}";
    expectation_for_unknown_step_probe_is_refused: "    callGone: {refused: 1}" => "    calGone: {refused: 1}";
    patch_with_two_changes_is_refused: "{terminate: Pod/default/web}" => "{terminate: Pod/default/web, delete: Pod/default/web}";
}

#[test]
fn axis_that_terminates_pod_loads() {
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
        load_diagnostics(&without.replace("  steps:\n", &axis("Pod/default/web"))),
        ""
    );
    let diagnostics = load_diagnostics(&without.replace("  steps:\n", &axis("Pod/default/wed")));
    assert!(
        diagnostics.contains("unknown object Pod/default/wed"),
        "{diagnostics}"
    );
}

#[test]
fn axis_that_patches_steps_is_refused() {
    let text = EXAMPLE.replace("merge: {spec: {nodes:", "merge: {spec: {steps: [], nodes:");
    assert!(load_diagnostics(&text).contains("a patch cannot change `steps` of the lab"));
}
