//! Tests `svclab report`: pages about finished runs, and comparisons of runs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Output;

use data_encoding::BASE64;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{LAB, assert_matches_schema, run, stderr, stdout, write_lab};

/// Two runs with evidence, of one case each.
struct Shards {
    directory: TempDir,
    _lab: TempDir,
}

impl Shards {
    fn run() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (lab, path) = write_lab(LAB);
        for policy in ["Local", "Cluster"] {
            let case = format!("{}/policy={policy}", path.display());
            let report = format!("--report={}", directory.path().join(policy).display());
            let output = run(&["run", "--kernel=host", &report, &case]);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        }
        Self {
            directory,
            _lab: lab,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `svclab report` in the directory of the shards.
    fn report(&self, arguments: &[&str]) -> Output {
        crate::support::svclab()
            .current_dir(self.directory.path())
            .arg("report")
            .args(arguments)
            .output()
            .expect("the command starts")
    }

    /// Copies the results of a shard to a file, with changes.
    fn changed_results(&self, shard: &str, name: &str, change: impl Fn(&mut Value)) {
        let mut results = read_results(&self.path(shard));
        change(&mut results);
        fs::write(self.path(name), results.to_string()).expect("the file is written");
    }
}

fn read_results(run: &Path) -> Value {
    let text = fs::read(run.join("results.json")).expect("results");
    serde_json::from_slice(&text).expect("JSON")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a page")
}

#[test]
fn report_of_shards_contains_every_case() {
    let shards = Shards::run();
    let output = shards.report(&["Local", "Cluster", "--output=all.html"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = read(&shards.path("all.html"));
    assert!(page.contains("2 passed, 0 failed, 0 errors"), "{page}");
    assert_eq!(page.matches("data-section=\"case-").count(), 2);
    assert!(page.contains("svclab run '--kernel=host'"), "{page}");

    let output = shards.report(&["Local", "Cluster", "--output", "all"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = read(&shards.path("all/index.html"));
    let links = page.split("href=\"").skip(1);
    let links: Vec<&str> = links.filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(links.len(), 2, "{links:?}");
    for link in links {
        let case = read(&shards.path("all").join(link));
        assert!(
            case.contains("<svg") && case.contains("Run it again"),
            "{case}"
        );
    }
}

#[test]
fn report_one_case_is_complete_and_earlier_evidence_is_unused() {
    let shards = Shards::run();
    let output = shards.report(&["Local", "--output=one.html"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = read(&shards.path("one.html"));
    assert!(
        page.contains("<svg") && page.contains("capture.pcapng.gz"),
        "{page}"
    );

    // Results of a later run, whose evidence was not written.
    let mut results = read_results(&shards.path("Local"));
    results["cases"][0]["durationMs"] = json!(1_000_000);
    fs::write(shards.path("Local/results.json"), results.to_string()).expect("results");
    let output = shards.report(&["Local", "--output=one.html"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = read(&shards.path("one.html"));
    assert!(
        page.contains("1000.00 s") && !page.contains("<svg"),
        "{page}"
    );
}

#[test]
fn report_of_shards_contains_captures_of_shown_connections() {
    let directory = tempfile::tempdir().expect("a directory");
    let (lab, path) = write_lab(LAB.replace("web:80\"}", "web:80\", connections: 40}"));
    let lab_text = read(&path).replace("connected: 1", "connected: 40");
    fs::write(&path, lab_text).expect("the lab is written");
    let (run_directory, page) = (
        directory.path().join("run"),
        directory.path().join("run.html"),
    );
    let report = format!("--report={}", run_directory.display());
    let case = format!("{}/policy=Local", path.display());
    let output = run(&["run", "--kernel=host", &report, &case]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let arguments = [run_directory.display(), page.display()].map(|path| path.to_string());
    let output = run(&["report", &arguments[0], "--output", &arguments[1]]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    drop(lab);

    let page = read(&page);
    assert!(
        page.contains("contain the connections that the page shows"),
        "{page}"
    );
    let (_, embedded) = page
        .split_once("data:application/gzip;base64,")
        .expect("a capture");
    let (embedded, _) = embedded.split_once('"').expect("the end of the capture");
    let embedded = BASE64.decode(embedded.as_bytes()).expect("Base64");
    let mut shown = Vec::new();
    GzDecoder::new(&*embedded)
        .read_to_end(&mut shown)
        .expect("a compressed capture");
    let complete =
        fs::read(run_directory.join("lab/policy=Local/capture.pcapng")).expect("a capture");
    let (shown, complete) = (shown.len(), complete.len());
    assert!(
        shown > 1000 && shown * 10 < complete,
        "{shown} of {complete} bytes"
    );
}

#[test]
fn report_link_in_a_run_adds_no_file_of_this_machine() {
    let shards = Shards::run();
    let secret = shards.path("secret");
    fs::write(&secret, "a secret of this machine").expect("a file");
    let evidence = shards.path("Local/lab/policy=Local/evidence.json.gz");
    fs::remove_file(&evidence).expect("the evidence exists");
    std::os::unix::fs::symlink(&secret, &evidence).expect("a link");
    let output = shards.report(&["Local", "--output=linked.html"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("evidence.json.gz"), "{message}");
    assert!(!shards.path("linked.html").exists());
}

#[test]
fn report_baseline_new_failure_or_missing_case_fails() {
    let shards = Shards::run();
    shards.changed_results("Local", "failed.json", |results| {
        results["cases"][0]["result"] = json!("fail");
        results["cases"][0]["probes"][0]["observed"] =
            json!({"timeout": 1, "endpoints": [], "seenSources": []});
        results["cases"][0]["durationMs"] = json!(3_000);
        results["summary"] = json!({"passed": 0, "failed": 1, "errors": 0});
    });
    shards.changed_results("Local", "empty.json", |results| {
        results["cases"] = json!([]);
    });
    let compare = |runs: &[&str]| {
        let output = shards.report(&[runs, &["--output=changes.html"]].concat());
        (output.status.code(), stdout(&output))
    };
    let (code, text) = compare(&["failed.json", "--baseline=Local"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("new failures: 1"), "{text}");
    assert!(text.contains("now FAIL in 3.00 s"), "{text}");
    assert!(read(&shards.path("changes.html")).contains("New failures (1)"));
    let (code, text) = compare(&["Local", "--baseline=failed.json"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("fixed: 1"), "{text}");
    let (code, text) = compare(&["empty.json", "--baseline=Local"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("not run any more: 1"), "{text}");
    let (code, text) = compare(&["Local", "Cluster", "--baseline=Local"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("only in the new run: 1"), "{text}");
}

#[test]
fn report_of_anything_but_runs_is_refused() {
    let shards = Shards::run();
    fs::write(shards.path("text.json"), "not JSON").expect("a file");
    fs::create_dir(shards.path("none")).expect("a directory");
    shards.changed_results("Local", "other.json", |results| {
        results["schema"] = json!("svclab/other/v1");
    });
    let evidence = shards.path("Cluster/lab/policy=Cluster/evidence.json.gz");
    fs::write(&evidence, compressed(b"{}")).expect("a file");
    let refuse = |arguments: &[&str]| {
        let output = shards.report(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(!shards.path("x.html").exists());
        stderr(&output)
    };
    let mut refused: Vec<String> = [
        &["text.json", "--output=x.html"][..],
        &["none", "--output=x.html"],
        &["other.json", "--output=x.html"],
        &["Cluster", "--output=x.html"],
        &["/dev/zero", "--output=x.html"],
        &["Local", "Local", "--output=x.html"],
        &["Local", "--baseline=nowhere", "--output=x.html"],
    ]
    .iter()
    .map(|arguments| refuse(arguments))
    .collect();
    for damaged in [b"{}".to_vec(), compressed(b"{}")[..12].to_vec()] {
        fs::write(&evidence, damaged).expect("a file");
        refused.push(refuse(&["Cluster", "--output=x.html"]));
    }
    insta::assert_snapshot!(refused.join("\n"));
}

fn compressed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

/// The node-to-service probe of the second write-up, with its stale rule.
const STALE: &str = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";

#[test]
fn explain_report_shows_packets_and_own_command() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("new/page.html");
    let argument = format!("--report={}", page.display());
    let output = run(&["explain", "--kernel=host", &argument, STALE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = read(&page);
    for part in [
        "<title>svclab explain canal-stale-rule",
        "call: the connection times out",
        "<svg",
        "not searched; <code>svclab why",
        "<code>svclab explain '--kernel=host' '--report=",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn why_report_shows_fix_with_packets() {
    let directory = tempfile::tempdir().expect("a directory");
    let report = directory.path().join("report");
    let argument = format!("--report={}", report.display());
    let output = run(&["why", "--kernel=host", &argument, STALE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let answer = read(&report.join("answer.txt"));
    assert_eq!(answer, stdout(&output));
    let document: Value =
        serde_json::from_str(&read(&report.join("answer.json"))).expect("a document");
    assert_matches_schema(&document, include_str!("../../schema/why.v1.json"));
    let index = read(&report.join("index.html"));
    assert!(
        index.contains("<title>svclab why canal-stale-rule"),
        "{index}"
    );
    assert!(!report.join("junit.xml").exists() && !report.join("results.json").exists());
    let case = read(&report.join(STALE).join("index.html"));
    assert!(case.contains("node-1# </span><code>iptables"), "{case}");
    assert!(case.contains("<svg"), "{case}");
}

#[test]
fn report_of_other_commands_unwritable_is_refused_at_once() {
    let commands: [&[&str]; 3] = [
        &["explain", "--kernel=host", STALE],
        &["why", "--kernel=host", STALE],
        &["bisect", "--good", STALE, "--bad", STALE],
    ];
    for command in commands {
        for path in ["/proc/none", "/proc/none.html"] {
            let output = run(&[command, &["--report", path]].concat());
            assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
            assert!(stderr(&output).contains(path), "{}", stderr(&output));
        }
    }
}
