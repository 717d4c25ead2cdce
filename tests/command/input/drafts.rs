//! Tests labs that svclab writes: new ones, and ones from the objects of a cluster.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support::{stderr, stdout, svclab};

/// Objects of a cluster of kind with 3 nodes, as kubectl prints them.
const CLUSTER: &str = include_str!("kind.yaml");

fn run_in(directory: &Path, arguments: &[&str]) -> Output {
    svclab()
        .current_dir(directory)
        .args(arguments)
        .output()
        .expect("the command starts")
}

/// Runs the command and returns both outputs. Asserts the exit code.
fn text_of(directory: &Path, arguments: &[&str], code: i32) -> String {
    let output = run_in(directory, arguments);
    let text = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    text
}

#[test]
fn new_lab_passes_when_it_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, options) in [
        ("default", &[][..]),
        ("nftables", &["--mode=nftables"]),
        ("one-node", &["--nodes=1"]),
        ("many", &["--nodes=5", "--mode=nftables"]),
    ] {
        let new = [&["new", name][..], options].concat();
        let message = text_of(directory.path(), &new, 0);
        let file = format!("{name}.yaml");
        let expected = format!("wrote {file}; run it with `svclab run {file}`\n");
        assert_eq!(message, expected);
        let text = text_of(directory.path(), &["run", "--kernel=host", &file], 0);
        assert!(text.contains("2 passed, 0 failed, 0 errors"), "{text}");
    }
}

/// These labs need IPVS, so that not every machine can run them.
#[test]
fn new_lab_with_ipvs_can_be_prepared() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, options) in [
        ("ipvs", &["--mode=ipvs"][..]),
        ("balancer", &["--load-balancer"]),
        ("both", &["--load-balancer", "--mode=ipvs", "--nodes=1"]),
    ] {
        text_of(directory.path(), &[&["new", name][..], options].concat(), 0);
        let plan = text_of(directory.path(), &["plan", &format!("{name}.yaml")], 0);
        assert!(!plan.contains("warning"), "{plan}");
    }
}

#[test]
fn new_lab_name_and_file_are_checked() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("labs")).expect("a directory");
    let run = |arguments: &[&str], code| text_of(directory.path(), arguments, code);
    let texts = [
        run(&["new", "labs/mine.yaml"], 0),
        run(&["new", "labs/mine"], 2),
        run(&["new", "my lab"], 2),
        run(&["new", "none/mine"], 2),
        run(&["new", "x", "--nodes=0"], 2),
        run(&["new", "x", "--from=x.yaml", "--load-balancer"], 2),
        run(&["new", "x", "--from=x.yaml"], 2),
    ];
    insta::assert_snapshot!(texts.join("\n"));
    let text = fs::read_to_string(directory.path().join("labs/mine.yaml")).expect("the lab");
    assert!(text.contains("metadata: {name: mine}"), "{text}");
}

#[test]
fn import_writes_probes_of_reachable_things() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("kind.yaml"), CLUSTER).expect("written");
    let output = run_in(directory.path(), &["import", "kind.yaml"]);
    insta::assert_snapshot!(stderr(&output) + &stdout(&output));
    fs::write(directory.path().join("lab.yaml"), output.stdout).expect("written");
    text_of(directory.path(), &["plan", "lab.yaml"], 0);
}

/// Nodes that balancers do not use, nodes of Windows and of Fargate, sidecars, a balancer with health
/// checks, and programs that the objects do not configure.
#[test]
fn import_special_nodes_and_pods_are_as_in_the_cluster() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(
        directory.path().join("cloud.yaml"),
        include_str!("cloud.yaml"),
    )
    .expect("written");
    let output = run_in(directory.path(), &["import", "cloud.yaml"]);
    insta::assert_snapshot!(stderr(&output) + &stdout(&output));
    fs::write(directory.path().join("lab.yaml"), output.stdout).expect("written");
    text_of(directory.path(), &["plan", "lab.yaml"], 0);
    for (before, after, note) in [
        (
            "mode: ipvs",
            "mode: kernelspace",
            "not modelled: mode `kernelspace` of the ConfigMap",
        ),
        (
            "clusterCIDR: 10.244.0.0/16",
            "x: [",
            "its config.conf is not YAML",
        ),
    ] {
        let changed = include_str!("cloud.yaml").replacen(before, after, 1);
        fs::write(directory.path().join("other.yaml"), changed).expect("written");
        let text = text_of(directory.path(), &["import", "other.yaml"], 0);
        assert!(text.contains(note), "{text}");
    }
    let only_windows = "apiVersion: v1
kind: Node
metadata: {name: win, labels: {kubernetes.io/os: windows}}
status: {addresses: [{type: InternalIP, address: 10.0.0.9}]}
";
    fs::write(directory.path().join("windows.yaml"), only_windows).expect("written");
    let refused = text_of(directory.path(), &["import", "windows.yaml"], 2);
    assert!(refused.contains("no Node with Linux"), "{refused}");
}

/// The `ServiceLB` of k3s publishes addresses of nodes, so that there is no balancer.
#[test]
fn imported_load_balancer_with_address_of_node_passes() {
    let directory = tempfile::tempdir().expect("a directory");
    let objects = CLUSTER.replace("- ip: 172.18.255.200\n", "- ip: 172.18.0.3\n");
    assert_ne!(objects, CLUSTER);
    fs::write(directory.path().join("k3s.yaml"), &objects).expect("written");
    text_of(directory.path(), &["import", "k3s.yaml", "-o", "lab"], 0);
    let lab = fs::read_to_string(directory.path().join("lab.yaml")).expect("the lab");
    assert!(!lab.contains("loadBalancers"), "{lab}");
    assert!(lab.contains("load-balancer."), "{lab}");
    let text = text_of(directory.path(), &["run", "--kernel=host", "lab.yaml"], 0);
    assert!(text.contains("1 passed, 0 failed, 0 errors"), "{text}");
    let line = "spec:\n  loadBalancers: {lb: {service: shop/cart}}\n";
    let with_balancer = lab.replacen("spec:\n", line, 1);
    fs::write(directory.path().join("lab.yaml"), with_balancer).expect("written");
    let refused = text_of(directory.path(), &["plan", "lab.yaml"], 2);
    assert!(refused.contains("is the address of node"), "{refused}");
}

#[test]
fn import_of_endpoints_names_their_slices() {
    let directory = tempfile::tempdir().expect("a directory");
    let objects = "apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 172.18.0.11}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: web}
subsets: [{addresses: [{ip: 10.244.1.9}], ports: [{port: 8080}]}]
";
    fs::write(directory.path().join("all.yaml"), objects).expect("written");
    insta::assert_snapshot!(text_of(directory.path(), &["import", "all.yaml"], 2));
}

#[test]
fn import_several_json_documents_says_how_to_separate_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": []}"#;
    fs::write(
        directory.path().join("all.json"),
        format!("{list}\n{list}\n"),
    )
    .expect("written");
    insta::assert_snapshot!(text_of(directory.path(), &["import", "all.json"], 2));
}

#[test]
fn imported_lab_passes_when_it_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    // A load balancer needs IPVS, which not every machine has.
    let objects = CLUSTER.replace("type: LoadBalancer", "type: NodePort");
    let objects = objects.replace("- ip: 172.18.255.200\n", "- hostname: lb.example\n");
    let objects = objects.replace("        ipMode: VIP\n", "");
    assert!(!objects.contains("VIP"), "{objects}");
    fs::write(directory.path().join("kind.yaml"), objects).expect("written");
    for mode in ["iptables", "nftables"] {
        let file = format!("{mode}.yaml");
        let import = ["import", "kind.yaml", "--mode", mode, "--output", &file];
        let notes = text_of(directory.path(), &import, 0);
        assert!(notes.contains("it has a name, but no address"), "{notes}");
        let text = text_of(directory.path(), &["run", "--kernel=host", &file], 0);
        assert!(text.contains("1 passed, 0 failed, 0 errors"), "{text}");
    }
    text_of(directory.path(), &["new", "mine", "--from=kind.yaml"], 0);
    let text = text_of(directory.path(), &["run", "--kernel=host", "mine.yaml"], 0);
    assert!(text.contains("1 passed, 0 failed, 0 errors"), "{text}");
}

#[test]
fn import_reads_several_files_and_stdin() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("kind.yaml"), CLUSTER).expect("written");
    let whole = run_in(directory.path(), &["import", "kind.yaml"]);
    let input = fs::File::open(directory.path().join("kind.yaml")).expect("the file");
    fs::write(
        directory.path().join("more.json"),
        r#"{"apiVersion": "v1", "kind": "Secret"}"#,
    )
    .expect("written");
    let output = svclab()
        .current_dir(directory.path())
        .args(["import", "more.json", "-"])
        .stdin(input)
        .output()
        .expect("the command starts");
    assert_eq!(stdout(&output), stdout(&whole));
    assert!(
        stderr(&output).contains("1 of kind Secret"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn import_without_anything_to_connect_to_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {addresses: [{type: InternalIP, address: 10.0.0.1}]}\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n";
    let texts = [service, node, "kind: Service\n", "kind: [\n"].map(|objects| {
        fs::write(directory.path().join("objects.yaml"), objects).expect("written");
        text_of(directory.path(), &["import", "objects.yaml"], 2)
    });
    insta::assert_snapshot!(texts.join("\n"));
}

/// Returns the objects of a cluster whose nodes have no podCIDR. Pods have addresses of the nodes'
/// subnet, as with the network plugin of AWS.
fn cloud_objects() -> String {
    let mut documents = Vec::new();
    for node in 1..=3 {
        documents.push(format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: ip-10-0-{node}-5}}\nstatus: {{addresses: [{{type: InternalIP, address: 10.0.{node}.5}}]}}\n---\n"
        ));
        for (app, pod) in [("web", 70), ("client", 80)] {
            documents.push(format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {app}-{node}, namespace: shop, labels: {{app: {app}}}}}\nspec: {{nodeName: ip-10-0-{node}-5, containers: [{{name: main}}]}}\nstatus: {{phase: Running, podIP: 10.0.{node}.{}}}\n---\n",
                pod + node
            ));
        }
    }
    documents.concat()
        + "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {type: NodePort, clusterIP: 172.20.0.10, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}\n"
}

/// With a subnet for each node, with one for all nodes, and with a podCIDR that no pod uses.
#[test]
fn imported_lab_with_routed_pods_passes() {
    let directory = tempfile::tempdir().expect("a directory");
    let routed = cloud_objects();
    let switched = routed.replace("10.0.2.5}", "10.0.1.6}");
    let with_cidr = routed.replace(
        "\nstatus: {addresses: [{type: InternalIP, address: 10.0.3.5}",
        "\nspec: {podCIDR: 10.244.3.0/24}\nstatus: {addresses: [{type: InternalIP, address: 10.0.3.5}",
    );
    for (name, objects) in [
        ("routed", routed),
        ("switched", switched),
        ("cidr", with_cidr),
    ] {
        fs::write(directory.path().join("objects.yaml"), objects).expect("written");
        let notes = text_of(directory.path(), &["new", name, "--from=objects.yaml"], 0);
        assert_eq!(notes.matches("note:").count(), 1, "{notes}");
        assert!(notes.contains("no node states its version"), "{notes}");
        let file = directory.path().join(format!("{name}.yaml"));
        let lab = fs::read_to_string(&file).expect("the lab");
        // Every client reaches every endpoint, on its own node and on the others.
        let all = (1..=3).map(|node| {
            format!("    all-{node}: {{from: pod/shop/client-{node}, to: \"service/shop/web:80\", connections: 30}}\n")
        });
        let lab = lab.replacen(
            "  probes:\n",
            &format!("  probes:\n{}", all.collect::<String>()),
            1,
        );
        let expected = "{connected: 30, endpoints: [web-1, web-2, web-3]}";
        let expected = (1..=3).map(|node| format!("    all-{node}: {expected}\n"));
        let row = format!("  - when: {{}}\n{}", expected.collect::<String>());
        let lab = lab.replacen("  - when: {}\n", &row, 1);
        fs::write(&file, lab).expect("written");
        let text = text_of(
            directory.path(),
            &["run", "--kernel=host", &format!("{name}.yaml")],
            0,
        );
        assert!(
            text.contains("1 passed, 0 failed, 0 errors") && !text.contains("warning"),
            "{text}"
        );
    }
}

/// Returns the objects of a cluster with these families, with external IPs of both of them.
fn objects_of_families(families: &[&str]) -> String {
    let list = |v4: &str, v6: &str| {
        let own = families.iter().map(|family| match *family {
            "IPv4" => format!("\"{v4}\""),
            _ => format!("\"{v6}\""),
        });
        own.collect::<Vec<_>>().join(", ")
    };
    let mut documents = Vec::new();
    for node in 1..=2 {
        let cidrs = list(
            &format!("10.244.{node}.0/24"),
            &format!("fd00:10:244:{node}::/64"),
        );
        let address = list(&format!("172.18.0.{node}"), &format!("fd00:172::{node}"));
        let first = |list: &str| list.split(", ").next().unwrap_or_default().to_owned();
        let addresses: Vec<String> = address
            .split(", ")
            .map(|address| format!("{{type: InternalIP, address: {address}}}"))
            .collect();
        documents.push(format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: node-{node}}}\nspec: {{podCIDR: {}, podCIDRs: [{cidrs}]}}\nstatus: {{addresses: [{}]}}\n",
            first(&cidrs),
            addresses.join(", ")
        ));
        let ips = list(
            &format!("10.244.{node}.7"),
            &format!("fd00:10:244:{node}::7"),
        );
        let pod_ips: Vec<String> = ips.split(", ").map(|ip| format!("{{ip: {ip}}}")).collect();
        documents.push(format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web-{node}, namespace: shop, labels: {{app: web-{node}}}}}\nspec: {{nodeName: node-{node}, containers: [{{name: main}}]}}\nstatus: {{phase: Running, podIP: {}, podIPs: [{}]}}\n",
            first(&ips),
            pod_ips.join(", ")
        ));
        let cluster_ips = list(&format!("10.96.0.{node}"), &format!("fd00:96::{node}"));
        let external = list(&format!("192.0.2.{node}"), &format!("2001:db8:9::{node}"));
        let policy = if node == 1 { "Cluster" } else { "Local" };
        documents.push(format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web-{node}, namespace: shop}}\nspec: {{type: NodePort, clusterIP: {}, clusterIPs: [{cluster_ips}], ipFamilies: [{}], ipFamilyPolicy: PreferDualStack, externalIPs: [{external}], externalTrafficPolicy: {policy}, selector: {{app: web-{node}}}, ports: [{{port: 80, targetPort: 8080, nodePort: 3008{node}}}]}}\n",
            first(&cluster_ips),
            families.join(", ")
        ));
    }
    documents.join("---\n")
}

#[test]
fn imported_lab_of_each_family_passes_when_it_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    for families in [
        &["IPv4"][..],
        &["IPv6"],
        &["IPv4", "IPv6"],
        &["IPv6", "IPv4"],
    ] {
        let name = families.join("-").to_ascii_lowercase();
        fs::write(
            directory.path().join("objects.yaml"),
            objects_of_families(families),
        )
        .expect("written");
        for mode in ["iptables", "nftables"] {
            let file = format!("{name}-{mode}.yaml");
            let import = ["import", "objects.yaml", "--mode", mode, "--output", &file];
            let notes = text_of(directory.path(), &import, 0);
            assert_eq!(notes.matches("note:").count(), 1, "{notes}");
            assert!(notes.contains("no node states its version"), "{notes}");
            let text = text_of(directory.path(), &["run", "--kernel=host", &file], 0);
            assert!(text.contains("1 passed, 0 failed, 0 errors"), "{text}");
        }
        let lab = fs::read_to_string(directory.path().join(format!("{name}-iptables.yaml")));
        let lab = lab.expect("the lab");
        let (head, _) = lab.split_once("\n---\n").expect("documents");
        insta::assert_snapshot!(name, head);
    }
}
