//! Tests that README.md is correct: its lab and commands run and print the output shown there, and
//! its commands and arguments exist.

use std::collections::BTreeSet;
use std::process::Output;

use svclab_rules::kube_proxy::Version;
use svclab_rules::kube_proxy::history::NFTABLES_MODE;
use svclab_test_support::running::{Runtime, normalized};

use crate::support::{project, run, stderr, stdout, svclab, svclab_without_drops};

/// A fenced code block of README.md.
struct Block {
    language: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for line in readme().lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(language), None) => {
                open = Some(Block {
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            (None, Some(block)) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    found
}

fn readme() -> String {
    std::fs::read_to_string(project().join("README.md")).expect("README.md can be read")
}

/// Returns the output shown below `$ COMMAND`.
fn shown_output(command: &str) -> String {
    let prompt = format!("$ {command}\n");
    let block = blocks()
        .into_iter()
        .find(|block| block.language == "console" && block.text.contains(&prompt))
        .unwrap_or_else(|| panic!("README.md does not show `{command}`"));
    let (_, after) = block
        .text
        .split_once(&prompt)
        .expect("the block contains the prompt");
    after.split("\n$ ").next().unwrap_or(after).to_owned()
}

/// Removes times, kernel releases and versions, which differ between machines.
fn without_varying_parts(line: &str) -> String {
    let line = line.split(" on Linux ").next().unwrap_or(line);
    let cut = line.rfind(['(']).filter(|_| line.ends_with(" s)"));
    let line = line[..cut.unwrap_or(line.len())].trim_end();
    let time = line.rfind(" in ").filter(|_| line.ends_with(" s"));
    line[..time.unwrap_or(line.len())].to_owned()
}

/// Returns the block that contains the lab with this name.
fn lab(name: &str) -> String {
    let metadata = format!("kind: Lab\nmetadata: {{name: {name}}}");
    let mut labs = blocks()
        .into_iter()
        .filter(|block| block.language == "yaml" && block.text.contains(&metadata));
    let lab = labs.next().expect("README.md contains the lab").text;
    assert!(labs.next().is_none(), "README.md contains the lab once");
    lab
}

/// Runs a lab and compares the output with the shown output.
fn check_lab_run(file: &str, text: &str) -> Output {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join(file), text).expect("the lab can be written");
    let output = svclab()
        .current_dir(directory.path())
        .args(["run", file])
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Cases are printed as they end.
    let by_case = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(without_varying_parts).collect();
        lines.sort();
        lines
    };
    let printed = stdout(&output);
    let shown = shown_output(&format!("svclab run {file}"));
    assert_eq!(by_case(&printed), by_case(&shown));
    let last = |text: &str| text.lines().last().map(without_varying_parts);
    assert_eq!(last(&printed), last(&shown));
    output
}

#[test]
fn readme_lab_run_prints_shown_output() {
    let output = check_lab_run("node-port.yaml", &lab("node-port"));
    assert_eq!(stderr(&output), "");
}

#[test]
fn readme_balancer_lab_run_prints_shown_output() {
    let node_port = lab("node-port");
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
fn readme_balancer_properties_match_schema() {
    let schema = std::fs::read_to_string(project().join("tests/schema/lab.v1.json"));
    let schema: serde_json::Value =
        serde_json::from_str(&schema.expect("the schema can be read")).expect("JSON");
    let properties = &schema["$defs"]["LoadBalancerSpec"]["properties"];
    let properties: BTreeSet<&str> = properties
        .as_object()
        .expect("properties")
        .keys()
        .map(String::as_str)
        .collect();
    let text = readme();
    let (_, section) = text
        .split_once("### Load balancers\n")
        .expect("the section");
    let (section, _) = section.split_once("\n### ").expect("the next section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let shown: BTreeSet<&str> = rows
        .filter_map(|row| row.split(['`', ':']).next())
        .collect();
    assert_eq!(shown, properties);
}

#[test]
fn readme_running_lab_prints_shown_output() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("node-port.yaml");
    std::fs::write(&file, lab("node-port")).expect("the lab can be written");
    let runtime = Runtime::new(svclab_without_drops);
    let printed = runtime.up(&format!("{}/policy=Local", file.display()));
    let shown = shown_output("svclab up --detach node-port.yaml/policy=Local");
    let plain = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("Log: "));
        lines.map(without_varying_parts).collect()
    };
    assert_eq!(plain(&printed), plain(&shown));
    // Checks that the suggested commands work, and the commands of the table.
    for (command, code) in [
        ("exec node-1 -- ip route", 0),
        ("exec node-1 -- iptables-save", 0),
        ("probe host/laptop node-1:30080 --connections 4", 1),
        ("probe host/laptop node-1:30080 --explain", 1),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(readme().contains(&format!("svclab {command}")), "{command}");
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
        let shown = shown_svclab_output(command);
        assert_lines_printed(&without_counts(&shown), &without_counts(&stdout(&output)));
    }
}

/// Returns the output shown below an svclab command, without output of a program in the lab.
fn shown_svclab_output(command: &str) -> String {
    let shown = shown_output(&format!("svclab {command}"));
    match shown.strip_prefix("$ ") {
        // The block continues with the next command.
        Some(_) => String::new(),
        None => shown,
    }
}

/// Asserts that every shown line is printed; `…` marks omitted lines.
fn assert_lines_printed(shown: &str, printed: &str) {
    let printed: BTreeSet<String> = printed.lines().map(without_varying_parts).collect();
    for line in shown.lines().filter(|line| !["…", ""].contains(line)) {
        assert!(
            printed.contains(&without_varying_parts(line)),
            "not printed: {line}"
        );
    }
}

#[test]
fn readme_labs_and_claims_match_shown_results() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let results = directory.path().join("results.json");
    let ran = run(&["run", "--format", "json"]);
    assert_eq!(ran.status.code(), Some(0), "{}", stdout(&ran));
    std::fs::write(&results, &ran.stdout).expect("the results can be written");
    let claims = run(&["claims", "--from", &results.display().to_string()]);
    assert_eq!(claims.status.code(), Some(0), "{}", stderr(&claims));
    assert_lines_printed(&shown_output("svclab claims"), &stdout(&claims));

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
fn readme_diff_prints_shown_output() {
    let prefix = "tests/recorded/kube-proxy/v1.20.2/ipvs/a_clusterip";
    let (first, second) = (format!("{prefix}.cidr"), format!("{prefix}.nocidr"));
    let shown = shown_output(&format!("svclab diff {first} {second}"));
    let output = run(&["diff", &first, &second]);
    assert_eq!(stdout(&output), shown, "{}", stderr(&output));
}

#[test]
fn readme_commands_and_arguments_exist() {
    let text = readme();
    let mut known = BTreeSet::new();
    // Inline code, and lines behind a prompt.
    let code = text.split('`').skip(1).step_by(2);
    let prompts = text.lines().filter_map(|line| line.strip_prefix("$ "));
    for command in code.chain(prompts).filter_map(|code| {
        code.strip_prefix("svclab ")
            .or_else(|| code.strip_prefix("./scripts/lab "))
    }) {
        let words: Vec<&str> = command.split_whitespace().collect();
        if words[0] == "ARGS" {
            continue;
        }
        let help = run(&[words[0], "--help"]);
        assert_eq!(help.status.code(), Some(0), "svclab {command}");
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(stdout(&help).contains(flag), "svclab {command}");
        }
        known.insert(words[0].to_owned());
    }
    for command in [
        "run",
        "plan",
        "claims",
        "diff",
        "doctor",
        "kernel",
        "rules",
        "up",
        "ps",
        "exec",
        "shell",
        "probe",
        "capture",
        "down",
        "schema",
        "completions",
    ] {
        assert!(known.contains(command), "README.md does not show {command}");
    }
}

#[test]
fn readme_limits_contain_supported_versions() {
    let (oldest, newest) = (Version::OLDEST, Version::NEWEST);
    let nftables = Version::minors().find(|version| version.has(&NFTABLES_MODE));
    let line = format!(
        "- **kube-proxy**: iptables and ipvs modes from {oldest} to {newest}, nftables mode from {} \
         to {newest}.",
        nftables.expect("a version with nftables mode")
    );
    assert!(
        readme().lines().any(|shown| shown == line),
        "write in README.md, section Limits: {line}"
    );
}

/// The list of checked features is the same on every machine; the results differ.
#[test]
fn readme_doctor_lists_shown_features() {
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
