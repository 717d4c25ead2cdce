//! The table of flows.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::quiet::assert_quiet;
use crate::report::{self, Layout, Report};
use crate::webdriver::Browser;
use crate::{Shared, layout};
use svclab_test_support::fake_kube_proxy::{SYNCS, write_fake_kube_proxy};

/// Lab with two flows. In one of its two cases, a rule drops the packets of the first.
const LAB: &str = r#"
apiVersion: svclab/v1
kind: Lab
metadata: {name: doors}
spec:
  about: A rule of the node drops packets to one of two services.
  kubeProxy: {version: v1.30, clusterCIDR: 10.244.0.0/16}
  axes:
    door:
      open: []
      closed:
      - patch: Lab
        merge:
          spec:
            nodes:
              node-1: {byHand: {iptables: ["*raw", "-A PREROUTING -d 10.96.0.10/32 -j DROP"]}}
  flows:
    first:
      from: pod/default/client
      to: service/default/first:80
      expect:
      - {when: {door: closed}, timeout: all, because: the rule drops the packet, source: the lab}
      - {connected: all, because: nothing drops the packet}
    second:
      from: pod/default/client
      to: service/default/second:80
      expect:
      - {connected: all, because: the rule is about the other service}
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
spec: {nodeName: node-1, containers: [{name: web}]}
status: {podIP: 10.244.1.10}
---
apiVersion: v1
kind: Service
metadata: {name: first, namespace: default}
spec: {clusterIP: 10.96.0.10, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: second, namespace: default}
spec: {clusterIP: 10.96.0.11, selector: {app: web}, ports: [{port: 80}]}
"#;

/// Returns the visible rows: the name of the flow, and whether its columns differ.
fn visible_rows(browser: &Browser) -> Value {
    browser.run(
        "return [...document.querySelectorAll('.flows tbody tr')]
           .filter((row) => row.checkVisibility())
           .map((row) => [row.querySelector('th').firstChild.textContent.trim(),
             row.classList.contains('differs')]);",
        &[],
    )
}

/// Clicks the box that hides rows whose columns agree.
fn click_box(browser: &Browser) {
    let field = browser.run("return document.querySelector('.differing input');", &[]);
    browser.click(&field);
}

/// Returns the text of an element.
fn text_of(browser: &Browser, selector: &str) -> String {
    let text = browser.run(
        "return document.querySelector(arguments[0]).textContent;",
        &[json!(selector)],
    );
    text.as_str().expect("a text").to_owned()
}

/// The table marks the flow that differs between cases, and a box hides the other.
pub fn check(shared: &Shared, layout: Layout) {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = directory.path().join("doors.yaml");
    fs::write(&lab, LAB).expect("a file");
    let report = Report::new(layout, &[lab.display().to_string()]);
    let browser = shared.browser();
    report.open_table(&browser);
    assert_eq!(
        visible_rows(&browser),
        json!([["first ≠", true], ["second", false]])
    );
    let text = text_of(&browser, ".flows");
    for expected in ["timeout", "web from client", "the rule drops the packet"] {
        assert!(text.contains(expected), "{text}");
    }
    click_box(&browser);
    assert_eq!(visible_rows(&browser), json!([["first ≠", true]]));
    click_box(&browser);
    assert_eq!(visible_rows(&browser).as_array().map(Vec::len), Some(2));
    assert_eq!(report::cases(&browser).len(), 2);
    assert_quiet(&browser, "the table of flows");
}

/// The page of `verify` has all compared flows, and shows those that differ at first. A kube-proxy
/// without rules changes the flow to the service only.
pub fn check_verification(shared: &Shared, _: Layout) {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = directory.path().join("doors.yaml");
    let text = LAB.replace("service/default/second:80", "pod/default/web:80");
    assert_ne!(text, LAB);
    fs::write(&lab, text).expect("a file");
    let page = directory.path().join("verify.html");
    let output = Command::new(crate::SVCLAB)
        .args(["verify", "--kernel=host", "--kube-proxy"])
        .arg(write_fake_kube_proxy(directory.path(), SYNCS))
        .arg("--report")
        .args([&page, &lab])
        .output()
        .expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let browser = shared.browser();
    browser.open(&format!("file://{}", page.display()));
    report::wait_for_table(&browser);
    assert_eq!(visible_rows(&browser), json!([["first ≠", true]]));
    let text = text_of(&browser, ".compared");
    for expected in [
        "1 of 2 rows differ",
        "against: generated rules of v1.32",
        "new: kube-proxy v1.32.1",
        "timeout",
        "the rule drops the packet",
        "(the lab)",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    click_box(&browser);
    assert_eq!(
        visible_rows(&browser),
        json!([["first ≠", true], ["second", false]])
    );
    layout::write_screenshot(&browser, "verify");
    assert_quiet(&browser, "the page of verify");
}
