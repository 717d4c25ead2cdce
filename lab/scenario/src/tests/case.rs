//! Tests of the cases of a valid lab.

use std::sync::Arc;

use crate::Case;
use crate::Scenario;
use crate::lab::FlannelLeftover;
use crate::lab::reference::{DocumentRef, ObjectKind};
use crate::yaml::tree::Tree;
use svclab_diagnostic::source::{Source, Sources, Span};

fn scenario(text: &str) -> Scenario {
    let source = Source::from_bytes("<test>", text.into()).expect("a source");
    match Scenario::load(&Sources::from(source)) {
        Ok((scenario, _)) => scenario,
        Err(errors) => panic!("{errors:?}"),
    }
}

fn example() -> Scenario {
    scenario(include_str!("../example.yaml"))
}

fn case<'s>(scenario: &'s Scenario, id: &str) -> &'s Case {
    let found = scenario.cases().iter().find(|case| case.id == id);
    found.expect("the case exists")
}

fn sysctl(case: &Case) -> Option<&str> {
    let node = case.spec.nodes.get("node-1")?;
    node.sysctls
        .get("net.ipv4.conf.all.rp_filter")
        .map(|value| value.0.as_str())
}

fn policy(case: &Case) -> Option<&str> {
    let service = case.objects.service("default", "nginx")?;
    service
        .value
        .spec
        .as_ref()?
        .external_traffic_policy
        .as_deref()
}

#[test]
fn cases_have_patches_and_row() {
    let scenario = example();
    let seen: Vec<_> = scenario
        .cases()
        .iter()
        .map(|case| (case.id.as_str(), policy(case), sysctl(case), case.row))
        .collect();
    assert_eq!(
        seen,
        [
            (
                "example/policy=Local,rpFilter=0",
                Some("Local"),
                Some("0"),
                0
            ),
            (
                "example/policy=Local,rpFilter=1",
                Some("Local"),
                Some("1"),
                0
            ),
            (
                "example/policy=Cluster,rpFilter=0",
                Some("Cluster"),
                Some("0"),
                1
            ),
            (
                "example/policy=Cluster,rpFilter=1",
                Some("Cluster"),
                Some("1"),
                1
            ),
        ]
    );
    assert_eq!(
        scenario.cases()[2].expected().claims[0].part.as_deref(),
        Some("the good half")
    );
}

#[test]
fn cases_share_unpatched_documents() {
    let scenario = example();
    let plain = case(&scenario, "example/policy=Local,rpFilter=0");
    let patched = case(&scenario, "example/policy=Cluster,rpFilter=1");
    assert_eq!(plain.spec.hosts, patched.spec.hosts);
    assert_eq!(
        patched.spec.nodes["node-1"].leftovers.flannel,
        FlannelLeftover::None
    );
    let same_lab = case(&scenario, "example/policy=Local,rpFilter=1");
    assert!(Arc::ptr_eq(&patched.spec, &same_lab.spec));
    assert!(Arc::ptr_eq(&plain.objects, &same_lab.objects));
    let pod = |case: &Case| {
        case.objects
            .pod("default", "client")
            .map(|pod| Arc::clone(&pod.value))
    };
    let (plain_pod, patched_pod) = (pod(plain).expect("a pod"), pod(patched).expect("a pod"));
    assert!(Arc::ptr_eq(&plain_pod, &patched_pod));
}

#[test]
fn list_items_and_other_kinds_load() {
    let scenario = example();
    let objects = &scenario.cases()[0].objects;
    let nodes: Vec<&str> = objects
        .nodes
        .iter()
        .map(|node| node.name.as_str())
        .collect();
    assert_eq!(nodes, ["node-1", "node-2"]);
    assert_eq!(objects.ignored.get("ConfigMap"), Some(&1));
    assert_eq!(objects.pods.len(), 3);
}

#[test]
fn case_spans_are_in_documents_and_patches() {
    let scenario = example();
    let text = include_str!("../example.yaml");
    let under = |span: Span| {
        let byte = |n: u32| usize::try_from(n).expect("a small number");
        &text[byte(span.start)..byte(span.end)]
    };
    let case = case(&scenario, "example/policy=Cluster,rpFilter=1");
    let service = DocumentRef::object(ObjectKind::Service, "default", "nginx");
    let path = crate::path!["spec", "externalTrafficPolicy"];
    let span = case.span(&service, path).expect("a span");
    assert_eq!((under(span), span.line), ("Cluster", 31));
    let path = crate::path!["spec", "ports", 0, "nodePort"];
    assert_eq!(case.span(&service, path).map(under), Some("30443"));
    assert_eq!(case.key_span(&service, path).map(under), Some("nodePort"));
    let path = crate::path!["spec", "probes", "call", "to"];
    assert_eq!(
        case.span(&DocumentRef::Lab, path).map(under),
        Some("lb/default/nginx:443")
    );
    // The span of an absent value is that of its nearest written ancestor.
    let path = crate::path!["spec", "hosts", "laptop", "ports", 0];
    assert_eq!(
        case.span(&DocumentRef::Lab, path).map(under),
        Some("address")
    );
    let derived = DocumentRef::object(ObjectKind::EndpointSlice, "default", "nginx-1");
    assert_eq!(case.objects.slices_of("default", "nginx").count(), 1);
    assert_eq!(case.span(&derived, &[]), None);
    let missing = DocumentRef::object(ObjectKind::Pod, "default", "nobody");
    assert_eq!(case.tree(&missing).map(Tree::head_span), None);
}

#[test]
fn patches_delete_and_add_objects() {
    let text = include_str!("../example.yaml").replacen(
        "- {patch: Service/default/nginx, merge: {spec: {externalTrafficPolicy: Cluster}}}",
        "- {delete: Pod/default/nginx-a}\n      \
         - add: {apiVersion: v1, kind: Pod, metadata: {name: nginx-c, labels: {app: nginx}}, spec: {nodeName: node-2, containers: [{name: c}]}, status: {podIP: 10.244.2.11}}\n      \
         - {patch: Pod/default/nginx-c, merge: {spec: {containers: [{name: c, ports: [{name: https, containerPort: 9443}]}]}}}",
        1,
    );
    let scenario = scenario(&text);
    let case = case(&scenario, "example/policy=Cluster,rpFilter=0");
    let pods: Vec<&str> = case
        .objects
        .pods
        .iter()
        .map(|pod| pod.name.as_str())
        .collect();
    assert_eq!(pods, ["nginx-b", "client", "nginx-c"]);
    let ports: Vec<_> = case
        .objects
        .slices_of("default", "nginx")
        .flat_map(|slice| slice.value.ports.iter().flatten().map(|port| port.port))
        .collect();
    assert_eq!(ports, [Some(8443), Some(9443)]);
}

#[test]
fn scenario_loads_from_several_files() {
    let (lab, objects) = include_str!("../example.yaml")
        .split_once("---\n")
        .expect("two parts");
    let file = |name: &str, text: &str| Source::from_bytes(name, text.into()).expect("a source");
    let sources = Sources::new(vec![file("dump.yaml", objects), file("example.yaml", lab)]);
    let (scenario, warnings) = Scenario::load(&sources).expect("a scenario");
    assert_eq!(
        (scenario.name(), scenario.cases().len(), warnings.len()),
        ("example", 4, 0)
    );
    let service = DocumentRef::object(ObjectKind::Service, "default", "nginx");
    let span = scenario.cases()[0].span(&service, &[]).expect("a span");
    assert_eq!(sources.get(span.file).map(Source::name), Some("dump.yaml"));
}

#[test]
fn lab_without_axes_has_one_case() {
    let text = "{apiVersion: svclab/v1, kind: Lab, metadata: {name: x}, spec: {about: x, \
                probes: {p: {from: a, to: b}}, expect: [{p: {connected: 1}}]}}";
    let scenario = scenario(text);
    let ids: Vec<&str> = scenario
        .cases()
        .iter()
        .map(|case| case.id.as_str())
        .collect();
    assert_eq!(ids, ["x"]);
}

#[test]
fn typed_list_sets_kind_of_items() {
    let text = "{apiVersion: svclab/v1, kind: Lab, metadata: {name: x}, spec: {about: x, \
                probes: {p: {from: a, to: b}}, expect: [{p: {connected: 1}}]}}\n---\n\
                {apiVersion: v1, kind: PodList, items: [{metadata: {name: a, namespace: b}}]}\n---\n\
                {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: \
                [{apiVersion: v1, kind: Node, metadata: {name: n}}]}, {apiVersion: v1, kind: Secret}]}";
    let scenario = scenario(text);
    let objects = &scenario.cases()[0].objects;
    assert!(objects.pod("b", "a").is_some() && objects.node("n").is_some());
    assert_eq!(objects.ignored.get("Secret"), Some(&1));
}
