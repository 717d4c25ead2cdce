//! Tests that the shown outputs are real: labs and commands of the documentation run and print the
//! text that is shown there.

use std::collections::BTreeSet;
use std::fs;
use std::process::Output;

use svclab_rules::kube_proxy::Version;
use svclab_rules::kube_proxy::history::NFTABLES_MODE;
use svclab_test_support::can_trace_drops;
use svclab_test_support::running::{Runtime, normalized};

use super::generated::UPDATE;
use super::{Page, pages};
use crate::support::{project, run, stderr, stdout, svclab, svclab_without_drops};

/// Path of the lab of README.md and of the tutorial.
const NODE_PORT: &str = "ci/labs/node-port.yaml";

/// Case of the pictures with reverse path filtering.
const STALE: &str = "canal-stale-rule/stale=present,rpFilter=1,underlay=passes";

/// Output below a command in a code block.
pub(super) struct Shown {
    /// Page of the block.
    page: String,
    pub(super) text: String,
}

/// Returns each output that a page shows below `$ COMMAND`.
pub(super) fn shown_outputs(command: &str) -> Vec<Shown> {
    let prompt = format!("$ {command}\n");
    let mut found = Vec::new();
    for page in pages() {
        for block in page.blocks() {
            if block.language != "console" {
                continue;
            }
            let Some((_, after)) = block.text.split_once(&prompt) else {
                continue;
            };
            // The block may continue with the next command.
            let text = match after.strip_prefix("$ ") {
                Some(_) => "",
                None => after.split("\n$ ").next().unwrap_or(after),
            };
            if !text.is_empty() {
                found.push(Shown {
                    page: page.path.display().to_string(),
                    text: text.to_owned(),
                });
            }
        }
    }
    found
}

/// Returns the output that exactly one page shows below `$ COMMAND`.
fn shown_output(command: &str) -> String {
    let mut shown = shown_outputs(command);
    assert_eq!(shown.len(), 1, "pages that show the output of `{command}`");
    shown.swap_remove(0).text
}

/// Asserts that all pages that show the output of a command show this output, as `comparable`
/// returns both.
fn assert_shown(command: &str, printed: &str, comparable: impl Fn(&str) -> Vec<String>) {
    let shown = shown_outputs(command);
    assert!(!shown.is_empty(), "no page shows the output of `{command}`");
    for Shown { page, text } in shown {
        assert_eq!(comparable(&text), comparable(printed), "{page}: {command}");
    }
}

/// Removes times, kernel releases and versions, which differ between machines.
fn without_varying_parts(line: &str) -> String {
    let line = line.split(" on Linux ").next().unwrap_or(line);
    let cut = line.rfind(['(']).filter(|_| line.ends_with(" s)"));
    let line = line[..cut.unwrap_or(line.len())].trim_end();
    let time = line.rfind(" in ").filter(|_| line.ends_with(" s"));
    line[..time.unwrap_or(line.len())].to_owned()
}

/// Returns the lines of an explanation without kernel releases, ports that the kernel chose, the
/// width of columns, which depends on these ports, and the number of packets that are not shown: a
/// busy machine ends a probe late, after more retransmissions.
fn explanation_lines(text: &str) -> Vec<String> {
    let without_ports = |word: &str| match word.split_once(':') {
        Some((address, port))
            if port.parse::<u16>().is_ok_and(|port| port >= 1024)
                && !["8080", "30080"].contains(&port) =>
        {
            format!("{address}:PORT")
        }
        _ => word.to_owned(),
    };
    let lines = text.lines().map(|line| {
        let line = line.split(", on ").next().unwrap_or(line);
        if line.trim_start().starts_with("and ") && line.contains(" more packets (-v") {
            return "and N more packets".to_owned();
        }
        let words = line.split_whitespace().map(without_ports);
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect()
}

/// Returns the blocks that contain the lab with this name.
fn labs(name: &str) -> Vec<String> {
    let metadata = format!("kind: Lab\nmetadata: {{name: {name}}}");
    let blocks = pages().into_iter().flat_map(|page| page.blocks());
    blocks
        .filter(|block| block.language == "yaml" && block.text.contains(&metadata))
        .map(|block| block.text)
        .collect()
}

/// Returns the lab with this name, which one page contains.
fn lab(name: &str) -> String {
    let mut found = labs(name);
    assert_eq!(found.len(), 1, "pages with the lab {name}");
    found.swap_remove(0)
}

pub(super) fn node_port_lab() -> String {
    fs::read_to_string(project().join(NODE_PORT)).expect("the lab can be read")
}

/// Writes a lab to a new directory, in which commands then run.
fn directory_with(file: &str, text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join(file), text).expect("the lab can be written");
    directory
}

/// Runs the command in a directory with a lab.
fn run_in(directory: &tempfile::TempDir, arguments: &[&str]) -> Output {
    svclab_without_drops()
        .current_dir(directory.path())
        .args(arguments)
        .output()
        .expect("the command starts")
}

/// Runs a lab and compares the output with all shown outputs.
fn check_lab_run(file: &str, text: &str) -> Output {
    let directory = directory_with(file, text);
    let output = run_in(&directory, &["run", file]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    check_run(&format!("svclab run {file}"), &stdout(&output));
    output
}

/// Compares the output of a run with all shown outputs.
fn check_run(command: &str, printed: &str) {
    // Cases are printed as they end.
    let by_case = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(without_varying_parts).collect();
        lines.sort();
        lines
    };
    assert_shown(command, printed, by_case);
    let last = |text: &str| vec![without_varying_parts(text.lines().last().expect("a line"))];
    assert_shown(command, printed, last);
}

#[test]
fn docs_node_port_lab_is_the_lab_of_ci() {
    let lab = node_port_lab();
    let (document, _) = lab.split_once("---\n").expect("several documents");
    // README.md shows the first document, the tutorial the whole file.
    assert_eq!(labs("node-port"), [document, &lab]);
}

#[test]
fn docs_lab_run_prints_shown_output() {
    let output = check_lab_run("node-port.yaml", &node_port_lab());
    assert_eq!(stderr(&output), "");
    let output = run(&["run", NODE_PORT]);
    check_run(&format!("svclab run {NODE_PORT}"), &stdout(&output));
}

#[test]
fn docs_balancer_lab_run_prints_shown_output() {
    let node_port = node_port_lab();
    let objects = node_port
        .split("---\n")
        .filter(|object| object.contains("kind: Node\n") || object.contains("kind: Pod\n"));
    let mut text = lab("balancer");
    for object in objects {
        text = format!("{text}---\n{object}");
    }
    check_lab_run("balancer.yaml", &text);
}

#[test]
fn docs_failed_expectation_prints_shown_output() {
    let text = node_port_lab();
    let changed = text.replace("seenSource: node-1", "seenSource: laptop");
    assert_ne!(changed, text);
    let directory = directory_with("node-port.yaml", &changed);
    let case = "node-port.yaml/policy=Cluster";
    let output = run_in(&directory, &["run", case]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = stdout(&output);
    check_run(&format!("svclab run {case}"), &printed);
    // The block of the reference has no command and no last line.
    let results = Page::read("docs/src/reference/results.md").blocks();
    let mut failures = results
        .iter()
        .filter(|block| block.text.starts_with("FAIL "));
    let failure = &failures.next().expect("a failure").text;
    assert_lines_printed(failure, &printed);
}

#[test]
fn docs_explanations_and_fix_match_shown_output() {
    let directory = directory_with("node-port.yaml", &node_port_lab());
    for (command, case) in [
        ("explain", "policy=Local"),
        ("explain", "policy=Cluster"),
        ("why", "policy=Local"),
    ] {
        let case = format!("node-port.yaml/{case}");
        let output = run_in(&directory, &[command, &case]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let printed = stdout(&output);
        let short = format!("svclab {command} {case}");
        assert_shown(&short, &printed, explanation_lines);
        if case.ends_with("Local") {
            let long = format!("svclab {command} ci/labs/{case}");
            assert_shown(&long, &printed, explanation_lines);
        }
    }
}

#[test]
fn docs_fix_of_stale_rule_matches_shown_output() {
    // Without records of drops, the reason has other words.
    if !can_trace_drops() {
        return;
    }
    let output = run(&["why", "--kernel=host", STALE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let comparable = |text: &str| {
        let lines = explanation_lines(&normalized(text)).join(" ");
        // The width of the lines depends on the ports.
        lines.split(' ').map(str::to_owned).collect()
    };
    assert_shown(&format!("svclab why {STALE}"), &stdout(&output), comparable);
}

/// Draws the pictures and compares them with the committed files. With `UPDATE_DOCS=1`, the test
/// writes the files instead.
#[test]
fn docs_pictures_show_current_packets() {
    let node_port = |case: &str| format!("{NODE_PORT}/policy={case}");
    for (file, case, needs_drops) in [
        ("node-port-local.svg", node_port("Local"), false),
        ("node-port-cluster.svg", node_port("Cluster"), false),
        ("stale-rule.svg", STALE.to_owned(), true),
    ] {
        if needs_drops && !can_trace_drops() {
            continue;
        }
        let output = run(&["graph", "--kernel=host", "--probe=call", &case]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let path = project().join("docs/src/images").join(file);
        let current = labels(&stdout(&output));
        let committed = || labels(&fs::read_to_string(&path).unwrap_or_default());
        if std::env::var_os(UPDATE).is_some() && committed() != current {
            fs::write(&path, &output.stdout).expect("the picture can be written");
        }
        assert_eq!(
            current,
            committed(),
            "{file} is not current\nhelp: run `{UPDATE}=1 cargo test --test command docs`"
        );
    }
}

/// Returns the texts of a picture without ports. Their number of digits changes the layout.
fn labels(svg: &str) -> Vec<String> {
    let texts = svg.split('>').filter_map(|part| part.split('<').next());
    let texts = texts.filter(|text| !text.trim().is_empty() && !text.contains('{'));
    texts.flat_map(explanation_lines).collect()
}

#[test]
fn docs_balancer_properties_match_schema() {
    let schema = fs::read_to_string(project().join("tests/schema/lab.v1.json"));
    let schema: serde_json::Value =
        serde_json::from_str(&schema.expect("the schema can be read")).expect("JSON");
    let properties = &schema["$defs"]["LoadBalancerSpec"]["properties"];
    let properties: BTreeSet<&str> = properties
        .as_object()
        .expect("properties")
        .keys()
        .map(String::as_str)
        .collect();
    let text = Page::read("docs/src/reference/lab-file.md").text;
    let (_, section) = text.split_once("## Load balancers\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let shown: BTreeSet<&str> = rows
        .filter_map(|row| row.split(['`', ':']).next())
        .collect();
    assert_eq!(shown, properties);
}

#[test]
fn docs_running_lab_prints_shown_output() {
    let directory = directory_with("node-port.yaml", &node_port_lab());
    let file = directory.path().join("node-port.yaml");
    let runtime = Runtime::new(svclab_without_drops);
    let printed = runtime.up(&format!("{}/policy=Local", file.display()));
    let plain = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("Log: "));
        lines.map(without_varying_parts).collect()
    };
    let command = "svclab up --detach node-port.yaml/policy=Local";
    assert_shown(command, &printed, plain);
    // Checks that the suggested commands work, and the commands of the table.
    let chapter = Page::read("docs/src/howto/running-labs.md").text;
    for (command, code) in [
        ("exec node-1 -- ip route", 0),
        ("exec node-1 -- iptables-save", 0),
        ("probe host/laptop node-1:30080 --connections 4", 1),
        ("probe host/laptop node-1:30080 --explain", 1),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(chapter.contains(&format!("svclab {command}")), "{command}");
        let output = runtime.run(&words);
        assert_eq!(output.status.code(), Some(code), "{command}: {output:?}");
    }
    // Compares the explanations of packets, before and after a manual change.
    for (command, code) in [
        ("explain --running", 0),
        ("exec node-2 -- sysctl -w net.ipv4.ip_forward=0", 0),
        ("probe host/laptop node-2:30080 --explain", 1),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let output = runtime.run(&words);
        assert_eq!(output.status.code(), Some(code), "{command}: {output:?}");
        let without_counts = |text: &str| {
            // The number of transmissions within the wait depends on the kernel.
            let lines = (1..10).fold(normalized(text), |text, count| {
                text.replace(&format!("increased by {count}"), "increased by N")
                    .replace(&format!("packets: {count}"), "packets: N")
            });
            let lines = lines.lines().map(|line| {
                let line = line.split(", on ").next().unwrap_or(line);
                format!("{line}\n")
            });
            lines.collect::<String>()
        };
        let prompt = format!("$ svclab {command}\n");
        assert!(chapter.contains(&prompt), "{command}");
        for Shown { text, .. } in shown_outputs(&format!("svclab {command}")) {
            assert_lines_printed(&without_counts(&text), &without_counts(&stdout(&output)));
        }
    }
}

/// Asserts that every shown line is printed; `…` marks omitted lines.
pub(super) fn assert_lines_printed(shown: &str, printed: &str) {
    let printed: BTreeSet<String> = printed.lines().map(without_varying_parts).collect();
    let lines = shown.lines().filter(|line| !["…", ""].contains(line));
    assert_ne!(lines.clone().count(), 0);
    for line in lines {
        assert!(
            printed.contains(&without_varying_parts(line)),
            "not printed: {line}"
        );
    }
}

#[test]
fn docs_labs_and_claims_match_shown_results() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let results = directory.path().join("results.json");
    let ran = run(&["run", "--format", "json"]);
    assert_eq!(ran.status.code(), Some(0), "{}", stdout(&ran));
    fs::write(&results, &ran.stdout).expect("the results can be written");
    let claims = run(&["claims", "--from", &results.display().to_string()]);
    assert_eq!(claims.status.code(), Some(0), "{}", stderr(&claims));
    let claims = stdout(&claims);
    assert_lines_printed(&shown_output("svclab claims"), &claims);
    let is_claim = |line: &&str| line.starts_with('S') && line.contains('-');
    let total = format!(
        "each of the {} claims",
        claims.lines().filter(is_claim).count()
    );
    let chapter = Page::read("docs/src/findings.md").text;
    assert!(chapter.contains(&total), "docs/src/findings.md: {total}");

    // The names of the shown cases.
    let cases: Vec<String> = shown_output("./scripts/lab run")
        .lines()
        .filter_map(|line| line.strip_prefix("PASS "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    assert!(!cases.is_empty());
    let mut arguments = vec!["run"];
    arguments.extend(cases.iter().map(String::as_str));
    let shown_run = shown_output("./scripts/lab run");
    let passed: Vec<&str> = shown_run
        .lines()
        .filter(|line| line.contains("PASS"))
        .collect();
    assert_lines_printed(&passed.join("\n"), &stdout(&run(&arguments)));

    // The shown total counts all cases.
    let document: serde_json::Value =
        serde_json::from_slice(&ran.stdout).expect("the results are JSON");
    let total = format!("{} passed, 0 failed", document["summary"]["passed"]);
    assert!(
        shown_run.contains(&total),
        "README.md does not contain `{total}`"
    );
}

#[test]
fn docs_diff_prints_shown_output() {
    let prefix = "tests/recorded/kube-proxy/v1.20.2/ipvs/a_clusterip";
    let (first, second) = (format!("{prefix}.cidr"), format!("{prefix}.nocidr"));
    let shown = shown_output(&format!("svclab diff {first} {second}"));
    let output = run(&["diff", &first, &second]);
    assert_eq!(stdout(&output), shown, "{}", stderr(&output));
}

#[test]
fn docs_readme_has_at_most_1200_words() {
    let words = Page::read("README.md").text.split_whitespace().count();
    assert!(words <= 1200, "README.md has {words} words");
}

#[test]
fn docs_limits_contain_supported_versions() {
    let (oldest, newest) = (Version::OLDEST, Version::NEWEST);
    let nftables = Version::minors().find(|version| version.has(&NFTABLES_MODE));
    let line = format!(
        "- **kube-proxy**: iptables and ipvs modes from {oldest} to {newest}, nftables mode from {} \
         to {newest}.",
        nftables.expect("a version with nftables mode")
    );
    let limits = Page::read("docs/src/limits.md").text;
    assert!(
        limits.lines().any(|shown| shown == line),
        "write in docs/src/limits.md: {line}"
    );
}

/// The list of checked features is the same on every machine; the results differ.
#[test]
fn docs_doctor_lists_shown_features() {
    let shown = shown_output("svclab doctor");
    let cache = tempfile::tempdir().expect("a directory");
    let output = svclab()
        .arg("doctor")
        .env("SVCLAB_CACHE", cache.path())
        .output()
        .expect("the command starts");
    let printed = stdout(&output);
    let features = |text: &str| -> Vec<String> {
        let table = text.split("host  guest\n").nth(1).expect("a table");
        table
            .lines()
            .take_while(|line| !line.is_empty())
            // Remarks about a feature are indented further.
            .filter(|line| !line.starts_with("    "))
            .map(|line| line.trim().split("  ").next().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(features(&shown), features(&printed));
    for line in ["Linux ", "Guest: Linux ", "This machine can run every lab."] {
        assert!(shown.lines().any(|known| known.starts_with(line)), "{line}");
    }
}
