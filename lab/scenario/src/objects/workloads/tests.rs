use std::fmt::Write as _;

use crate::Scenario;
use crate::tests::example::load_diagnostics;
use svclab_diagnostic::source::Source;

/// Lab with two nodes and a control plane.
const LAB: &str = r#"apiVersion: svclab/v1
kind: Lab
metadata: {name: workloads}
spec:
  about: A host connects to a service whose pods svclab writes.
  hosts: {laptop: {address: 203.0.113.9/24}}
  probes: {call: {from: laptop, to: "10.96.0.10:80"}}
  expect: [{when: {}, call: any}]
---
apiVersion: v1
kind: Node
metadata: {name: control, labels: {disk: ssd}}
spec:
  podCIDR: 10.244.0.0/24
  taints: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]
status: {addresses: [{type: InternalIP, address: 192.168.1.10}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDRs: [10.244.1.0/24, "fd00:1::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.1.11}, {type: InternalIP, address: "fd00::11"}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2, labels: {disk: ssd}}
spec: {podCIDR: 10.244.2.0/29}
status: {addresses: [{type: InternalIP, address: 192.168.1.12}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
"#;

/// Returns a workload with the labels of the service. `spec` and `pod` are further fields, each
/// with a comma before it.
fn workload(kind: &str, name: &str, spec: &str, pod: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  \
         {{selector: {{matchLabels: {{app: web}}}}{spec}, template: {{metadata: {{labels: {{app: web}}}}, \
         spec: {{containers: [{{name: web, ports: [{{name: http, containerPort: 8080}}]}}]{pod}}}}}}}\n"
    )
}

fn lab_with(objects: &[String]) -> String {
    format!("{LAB}{}", objects.concat())
}

/// Returns the pods and endpoints of a lab, and its diagnostics.
fn pods(objects: &[String]) -> String {
    let text = lab_with(objects);
    let mut seen = load_diagnostics(&text);
    if !seen.is_empty() {
        seen.push('\n');
    }
    let source = Source::from_text("workloads.yaml", text);
    let Ok((scenario, _)) = Scenario::load(&source.into()) else {
        return seen;
    };
    let case = &scenario.cases()[0];
    for line in case.made_objects() {
        let _ = writeln!(seen, "{line}");
    }
    for slice in &case.objects.endpoint_slices {
        for endpoint in slice.value.endpoints.iter().flatten() {
            let _ = writeln!(
                seen,
                "endpoint of {}: {}",
                slice.name,
                endpoint.addresses.join(", ")
            );
        }
    }
    seen
}

#[test]
fn deployment_pods_are_spread_over_nodes_in_order() {
    insta::assert_snapshot!(pods(&[workload("Deployment", "web", ", replicas: 3", "")]));
}

#[test]
fn stateful_set_pods_have_ordinals_and_labels() {
    let sets = [workload(
        "StatefulSet",
        "db",
        ", replicas: 2, ordinals: {start: 5}",
        "",
    )];
    insta::assert_snapshot!(pods(&sets));
    let source = Source::from_text("x", lab_with(&sets));
    let (scenario, _) = Scenario::load(&source.into()).expect("a lab");
    let pod = scenario.cases()[0]
        .objects
        .pod("default", "db-6")
        .expect("a pod");
    let labels = pod.value.metadata.labels.as_ref().expect("labels");
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "db-6");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "6");
}

#[test]
fn daemon_set_has_one_pod_on_each_node() {
    insta::assert_snapshot!(pods(&[
        workload(
            "DaemonSet",
            "agent",
            "",
            ", tolerations: [{operator: Exists}]"
        ),
        workload("DaemonSet", "other", "", ""),
    ]));
}

#[test]
fn replicas_default_to_one_and_may_be_zero() {
    insta::assert_snapshot!(pods(&[
        workload("ReplicaSet", "one", "", ""),
        workload("Deployment", "none", ", replicas: 0", ", nodeName: node-7"),
    ]));
}

#[test]
fn host_network_pods_have_addresses_of_nodes() {
    insta::assert_snapshot!(pods(&[workload(
        "DaemonSet",
        "host",
        "",
        ", hostNetwork: true"
    )]));
}

#[test]
fn host_network_pods_without_a_node_are_refused() {
    insta::assert_snapshot!(pods(&[workload(
        "Deployment",
        "host",
        ", replicas: 3",
        ", hostNetwork: true"
    )]));
}

#[test]
fn node_selector_and_name_limit_nodes() {
    insta::assert_snapshot!(pods(&[
        workload(
            "Deployment",
            "ssd",
            ", replicas: 2",
            ", nodeSelector: {disk: ssd, kubernetes.io/os: linux}"
        ),
        workload(
            "Deployment",
            "named",
            ", replicas: 2",
            ", nodeName: control"
        ),
        workload(
            "Deployment",
            "host",
            "",
            ", nodeSelector: {kubernetes.io/hostname: node-2}"
        ),
    ]));
}

#[test]
fn workload_without_a_node_warns() {
    insta::assert_snapshot!(pods(&[
        workload("Deployment", "gpu", "", ", nodeSelector: {gpu: nvidia}"),
        workload("Deployment", "named", "", ", nodeName: node-7"),
    ]));
}

#[test]
fn affinity_is_reported_as_not_modelled() {
    insta::assert_snapshot!(pods(&[workload(
        "Deployment",
        "web",
        "",
        ", affinity: {podAntiAffinity: {}}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: x, whenUnsatisfiable: DoNotSchedule}]"
    )]));
}

#[test]
fn workload_with_written_pods_gets_none() {
    let pod = |name: &str, labels: &str, more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {labels}{more}}}\n\
             spec: {{nodeName: node-1, containers: [{{name: web}}]}}\nstatus: {{podIP: 10.244.1.2}}\n"
        )
    };
    let deployment = workload("Deployment", "web", ", replicas: 2", "");
    let by_label = pod("mine", "{app: web}", "");
    assert!(!pods(&[deployment.clone(), by_label]).contains("of Deployment"));
    let by_owner = pod(
        "mine",
        "{}",
        ", ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: x}]",
    );
    assert!(!pods(&[deployment.clone(), by_owner]).contains("of Deployment"));
    // The pod has the first address of its node.
    let other = pods(&[deployment.clone(), pod("mine", "{app: db}", "")]);
    assert!(
        other.contains("pod/default/web-0 of Deployment web on node-1: 10.244.1.3, "),
        "{other}"
    );
    let ended = pod("mine", "{app: web}", "").replace("{podIP: 10.244.1.2}", "{phase: Failed}");
    assert!(pods(&[deployment, ended]).contains("of Deployment"));
}

#[test]
fn replica_sets_of_deployments_have_no_own_pods() {
    let owned = workload("ReplicaSet", "web-5d8f", ", replicas: 2", "").replace(
        "metadata: {name: web-5d8f}",
        "metadata: {name: web-5d8f, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: x}]}",
    );
    let deployment = workload("Deployment", "web", ", replicas: 2", "");
    let seen = pods(&[owned.clone(), deployment]);
    assert!(
        !seen.contains("ReplicaSet") && seen.contains("of Deployment"),
        "{seen}"
    );
    let alone = pods(&[owned]);
    assert!(
        alone.contains("pod/default/web-5d8f-1 of ReplicaSet"),
        "{alone}"
    );
}

#[test]
fn workload_in_not_modelled_gets_no_pods() {
    let deployment = workload("Deployment", "web", "", "");
    let text =
        lab_with(&[deployment]).replacen("spec:\n", "spec:\n  notModelled: [Deployment]\n", 1);
    let source = Source::from_text("x", text);
    let (scenario, warnings) = Scenario::load(&source.into()).expect("a lab");
    assert_eq!(warnings, []);
    assert!(scenario.cases()[0].objects.pods.is_empty());
}

#[test]
fn patches_and_steps_may_name_written_pods() {
    let text = lab_with(&[workload("Deployment", "web", ", replicas: 2", "")]);
    let text = text.replacen(
        "  expect:",
        "  steps: [{name: ends, change: [{terminate: Pod/default/web-0}]}]\n  expect:",
        1,
    );
    assert_eq!(load_diagnostics(&text), "");
    let wrong = text.replace(
        "terminate: Pod/default/web-0",
        "delete: Deployment/default/web",
    );
    insta::assert_snapshot!(load_diagnostics(&wrong));
}

#[test]
fn invalid_workloads_are_refused() {
    let valid = workload("Deployment", "web", ", replicas: 2", "");
    let changes = [
        ("replicas: 2", "replicas: -1"),
        ("replicas: 2", "replicas: 70000"),
        ("replicas: 2", "replicas: many"),
        ("labels: {app: web}", "labels: {app: other}"),
        ("matchLabels: {app: web}", ""),
        ("selector: {matchLabels: {app: web}}, ", ""),
        (
            "matchLabels: {app: web}",
            "matchExpressions: [{key: app, operator: in}]",
        ),
        ("metadata: {name: web}", "metadata: {name: Web_}"),
        ("containerPort: 8080", "containerPort: 0"),
        ("containerPort: 8080", "containerPort: 8080, hostPort: 80"),
        ("selector: ", "selektor: {}, selector: "),
        ("containers: ", "container: [], containers: "),
    ];
    let seen: Vec<String> = changes
        .iter()
        .map(|(part, replacement)| {
            assert!(valid.contains(part), "{part}");
            let broken = valid.replacen(part, replacement, 1);
            format!("{replacement}\n{}", load_diagnostics(&lab_with(&[broken])))
        })
        .collect();
    insta::assert_snapshot!(seen.join("\n\n"));
}

#[test]
fn addresses_that_do_not_suffice_are_refused() {
    let many = workload("Deployment", "web", ", replicas: 6", ", nodeName: node-2");
    insta::assert_snapshot!(pods(&[many]));
    let without = lab_with(&[workload("Deployment", "web", "", "")]).replace(
        "spec: {podCIDRs: [10.244.1.0/24, \"fd00:1::/64\"]}",
        "spec: {}",
    );
    insta::assert_snapshot!(load_diagnostics(&without));
}

#[test]
fn pods_with_the_same_name_are_refused() {
    insta::assert_snapshot!(pods(&[
        workload("Deployment", "web", "", ""),
        workload("StatefulSet", "web", "", ""),
    ]));
}

#[test]
fn files_of_objects_without_nodes_keep_workloads() {
    let text = workload("Deployment", "web", "", "");
    let source = Source::from_text("objects.yaml", text);
    let (objects, warnings) = crate::objects::Objects::load(&source.into()).expect("objects");
    assert_eq!(warnings, []);
    assert_eq!(objects.ignored.get("Deployment"), Some(&1));
    assert!(objects.pods.is_empty());
}
