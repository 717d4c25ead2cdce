//! Tests of labs whose load balancers svclab makes. Snapshots contain the diagnostics.

use crate::Scenario;
use crate::tests::example::{example_with, load_diagnostics};
use svclab_diagnostic::source::Source;

const WRITTEN: &str = "  loadBalancers:
    clb:
      service: default/nginx
      keepSource: true
      skipOwnSource: true
      healthCheck: {}
      noBackend: drop
";

/// Returns the example with `loadBalancers: auto`.
fn auto() -> String {
    example_with(WRITTEN, "  loadBalancers: auto\n")
}

/// Returns the load balancers of the first case.
fn balancers(text: &str) -> Vec<String> {
    let source = Source::from_text("example.yaml", text);
    let (scenario, _) = Scenario::load(&source.into()).expect("a lab");
    scenario.cases()[0].made_objects()
}

#[test]
fn auto_makes_the_balancer_of_the_warning() {
    assert_eq!(load_diagnostics(&auto()), "");
    assert_eq!(
        balancers(&auto()),
        ["load balancer nginx of service default/nginx to its node ports with health checks"]
    );
    // The warning suggests the same balancer.
    let from_host = "call: {from: laptop, to";
    let without =
        example_with(WRITTEN, "").replace("call: {from: pod/default/client, to", from_host);
    insta::assert_snapshot!(load_diagnostics(&without));
    let lines =
        "  loadBalancers:\n    nginx:\n      service: default/nginx\n      healthCheck: {}\n";
    let load = |text: String| {
        let source = Source::from_text("example.yaml", text);
        let (scenario, _) = Scenario::load(&source.into()).expect("a lab");
        scenario.cases()[0].spec.load_balancers.by_name.clone()
    };
    assert_eq!(load(example_with(WRITTEN, lines)), load(auto()));
}

#[test]
fn auto_without_node_ports_sends_to_pods() {
    let text = auto().replace(", nodePort: 30443}", "}").replace(
        "  type: LoadBalancer\n",
        "  type: LoadBalancer\n  allocateLoadBalancerNodePorts: false\n",
    );
    assert_eq!(
        balancers(&text),
        ["load balancer nginx of service default/nginx to its pods"]
    );
    let written = text.replace("  loadBalancers: auto\n", "").replace(
        "call: {from: pod/default/client, to",
        "call: {from: laptop, to",
    );
    assert!(load_diagnostics(&written).contains("target: pods"));
}

#[test]
fn auto_of_services_with_the_same_name_names_namespaces() {
    let service = auto();
    let start = service
        .find("---\napiVersion: v1\nkind: Service\n")
        .expect("a service");
    let end = start + service[start + 3..].find("---\n").expect("an end") + 3;
    let other = service[start..end]
        .replace("{name: nginx}", "{name: nginx, namespace: shop}")
        .replace("10.96.0.10", "10.96.0.11")
        .replace("30443", "30444")
        .replace("30100", "30101")
        .replace("172.18.0.100", "172.18.0.101");
    let text = format!("{service}\n{other}");
    let names: Vec<String> = balancers(&text)
        .iter()
        .map(|line| line.split(' ').nth(2).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(names, ["default-nginx", "shop-nginx"]);
}

#[test]
fn auto_without_an_address_warns() {
    let text = auto().replace(
        "status: {loadBalancer: {ingress: [{ip: 172.18.0.100}]}}\n",
        "",
    );
    assert_eq!(balancers(&text), Vec::<String>::new());
    insta::assert_snapshot!(load_diagnostics(&text));
}

#[test]
fn auto_follows_patches_of_services() {
    let text = auto().replace(
        "{patch: Service/default/nginx, merge: {spec: {externalTrafficPolicy: Cluster}}}",
        "{patch: Service/default/nginx, merge: {spec: {type: NodePort, externalTrafficPolicy: Cluster}}}",
    );
    let source = Source::from_text("example.yaml", text);
    let (scenario, _) = Scenario::load(&source.into()).expect("a lab");
    let counts = scenario
        .cases()
        .iter()
        .map(|case| case.made_objects().len());
    assert_eq!(counts.collect::<Vec<_>>(), [1, 1, 0, 0]);
}

#[test]
fn load_balancers_of_another_form_are_refused() {
    let seen: Vec<String> = ["automatic", "[auto]", "3", "{clb: auto}", ""]
        .map(|value| {
            load_diagnostics(&example_with(
                WRITTEN,
                &format!("  loadBalancers: {value}\n"),
            ))
        })
        .into();
    insta::assert_snapshot!(seen.join("\n\n"));
}
