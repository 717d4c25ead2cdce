//! Tests the messages for common mistakes in a first lab.

use crate::support::{LAB, run, stderr, stdout, write_lab};

/// Prepares the lab with a replacement, and returns the messages.
fn messages(from: &str, to: &str) -> String {
    let text = LAB.replacen(from, to, 1);
    assert_ne!(text, LAB, "{from}");
    let (directory, path) = write_lab(text);
    let output = run(&["plan", &path.display().to_string()]);
    let code = output.status.code();
    let text = stderr(&output).replace(&directory.path().display().to_string(), "DIR");
    format!("# {to}\nexits {code:?}\n{text}")
}

#[test]
fn common_mistakes_have_helpful_messages() {
    let target = "\"service/default/web:80\"";
    let client = "podIP: 10.244.1.9";
    let texts = [
        // A port in quotes.
        messages("port: 80,", "port: \"80\","),
        // Targets in the notation of other programs.
        messages(target, "web:80"),
        messages(target, "web.default.svc.cluster.local:80"),
        messages(target, "\"web.default:80\""),
        messages(target, "api.shop.svc:80"),
        messages(target, "\"https://10.96.0.10/healthz\""),
        messages(target, "\"http://web.default:8080\""),
        messages(target, "client:80"),
        // A component that svclab does not model, and a field that does not exist.
        messages("  kubeProxy: {", "  cilium: {}\n  kubeProxy: {"),
        messages("  kubeProxy: {", "  podNetwork: {}\n  kubeProxy: {"),
        // Input and output of Helm.
        messages("name: lab}", "name: {{ .Release.Name }}}"),
        messages(
            "apiVersion: svclab/v1",
            "NAME: web\nMANIFEST:\n---\n  x: 1\n y: 2",
        ),
        // A load balancer that does not exist.
        messages(target, "\"lb/default/web:80\""),
        // An address of another network.
        messages(client, "podIP: 10.250.1.9"),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}

/// Prepares the lab with a service of type `NodePort` and a probe from a host to this target.
fn node_port_messages(target: &str, more: &str) -> String {
    let call = "call: {from: pod/default/client, to: \"service/default/web:80\"}";
    let spec = "spec:\n  clusterIP: 10.96.0.10";
    let ports = "ports: [{port: 80, targetPort: 8080}]";
    let text = LAB
        .replacen(call, &format!("call: {{from: laptop, to: \"{target}\"}}"), 1)
        .replacen(spec, "spec:\n  type: NodePort\n  clusterIP: 10.96.0.10", 1)
        .replacen(ports, "ports: [{port: 80, targetPort: 8080, nodePort: 30080}, {name: dns, port: 53, targetPort: 8080, protocol: UDP, nodePort: 30053}]", 1)
        .replace("seenSource: pod/default/client", "seenSource: any");
    let text = text.replace(", endpoints: [web], seenSource: any", "");
    let declared = "ports: [{containerPort: 8080}]";
    let both = "ports: [{containerPort: 8080}, {containerPort: 8080, protocol: UDP}]";
    let text = text.replacen(declared, both, 1);
    let text = text.replacen("    node-1:\n      leftovers: {iptables: []}\n", more, 1);
    let (directory, path) = write_lab(text.replacen("  nodes:\n  hosts", "  hosts", 1));
    let output = run(&["plan", &path.display().to_string()]);
    let code = output.status.code();
    let text = stderr(&output).replace(&directory.path().display().to_string(), "DIR");
    format!("# {target} {more}\nexits {code:?}\n{text}")
}

#[test]
fn probe_to_a_wrong_node_port_names_the_owner() {
    let by_hand = "    node-1: {byHand: {iptables: [\"*nat\", COMMIT]}}\n";
    let texts = [
        ("node-1:30080", ""),
        // Ports of nodes.
        ("node-1:30081", ""),
        ("192.168.50.11:30081", ""),
        ("node-1:80", ""),
        ("node-1:30053", ""),
        // The node port at other addresses.
        ("service/default/web:30080", ""),
        ("pod/default/web:30080", ""),
        // Manual rules may serve any port.
        ("node-1:30081", by_hand),
    ];
    let texts = texts.map(|(target, more)| node_port_messages(target, more));
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn load_balancer_address_without_balancer_warns() {
    let call = "call: {from: pod/default/client, to: \"service/default/web:80\"}";
    let from_outside = "call: {from: laptop, to: \"lb/default/web:80\"}";
    let spec = "spec:\n  clusterIP: 10.96.0.10";
    let balanced = "status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}\nspec:\n  type: LoadBalancer\n  clusterIP: 10.96.0.10";
    let (directory, path) = write_lab(
        LAB.replacen(call, from_outside, 1)
            .replacen(spec, balanced, 1),
    );
    let path = path.display().to_string();
    let text = stderr(&run(&["list", &path]));
    insta::assert_snapshot!(text.replace(&directory.path().display().to_string(), "DIR"));
}

/// flannel's plugin assigns addresses from podCIDRs only. Without flannel, the pods are routed.
#[test]
fn pod_outside_pod_cidr_with_flannel_is_refused() {
    let with_flannel = LAB.replacen(
        "  kubeProxy: {",
        "  flannel: {version: v0.25.2, network: 10.244.0.0/16}\n  kubeProxy: {",
        1,
    );
    let (directory, path) =
        write_lab(with_flannel.replacen("podIP: 10.244.1.10", "podIP: 10.245.1.10", 1));
    let output = run(&["plan", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output).replace(&directory.path().display().to_string(), "DIR");
    insta::assert_snapshot!(text);
}

/// The address of the new pod is outside the cluster CIDR, so kube-proxy masquerades its connection.
#[test]
fn step_that_adds_a_routed_pod_runs() {
    let step = "  steps:\n  - name: add\n    change: [{add: {apiVersion: v1, kind: Pod, metadata: {name: late, namespace: default}, spec: {nodeName: node-1, containers: [{name: late}]}, status: {podIP: 10.245.1.3}}}]\n    probes: {later: {from: pod/default/late, to: \"service/default/web:80\"}}\n";
    let text = LAB.replacen("  axes:\n", &format!("{step}  axes:\n"), 1);
    let row = "    call: {connected: 1, endpoints: [web], seenSource: pod/default/client}\n";
    let later = format!("{row}    later: {{connected: 1, seenSource: node-1}}\n");
    let (_directory, path) = write_lab(text.replace(row, &later));
    let output = run(&["run", "--kernel=host", &path.display().to_string()]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}
