//! Tests labs whose objects are in other files, and pods and load balancers that svclab makes.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::{LAB, run, stderr, stdout, svclab};

/// Deployment and Service as a project keeps them, with the fields that an API server assigns.
const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: nginx, ports: [{name: http, containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  selector: {app: web}
  ports: [{port: 80, targetPort: http, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}
";

/// Writes the good lab with its nodes and pods, and the Deployment, in other files.
fn write_files(directory: &Path) -> String {
    let documents: Vec<&str> = LAB.split("---\n").collect();
    let [lab, node, client, _, _] = documents.as_slice() else {
        panic!("the good lab has five documents");
    };
    let lab = lab
        .replacen(
            "spec:\n",
            "spec:\n  objects: [cluster/nodes.yaml, web.yaml]\n",
            1,
        )
        .replacen("  axes:\n", "  loadBalancers: auto\n  axes:\n", 1)
        .replace("connected: 1, endpoints: [web]", "connected: 1");
    fs::create_dir(directory.join("cluster")).expect("created");
    let nodes = format!("{node}---\n{client}");
    for (name, text) in [
        ("lab.yaml", &*lab),
        ("cluster/nodes.yaml", &nodes),
        ("web.yaml", WEB),
    ] {
        fs::write(directory.join(name), text).expect("written");
    }
    directory.join("lab.yaml").display().to_string()
}

fn succeeded(output: &Output) -> String {
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        stdout(output),
        stderr(output)
    );
    stdout(output)
}

#[test]
fn lab_with_objects_in_files_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = write_files(directory.path());
    let listed = succeeded(&run(&["list", "--verbose", &lab]));
    insta::assert_snapshot!(listed.replace(&*directory.path().to_string_lossy(), "DIR"));
    let case = format!("{lab}/policy=Cluster");
    let report = directory.path().join("report");
    let report_argument = format!("--report={}", report.display());
    let results = run(&[
        "run",
        "--kernel=auto",
        "--format=json",
        &report_argument,
        &case,
    ]);
    if results.status.code() == Some(3) {
        // Neither the host nor a guest has IPVS.
        return;
    }
    let results: Value = serde_json::from_str(&succeeded(&results)).expect("JSON");
    let made = results["cases"][0]["made"].as_array().expect("lines");
    assert_eq!(made.len(), 3, "{made:?}");
    let page = fs::read_to_string(report.join("lab/policy=Cluster/index.html")).expect("a page");
    assert!(
        page.contains("web.yaml") && page.contains("image: nginx"),
        "no objects"
    );
    assert!(
        page.contains("pod/default/web-1 of Deployment web on node-1"),
        "no pods"
    );
}

#[test]
fn lab_on_standard_input_uses_the_current_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = write_files(directory.path());
    let output = svclab()
        .current_dir(directory.path())
        .args(["list", "-"])
        .stdin(Stdio::from(fs::File::open(lab).expect("the lab")))
        .output()
        .expect("the command starts");
    assert_eq!(succeeded(&output), "-/policy=Cluster\n-/policy=Local\n");
}

#[test]
fn rules_and_import_read_objects_of_a_lab() {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = write_files(directory.path());
    let rules = succeeded(&run(&["rules", "--kube-version=v1.30", &lab]));
    assert!(
        rules.contains("default/web") && rules.contains("10.244.1.2:8080"),
        "{rules}"
    );
    let imported = succeeded(&run(&["import", &lab]));
    assert!(
        imported.contains("name: web-1") && imported.contains("192.0.2.10"),
        "{imported}"
    );
}

#[test]
fn objects_outside_the_directory_need_permission() {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = write_files(directory.path());
    let labs = directory.path().join("labs");
    fs::create_dir(&labs).expect("created");
    let text = fs::read_to_string(&lab).expect("read");
    let text = text.replace(
        "[cluster/nodes.yaml, web.yaml]",
        "[../cluster/nodes.yaml, ../web.yaml]",
    );
    let lab = labs.join("lab.yaml").display().to_string();
    fs::write(&lab, text).expect("written");
    for command in [
        "list", "labs", "plan", "run", "explain", "why", "graph", "claims",
    ] {
        let output = run(&[command, &lab]);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{command}: {}",
            stderr(&output)
        );
        assert!(stderr(&output).contains("--allow-outside"), "{command}");
    }
    for command in ["list", "labs", "plan"] {
        succeeded(&run(&[command, "--allow-outside", &lab]));
    }
}

#[test]
fn object_of_another_file_has_its_place_in_results() {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = write_files(directory.path());
    let web = directory.path().join("web.yaml");
    fs::write(&web, WEB.replacen("port: 80,", "port: many,", 1)).expect("written");
    let output = run(&["run", "--format=json", &lab]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let results: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let location = &results["cases"][0]["location"];
    assert_eq!(location["file"], web.display().to_string());
    let text = stderr(&output).replace(&*directory.path().to_string_lossy(), "DIR");
    insta::assert_snapshot!(text);
}
