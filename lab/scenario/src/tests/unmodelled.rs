//! Tests of objects and fields that affect packets in a cluster and that svclab does not model.
//! Snapshots contain the diagnostics.

use crate::tests::example::load_diagnostics;

const FLOWS: &str = include_str!("../flows.yaml");

/// Replaces a part of the lab.
fn example_with(part: &str, replacement: &str) -> String {
    assert!(FLOWS.contains(part), "{part} is not in the lab");
    FLOWS.replacen(part, replacement, 1)
}

/// Appends documents to the lab.
fn with_documents(documents: &str) -> String {
    format!("{FLOWS}---\n{documents}")
}

/// Adds `notModelled` to the lab.
fn with_not_modelled(kind: &str, text: &str) -> String {
    text.replacen("spec:\n", &format!("spec:\n  notModelled: [{kind}]\n"), 1)
}

fn policy(namespace: &str, selector: &str) -> String {
    with_documents(&format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{name: deny, namespace: {namespace}}}\nspec: {{podSelector: {selector}}}\n"
    ))
}

#[test]
fn network_policy_that_selects_a_pod_is_refused() {
    insta::assert_snapshot!(load_diagnostics(&policy(
        "default",
        "{matchLabels: {app: web}}"
    )));
}

#[test]
fn network_policy_with_an_empty_selector_is_refused() {
    for selector in [
        "{}",
        "{matchExpressions: [{key: app, operator: DoesNotExist}]}",
    ] {
        let diagnostics = load_diagnostics(&policy("default", selector));
        assert!(
            diagnostics.starts_with("error: the NetworkPolicy `deny` selects pod"),
            "{diagnostics}"
        );
    }
}

#[test]
fn network_policy_with_invalid_expression_is_refused() {
    let diagnostics: Vec<String> = [
        "{key: app, operator: in, values: [web]}",
        "{key: app, operator: In}",
        "{key: app, operator: Exists, values: [web]}",
    ]
    .map(|expression| {
        load_diagnostics(&policy(
            "default",
            &format!("{{matchExpressions: [{expression}]}}"),
        ))
    })
    .into();
    insta::assert_snapshot!(diagnostics.join("\n"));
}

#[test]
fn network_policy_without_pods_is_accepted() {
    assert_eq!(load_diagnostics(&policy("other", "{}")), "");
    assert_eq!(
        load_diagnostics(&policy("default", "{matchLabels: {app: db}}")),
        ""
    );
    let on_host = policy("default", "{matchLabels: {app: web}}").replace(
        "{nodeName: node-1, containers: [{name: web",
        "{nodeName: node-1, hostNetwork: true, containers: [{name: web",
    );
    let on_host = on_host.replace("status: {podIP: 10.244.1.10}", "status: {}");
    assert_eq!(load_diagnostics(&on_host), "");
}

#[test]
fn network_policy_listed_as_not_modelled_warns() {
    let text = with_not_modelled("NetworkPolicy", &policy("default", "{}"));
    insta::assert_snapshot!(load_diagnostics(&text));
}

#[test]
fn network_policy_in_a_list_is_refused() {
    for (version, kind) in [
        ("v1", "List"),
        ("networking.k8s.io/v1", "NetworkPolicyList"),
    ] {
        let text = with_documents(&format!(
            "apiVersion: {version}\nkind: {kind}\nitems:\n- apiVersion: networking.k8s.io/v1\n  \
             kind: NetworkPolicy\n  metadata: {{name: deny}}\n  spec: {{podSelector: {{}}}}\n"
        ));
        assert!(
            load_diagnostics(&text).starts_with("error: the NetworkPolicy `deny`"),
            "{kind}"
        );
    }
}

#[test]
fn network_policy_with_a_misspelt_selector_warns() {
    let text = policy("default", "{}").replace("podSelector", "podSelecter");
    assert!(
        load_diagnostics(&text)
            .contains("Kubernetes has no field `podSelecter` in NetworkPolicySpec")
    );
}

#[test]
fn policies_of_other_kinds_are_refused() {
    for (version, kind) in [
        ("cilium.io/v2", "CiliumNetworkPolicy"),
        ("crd.projectcalico.org/v1", "GlobalNetworkPolicy"),
        ("projectcalico.org/v3", "NetworkPolicy"),
        ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"),
    ] {
        let text = with_documents(&format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: deny}}\n"
        ));
        let diagnostics = load_diagnostics(&text);
        assert!(
            diagnostics.starts_with(&format!("error: the {kind} `deny` selects pod")),
            "{diagnostics}"
        );
    }
}

#[test]
fn kinds_that_create_modelled_objects_warn_once() {
    let object = |version: &str, kind: &str, name: &str| {
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\n")
    };
    let inputs = [
        object("batch/v1", "Job", "a"),
        object("batch/v1", "Job", "b"),
        object("extensions/v1beta1", "Deployment", "a"),
        object("networking.k8s.io/v1", "Ingress", "a"),
        object("v1", "Endpoints", "a"),
        object("example.com/v1", "Tunnel", "a"),
        object("v1", "ConfigMap", "a"),
        object("rbac.authorization.k8s.io/v1", "Role", "a"),
    ];
    insta::assert_snapshot!(load_diagnostics(&with_documents(&inputs.join("---\n"))));
    let listed = with_not_modelled(
        "Job, Deployment, Ingress, Endpoints, Tunnel",
        &with_documents(&inputs.join("---\n")),
    );
    assert_eq!(load_diagnostics(&listed), "");
}

#[test]
fn host_port_is_refused_unless_listed() {
    let text = example_with(
        "{containerPort: 8080}",
        "{containerPort: 8080, hostPort: 80}",
    );
    insta::assert_snapshot!(load_diagnostics(&text));
    let listed = with_not_modelled("hostPort", &text);
    assert!(load_diagnostics(&listed).starts_with("warning: `hostPort: 80` of pod `default/web`"));
    let on_host = text.replace(
        "{nodeName: node-1, containers: [{name: web",
        "{nodeName: node-1, hostNetwork: true, containers: [{name: web",
    );
    assert!(!load_diagnostics(&on_host).contains("hostPort"));
}

#[test]
fn undeclared_pod_port_warns() {
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "targetPort: 8080",
        "targetPort: 9090"
    )));
    insta::assert_snapshot!(load_diagnostics(&example_with(
        "{containerPort: 8080}",
        "{containerPort: 8080, protocol: UDP}"
    )));
    let unnamed = "warning: port 80 of service `default/web` has target port `http`, which \
        selected pods do not declare";
    assert!(
        load_diagnostics(&example_with("targetPort: 8080", "targetPort: http"))
            .starts_with(unnamed)
    );
    // A sidecar serves its ports; an init container has ended.
    let init = |policy: &str| {
        example_with("targetPort: 8080", "targetPort: 9090").replace(
            "containers: [{name: web",
            &format!("initContainers: [{{name: i{policy}, ports: [{{containerPort: 9090}}]}}], containers: [{{name: web"),
        )
    };
    assert_eq!(load_diagnostics(&init(", restartPolicy: Always")), "");
    assert!(load_diagnostics(&init("")).contains("does not declare"));
    // A pod that declares no ports serves every port.
    let none = example_with("targetPort: 8080", "targetPort: 9090")
        .replace(", ports: [{containerPort: 8080}]", "");
    assert_eq!(load_diagnostics(&none), "");
}

#[test]
fn fields_without_effect_warn() {
    let service = |field: &str| {
        load_diagnostics(&example_with(
            "  clusterIP: 10.96.0.10\n",
            &format!("  clusterIP: 10.96.0.10\n  {field}\n"),
        ))
    };
    let inputs = [
        service("ipFamilies: [IPv4, IPv6]"),
        service("clusterIPs: [10.96.0.10, \"fd00::10\"]"),
        service("loadBalancerIP: 192.0.2.1"),
        service("externalTrafficPolicy: Local"),
        service("type: NodePort"),
        load_diagnostics(&example_with("[{port: 80, targetPort: 8080}]", "[{port: 80, targetPort: 8080, nodePort: 30080}]")),
        load_diagnostics(&example_with("[{port: 80, targetPort: 8080}]", "[{port: 80, targetPort: 8080, nodePort: 80}]\n  type: NodePort")),
        load_diagnostics(&example_with("selector: {app: web}", "selector: {app: wbe}")),
        load_diagnostics(&example_with("selector: {app: web}", "selector: {app: nobody}")),
        load_diagnostics(&example_with("metadata: {name: web, namespace: default, labels", "metadata: {name: web, namespace: other, labels")),
        load_diagnostics(&example_with("  clusterIP: 10.96.0.10\n", "  type: ExternalName\n  externalName: example.com\n")),
        load_diagnostics(&example_with("  clusterIP: 10.96.0.10\n", "")),
        load_diagnostics(&example_with("[{port: 80, targetPort: 8080}]", "[{name: a, port: 80, targetPort: 8080}, {name: s, port: 90, targetPort: 8080, protocol: SCTP}]")),
        load_diagnostics(&FLOWS.replace("metadata: {name: web, namespace: default}\nspec:\n  clusterIP", "metadata: {name: web, namespace: default, annotations: {service.kubernetes.io/topology-mode: Auto}}\nspec:\n  clusterIP")),
        load_diagnostics(&example_with("{nodeName: node-1, containers: [{name: client}]}", "{nodeName: node-1, securityContext: {sysctls: [{name: net.ipv4.ip_forward, value: \"0\"}]}, containers: [{name: client}]}")),
        load_diagnostics(&example_with("metadata: {name: client, namespace: default}", "metadata: {name: client, namespace: default, annotations: {k8s.v1.cni.cncf.io/networks: other}}")),
        load_diagnostics(&example_with("status: {addresses: [{type: InternalIP, address: 192.168.1.11}]}", "status: {conditions: [{type: Ready, status: \"False\"}], addresses: [{type: InternalIP, address: 192.168.1.11}, {type: InternalIP, address: 192.168.1.12}]}")),
        load_diagnostics(&with_documents("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: loose}\naddressType: IPv4\nendpoints: []\n")),
    ];
    insta::assert_snapshot!(inputs.join("\n\n"));
}

#[test]
fn unknown_traffic_distribution_is_refused() {
    let text = example_with(
        "  clusterIP: 10.96.0.10\n",
        "  clusterIP: 10.96.0.10\n  trafficDistribution: PreferNear\n",
    );
    assert!(load_diagnostics(&text).starts_with("error: `PreferNear` is not one of"));
}

#[test]
fn lab_fields_without_effect_are_refused() {
    let spec = |field: &str| {
        example_with(
            "  columns: mode\n",
            &format!("  columns: mode\n  {field}\n"),
        )
    };
    let example = crate::tests::example::example_with;
    let inputs = [
        load_diagnostics(&spec("fabric: {subnet: 192.168.0.0/16}")),
        load_diagnostics(&spec("nodes: {node-1: {lenient: true}}")),
        load_diagnostics(&spec(
            "nodes: {node-1: {dump: node.tar, leftovers: {ipset: [x]}, byHand: {iptables: [\"*nat\"]}}}",
        )),
        load_diagnostics(&example(
            "  axes:\n",
            "  connections: 4\n  columns: policy\n  axes:\n",
        )),
    ];
    insta::assert_snapshot!(inputs.join("\n\n"));
}
