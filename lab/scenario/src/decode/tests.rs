//! Tests the decoding of Kubernetes objects, and the spans of errors.

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;

use super::*;
use crate::yaml;
use svclab_diagnostic::source::{FileId, Source};

fn tree(text: &str) -> Tree {
    let source = Source::from_bytes("x", text.into()).expect("a source");
    let trees = yaml::parse(&source, FileId::default()).expect("YAML");
    trees.into_iter().next().expect("a document")
}

fn position(error: &DecodeError) -> (u32, u32) {
    error.span().map_or((0, 0), |span| (span.line, span.column))
}

#[test]
fn kubernetes_scalars_decode() {
    let text = "
        metadata: {name: a, creationTimestamp: 2024-01-01T00:00:00Z, managedFields: [{fieldsV1: {'f:spec': {}}}]}
        spec:
          containers:
          - name: c
            resources: {requests: {cpu: 1, memory: 64Mi}, limits: {cpu: 0.5}}
            livenessProbe: {httpGet: {port: http}}
            ports: [{containerPort: 80}]
        status: {startTime: null}";
    let (pod, ignored) = lenient::<Pod>(&tree(text)).expect("a pod");
    assert_eq!(ignored, []);
    let resources = &pod.spec.expect("a spec").containers[0]
        .resources
        .clone()
        .expect("some");
    let requests = resources.requests.as_ref().expect("requests");
    assert_eq!(
        (requests["cpu"].0.as_str(), requests["memory"].0.as_str()),
        ("1", "64Mi")
    );
    assert!(pod.metadata.creation_timestamp.is_some());
    let text = "spec: {ports: [{port: 80, targetPort: http}, {port: 81, targetPort: 8081}]}";
    let (service, _) = lenient::<Service>(&tree(text)).expect("a service");
    let ports = service.spec.and_then(|spec| spec.ports).expect("ports");
    assert_eq!(
        ports[0].target_port,
        Some(IntOrString::String("http".into()))
    );
    assert_eq!(ports[1].target_port, Some(IntOrString::Int(8081)));
}

#[test]
fn unknown_api_fields_at_any_depth_are_recorded() {
    let text = "spec:\n  nodNme: a\n  containers:\n  - name: c\n    ports: [{containerPrt: 80}]\nextra: {spec: {}}\n";
    let (_, ignored) = lenient::<Pod>(&tree(text)).expect("a pod");
    let noted: Vec<_> = ignored
        .iter()
        .map(|i| (i.field.as_str(), i.type_name, i.span.line, i.span.column))
        .collect();
    assert_eq!(
        noted,
        [
            ("extra", "Pod", 6, 1),
            ("nodNme", "PodSpec", 2, 3),
            ("containerPrt", "ContainerPort", 5, 14)
        ]
    );
    assert!(ignored[2].fields.contains(&"containerPort"));
}

#[test]
fn decode_error_has_innermost_span() {
    let text = "spec:\n  ports:\n  - port: 80\n    nodePort: many\n";
    let error = lenient::<Service>(&tree(text)).expect_err("a string is not a port");
    assert_eq!(position(&error), (4, 15));
    let text = "spec:\n  ports:\n    port: 80\n";
    let error = lenient::<Service>(&tree(text)).expect_err("a map is not a list");
    assert_eq!(
        (position(&error), error.to_string().as_str()),
        ((2, 3), "expected a list, found a map")
    );
    let text = "metadata: {creationTimestamp: yesterday}\n";
    assert_eq!(
        position(&lenient::<Pod>(&tree(text)).expect_err("not a time")),
        (1, 31)
    );
}

#[test]
fn decode_error_in_unescaped_scalar_has_part_span() {
    #[derive(Debug, Deserialize)]
    struct Holder {
        #[expect(dead_code, reason = "the test checks only the errors")]
        count: crate::expectation::count::Count,
    }
    let column = |text: &str| {
        let error = strict::<Holder>(&tree(text)).expect_err("not a count");
        (
            position(&error).1,
            error.span().map_or(0, |span| span.end - span.start),
        )
    };
    assert_eq!(column("count: 1..x"), (11, 1));
    assert_eq!(column("count: '1..x'"), (12, 1));
    assert_eq!(column(r#"count: "1..\x78""#), (8, 9));
}

#[test]
fn enum_variants_decode_by_name() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Nft,
        Legacy,
    }
    assert_eq!(
        strict::<Vec<Mode>>(&tree("[nft, legacy]")),
        Ok(vec![Mode::Nft, Mode::Legacy])
    );
    let error = strict::<Vec<Mode>>(&tree("[nft, 1]")).expect_err("a number is not a string");
    assert_eq!(
        error.to_string(),
        "expected one of `nft` and `legacy`, found the number `1`"
    );
    assert_eq!(position(&error), (1, 7));
}
