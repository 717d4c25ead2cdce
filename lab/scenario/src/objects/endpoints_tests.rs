//! Tests of the slices that the endpoint slice controller would write.

use crate::Scenario;
use crate::objects::{MAX_ENDPOINTS, Objects};
use svclab_diagnostic::source::{Source, Sources};

/// Loads a lab with these documents and the nodes `node-1` and `node-2`.
fn objects(documents: &str) -> Objects {
    let text = format!(
        "{{apiVersion: svclab/v1, kind: Lab, metadata: {{name: x}}, spec: {{about: x, \
         probes: {{p: {{from: a, to: b}}}}, expect: [{{p: {{connected: 1}}}}]}}}}\n\
         ---\n{{apiVersion: v1, kind: Node, metadata: {{name: node-1, labels: {{topology.kubernetes.io/zone: z}}}}, \
         status: {{addresses: [{{type: Hostname, address: n}}, {{type: InternalIP, address: 172.18.1.1}}]}}}}\n\
         ---\n{{apiVersion: v1, kind: Node, metadata: {{name: node-2}}}}\n{documents}"
    );
    let source = Source::from_bytes("<test>", text.into()).expect("a source");
    let (scenario, _) = Scenario::load(&Sources::from(source)).expect("a scenario");
    Objects::clone(&scenario.cases()[0].objects)
}

fn service(spec: &str) -> String {
    format!("---\n{{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {{{spec}}}}}\n")
}

fn pod(name: &str, node: &str, spec: &str, status: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: web}}}}, \
         spec: {{nodeName: {node}, containers: [{{name: c, ports: [{{name: http, containerPort: 8080}}]}}]{spec}}}, \
         status: {{{status}}}}}\n"
    )
}

/// Renders slices in the form `family port,port: address@node[ not ready][ terminating]; …`.
fn render_slices(objects: &Objects) -> Vec<String> {
    objects
        .slices_of("default", "web")
        .map(|slice| {
            let ports: Vec<String> = slice
                .value
                .ports
                .iter()
                .flatten()
                .map(|port| format!("{}", port.port.unwrap_or_default()))
                .collect();
            let endpoints: Vec<String> = slice
                .value
                .endpoints
                .iter()
                .flatten()
                .map(|endpoint| {
                    let conditions = endpoint.conditions.clone().unwrap_or_default();
                    let word =
                        |is: bool, word: &str| if is { word.to_owned() } else { String::new() };
                    format!(
                        "{}@{}{}{}",
                        endpoint.addresses.join("+"),
                        endpoint.node_name.as_deref().unwrap_or("-"),
                        word(conditions.ready == Some(false), " not ready"),
                        word(conditions.terminating == Some(true), " terminating"),
                    )
                })
                .collect();
            format!(
                "{} {}: {}",
                slice.value.address_type,
                ports.join(","),
                endpoints.join("; ")
            )
        })
        .collect()
}

const PORT: &str =
    "clusterIP: 10.96.0.1, selector: {app: web}, ports: [{port: 80, targetPort: http}]";

#[test]
fn ready_pods_with_addresses_become_endpoints() {
    let documents = [
        service(PORT),
        pod("a", "node-1", "", "podIP: 10.244.1.1"),
        pod(
            "b",
            "node-2",
            "",
            "podIP: 10.244.2.1, conditions: [{type: Ready, status: 'True'}]",
        ),
        pod(
            "c",
            "node-1",
            "",
            "podIP: 10.244.1.3, conditions: [{type: Ready, status: 'False'}]",
        ),
        pod(
            "d",
            "node-1",
            "",
            "podIP: 10.244.1.4, conditions: [{type: PodScheduled, status: 'True'}]",
        ),
        pod("e", "node-1", "", "phase: Pending"),
        pod("f", "node-1", "", "podIP: 10.244.1.6, phase: Succeeded"),
        pod("g", "gone", "", "podIP: 10.244.9.1"),
    ];
    assert_eq!(
        render_slices(&objects(&documents.concat())),
        [
            "IPv4 8080: 10.244.1.1@node-1; 10.244.2.1@node-2; 10.244.1.3@node-1 not ready; 10.244.1.4@node-1 not ready"
        ]
    );
}

#[test]
fn pending_pod_is_not_ready_without_ready_condition() {
    let documents = [
        service(PORT),
        pod("a", "node-1", "", "podIP: 10.244.1.1, phase: Pending"),
        pod(
            "b",
            "node-1",
            "",
            "podIP: 10.244.1.2, phase: Pending, conditions: [{type: Ready, status: 'True'}]",
        ),
        pod("c", "node-1", "", "podIP: 10.244.1.3, phase: Running"),
    ];
    assert_eq!(
        render_slices(&objects(&documents.concat())),
        ["IPv4 8080: 10.244.1.1@node-1 not ready; 10.244.1.2@node-1; 10.244.1.3@node-1"]
    );
}

#[test]
fn terminating_pod_is_serving_not_ready() {
    let pod = pod("a", "node-1", "", "podIP: 10.244.1.1").replace(
        "name: a,",
        "name: a, deletionTimestamp: 2024-01-01T00:00:00Z,",
    );
    let objects = objects(&format!("{}{pod}", service(PORT)));
    assert_eq!(
        render_slices(&objects),
        ["IPv4 8080: 10.244.1.1@node-1 not ready terminating"]
    );
}

#[test]
fn unready_pods_published_if_service_requests_it() {
    let service = service(&format!("{PORT}, publishNotReadyAddresses: true"));
    let status = "podIP: 10.244.1.1, conditions: [{type: Ready, status: 'False'}]";
    let documents = [
        service,
        pod("a", "node-1", "", status),
        pod("b", "gone", "", "podIP: 10.244.9.1"),
    ];
    assert_eq!(
        render_slices(&objects(&documents.concat())),
        ["IPv4 8080: 10.244.1.1@node-1; 10.244.9.1@gone"]
    );
}

#[test]
fn each_address_family_has_own_slice() {
    let dual =
        "clusterIP: 10.96.0.1, ipFamilies: [IPv6, IPv4], selector: {app: web}, ports: [{port: 80}]";
    let status = "podIP: 10.244.1.1, podIPs: [{ip: 10.244.1.1}, {ip: 'fd00:0:0::1'}]";
    let with = |spec: &str| {
        let documents = [service(spec), pod("a", "node-1", "", status)];
        render_slices(&objects(&documents.concat()))
    };
    assert_eq!(
        with(dual),
        ["IPv4 80: 10.244.1.1@node-1", "IPv6 80: fd00::1@node-1"]
    );
    assert_eq!(
        with("clusterIP: 'fd01::1', selector: {app: web}, ports: [{port: 80}]"),
        ["IPv6 80: fd00::1@node-1"]
    );
    assert_eq!(
        with("clusterIP: None, selector: {app: web}"),
        ["IPv4 : 10.244.1.1@node-1", "IPv6 : fd00::1@node-1"]
    );
}

#[test]
fn named_target_port_resolves_per_pod() {
    let other = pod("b", "node-2", "", "podIP: 10.244.2.1").replace("8080", "9090");
    let nameless = pod("c", "node-2", "", "podIP: 10.244.2.2").replace("name: http, ", "");
    let sidecar = ", initContainers: [{name: i, ports: [{name: metrics, containerPort: 1}]}, \
                   {name: s, restartPolicy: Always, ports: [{name: metrics, containerPort: 2}]}]";
    let documents = [
        service(
            "clusterIP: 10.96.0.1, selector: {app: web}, ports: \
                 [{name: a, port: 80, targetPort: http}, {name: b, port: 81, targetPort: metrics}, \
                 {name: c, port: 82, protocol: UDP, targetPort: http}]",
        ),
        pod("a", "node-1", sidecar, "podIP: 10.244.1.1"),
        other,
        nameless,
    ];
    assert_eq!(
        render_slices(&objects(&documents.concat())),
        [
            "IPv4 8080,2: 10.244.1.1@node-1",
            "IPv4 9090: 10.244.2.1@node-2",
            "IPv4 : 10.244.2.2@node-2"
        ]
    );
}

#[test]
fn host_network_pod_gets_node_address() {
    let documents = [
        service(PORT),
        pod("a", "node-1", ", hostNetwork: true", "phase: Running"),
    ];
    let objects = objects(&documents.concat());
    assert_eq!(render_slices(&objects), ["IPv4 8080: 172.18.1.1@node-1"]);
    let pod = objects.pod("default", "a").expect("the pod");
    let status = pod.value.status.as_ref().expect("a status");
    assert_eq!(status.pod_ip.as_deref(), Some("172.18.1.1"));
}

#[test]
fn slices_without_selector_or_with_own_are_not_derived() {
    let pod = pod("a", "node-1", "", "podIP: 10.244.1.1");
    let none = |spec: &str| render_slices(&objects(&format!("{}{pod}", service(spec))));
    assert!(none("clusterIP: 10.96.0.1, ports: [{port: 80}]").is_empty());
    assert!(none("type: ExternalName, externalName: x, selector: {app: web}").is_empty());
    let slice = "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, \
                 metadata: {name: mine, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, \
                 endpoints: [{addresses: [10.9.9.9]}], ports: [{port: 1}]}\n";
    let objects = objects(&format!("{}{pod}{slice}", service(PORT)));
    assert_eq!(render_slices(&objects), ["IPv4 1: 10.9.9.9@-"]);
}

#[test]
fn slice_has_at_most_100_endpoints() {
    let pods: String = (0..150)
        .map(|n| {
            pod(
                &format!("p{n}"),
                "node-1",
                "",
                &format!("podIP: 10.244.1.{n}"),
            )
        })
        .collect();
    let objects = objects(&format!("{}{pods}", service(PORT)));
    let sizes: Vec<usize> = objects
        .slices_of("default", "web")
        .map(|slice| slice.value.endpoints.as_ref().map_or(0, Vec::len))
        .collect();
    assert_eq!(sizes, [100, 50]);
}

#[test]
fn endpoint_has_pod_and_zone() {
    let documents = [
        service(PORT),
        pod(
            "a",
            "node-1",
            ", hostname: h, subdomain: web",
            "podIP: 10.244.1.1",
        ),
    ];
    let objects = objects(&documents.concat());
    let slice = objects.slices_of("default", "web").next().expect("a slice");
    let endpoint = &slice.value.endpoints.as_ref().expect("endpoints")[0];
    let target = endpoint.target_ref.as_ref().expect("a target");
    assert_eq!(
        (target.kind.as_deref(), target.name.as_deref()),
        (Some("Pod"), Some("a"))
    );
    assert_eq!(
        (endpoint.zone.as_deref(), endpoint.hostname.as_deref()),
        (Some("z"), Some("h"))
    );
}

#[test]
fn objects_get_api_server_defaults() {
    let objects = objects(&service(
        "type: NodePort, clusterIP: 10.96.0.1, sessionAffinity: ClientIP, ports: [{port: 80}]",
    ));
    let spec = objects
        .service("default", "web")
        .and_then(|s| s.value.spec.clone())
        .expect("a spec");
    insta::assert_snapshot!(serde_json::to_string(&spec).expect("JSON"), @r#"{"clusterIP":"10.96.0.1","clusterIPs":["10.96.0.1"],"externalTrafficPolicy":"Cluster","internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ports":[{"port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":10800}},"type":"NodePort"}"#);
}

#[test]
fn endpoints_beyond_maximum_are_not_derived_and_refused() {
    let slice = "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: wide}, \
                 addressType: IPv4, endpoints: [";
    let addresses = vec!["{addresses: [10.9.9.9]}"; 1000].join(", ");
    let documents = [
        service("selector: {app: web}, clusterIP: 10.96.0.1, ports: [{port: 80}]"),
        pod("web", "node-1", "", "podIP: 10.244.1.5"),
        format!("{slice}{addresses}]}}\n"),
    ];
    let mut objects = objects(&documents.concat());
    assert_eq!(objects.size_error(), None);
    assert_eq!(render_slices(&objects).len(), 1);
    let mut wide = objects.endpoint_slices[0].clone();
    wide.tree.clone_from(&objects.nodes[1].tree);
    objects.endpoint_slices = vec![wide; MAX_ENDPOINTS / 1000 + 1];
    objects.update_derived_slices();
    assert_eq!(render_slices(&objects), Vec::<String>::new());
    let error = objects.size_error().expect("an error");
    assert_eq!(error.message, "more than 1000000 endpoints");
}
