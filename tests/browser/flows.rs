//! The table of flows.

use std::fs;

use serde_json::json;

use crate::Shared;
use crate::quiet::assert_quiet;
use crate::report::{self, Layout, Report};

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
      - {when: {door: closed}, timeout: all, because: the rule drops the packet}
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

/// The table marks the flow that differs between cases, and a box hides the other.
pub fn check(shared: &Shared, layout: Layout) {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = directory.path().join("doors.yaml");
    fs::write(&lab, LAB).expect("a file");
    let report = Report::new(layout, &[lab.display().to_string()]);
    let browser = shared.browser();
    report.open_table(&browser);
    let visible = || {
        browser.run(
            "return [...document.querySelectorAll('.flows tbody tr')]
               .filter((row) => row.checkVisibility())
               .map((row) => [row.querySelector('th').firstChild.textContent.trim(),
                 row.classList.contains('differs')]);",
            &[],
        )
    };
    assert_eq!(visible(), json!([["first ≠", true], ["second", false]]));
    let text = browser.run("return document.querySelector('.flows').textContent;", &[]);
    let text = text.as_str().expect("a text");
    for expected in ["timeout", "web from client", "the rule drops the packet"] {
        assert!(text.contains(expected), "{text}");
    }
    let field = browser.run("return document.querySelector('.differing input');", &[]);
    browser.click(&field);
    assert_eq!(visible(), json!([["first ≠", true]]));
    browser.click(&field);
    assert_eq!(visible().as_array().map(Vec::len), Some(2));
    assert_eq!(report::cases(&browser).len(), 2);
    assert_quiet(&browser, "the table of flows");
}
