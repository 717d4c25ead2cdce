//! Texts of users with markup and control characters stay texts.

use std::fs;

use serde_json::{Value, json};

use crate::Shared;
use crate::quiet::assert_quiet;
use crate::report::{self, Case, Layout, Report};
use crate::view::View;
use crate::webdriver::Browser;

/// Markup without the characters that names of cases may not contain: whitespace, `=`, `,` and `/`.
const MARKUP: &str = "<script>alert(1)<svg><style>&lt;\"'";

/// Markup that runs a script if it is inserted without escaping.
const SCRIPT: &str = "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'";

/// Right-to-left override, and an escape sequence of a terminal.
const CONTROLS: &str = "\u{202e}\u{1b}[31m";

/// Runs a lab with hostile texts, and one that is refused because of its texts.
pub fn report(layout: Layout) -> Report {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let labs = [
        // The comment is in the text of the lab, which the page contains.
        write(
            "hostile.yaml",
            format!("# \u{202e}{SCRIPT}\n{}", lab("hostile", SCRIPT)),
        ),
        write(
            "refused.yaml",
            lab("refused", &format!("{SCRIPT}{CONTROLS}")),
        ),
    ];
    Report::new(layout, &labs)
}

/// Returns a lab in which a pod calls a service on its node.
fn lab(name: &str, about: &str) -> String {
    // The longest name of a pod that Kubernetes allows.
    let pod = "x".repeat(253);
    let value = format!("{MARKUP}{}", "y".repeat(300));
    let probe = "z".repeat(63);
    let rule = "-A PREROUTING -m comment --comment \"<script>alert(3)</script>\" -j RETURN";
    let documents = [
        json!({"apiVersion": "svclab/v1", "kind": "Lab", "metadata": {"name": name}, "spec": {
            "about": about,
            "kubeProxy": {"version": "v1.30", "clusterCIDR": "10.244.0.0/16"},
            "nodes": {"node-1": {"byHand": {"iptables": ["*raw", rule]}}},
            "probes": {&probe: {
                "from": format!("pod/default/{pod}"), "to": "service/default/web:80",
            }},
            "axes": {MARKUP: {&value: []}},
            "claims": {SCRIPT: {"says": SCRIPT}},
            "expect": [{
                "when": {MARKUP: [value]}, "claims": [SCRIPT],
                &probe: {"connected": 1, "endpoints": ["web"]},
            }],
        }}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"},
            "spec": {"podCIDR": "10.244.1.0/24"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.50.11"}]}}),
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod, "namespace": "default"},
            "spec": {"nodeName": "node-1", "containers": [{"name": "client"}]},
            "status": {"podIP": "10.244.1.9"}}),
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"},
                "annotations": {"note": SCRIPT}},
            "spec": {"nodeName": "node-1",
                "containers": [{"name": "web", "ports": [{"containerPort": 8080}]}]},
            "status": {"podIP": "10.244.1.10"}}),
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"clusterIP": "10.96.0.10", "selector": {"app": "web"},
                "ports": [{"port": 80, "targetPort": 8080}]}}),
    ];
    documents
        .map(|document| document.to_string())
        .join("\n---\n")
}

/// Opens every page, and compares its elements with those that a report has.
pub fn check(shared: &Shared, layout: Layout) {
    let report = shared.hostile(layout);
    let browser = shared.browser();
    report.open_table(&browser);
    View::NARROW.apply(&browser);
    let cases = report::cases(&browser);
    let ran: Vec<bool> = cases.iter().map(Case::ran).collect();
    assert_eq!(ran, [true, false], "{cases:?}");
    assert!(cases[0].name.contains(MARKUP), "{cases:?}");
    assert_text_only(&browser_state(&browser));
    for case in &cases {
        // An open dialog fails every command.
        case.open(&browser);
        browser.run(
            "document.querySelectorAll('details').forEach((each) => { each.open = true; })",
            &[],
        );
        let state = browser_state(&browser);
        assert_text_only(&state);
        let text = state["text"].as_str().expect("a text");
        let texts: &[&str] = if case.ran() {
            &[SCRIPT, MARKUP, "<script>alert(3)</script>"]
        } else {
            &["control character U+202E is not allowed"]
        };
        for part in texts {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }
    assert_quiet(&browser, "the report");
}

/// Returns the names of all elements that no report has, the number of running scripts, and the text.
fn browser_state(browser: &Browser) -> Value {
    browser.run(
        "const scripts = [...document.scripts]
           .filter((script) => !script.type || script.type === 'text/javascript');
         const foreign = [...document.querySelectorAll('img, iframe, object, embed, base, link, b')];
         const styles = [...document.querySelectorAll('style')];
         return {
           scripts: scripts.length, styles: styles.length,
           foreign: foreign.map((each) => each.outerHTML), text: document.body.textContent,
         };",
        &[],
    )
}

/// Asserts that the page has only its own elements, and no control characters.
#[track_caller]
fn assert_text_only(state: &Value) {
    assert_eq!(state["scripts"], 1);
    assert_eq!(state["styles"], 1);
    assert_eq!(state["foreign"], json!([]));
    let text = state["text"].as_str().expect("a text");
    assert!(!text.contains(['\u{202e}', '\u{1b}']), "{text}");
}
