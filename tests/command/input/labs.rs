//! Tests how labs are found: in a directory, or in the program; under their own names.

use std::fs;
use std::path::Path;

use crate::support::{LAB, project, run, stderr, stdout, svclab};

/// Runs the command in a directory. Returns the exit code and both output streams.
fn run_in(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = svclab()
        .current_dir(directory)
        .args(arguments)
        .output()
        .expect("the command starts");
    (output.status.code(), stdout(&output) + &stderr(&output))
}

#[test]
fn labs_lists_embedded_labs_elsewhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let (code, text) = run_in(directory.path(), &["labs"]);
    assert_eq!(code, Some(0), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn labs_show_prints_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    for lab in ["clb-hairpin", "conformance/node-port"] {
        let text = fs::read_to_string(project().join(format!("topologies/{lab}.yaml")));
        let text = text.expect("the lab");
        // The first line names the schema in the repository.
        let (_, text) = text.split_once('\n').expect("a line");
        let shown = run_in(directory.path(), &["labs", "show", lab]);
        assert_eq!(shown, (Some(0), text.to_owned()));
    }
    let (code, text) = run_in(directory.path(), &["labs", "show", "clb-hairpin/mode=ipvs"]);
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn embedded_lab_runs_elsewhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let case = "conformance/session-affinity/mode=iptables";
    let (code, text) = run_in(directory.path(), &["run", "--kernel=host", case]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run_in(directory.path(), &["run", "clb-harpin"]);
    assert_eq!(code, Some(4), "{text}");
    insta::assert_snapshot!(text, @"error: there is no lab `clb-harpin` in the embedded labs; did you mean `clb-hairpin`?");
}

#[test]
fn directory_of_labs_precedes_embedded_labs() {
    let directory = tempfile::tempdir().expect("a directory");
    let named = tempfile::tempdir().expect("a directory");
    for place in [&directory.path().join("topologies"), named.path()] {
        fs::create_dir_all(place).expect("a directory");
    }
    let other = LAB.replacen("name: lab", "name: other", 1);
    fs::write(directory.path().join("topologies/mine.yaml"), LAB).expect("written");
    fs::write(named.path().join("other.yaml"), other).expect("written");
    let (code, text) = run_in(directory.path(), &["labs"]);
    assert_eq!(code, Some(0), "{text}");
    let of_option = named.path().display().to_string();
    let (code, other) = run_in(directory.path(), &["labs", "--topologies", &of_option]);
    assert_eq!(code, Some(0), "{other}");
    insta::assert_snapshot!(text + &other);
}

#[test]
fn labs_of_the_same_name_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("a.yaml"), LAB).expect("written");
    fs::write(directory.path().join("b.yaml"), LAB).expect("written");
    let (code, text) = run_in(directory.path(), &["plan", "a.yaml", "b.yaml"]);
    assert_eq!(code, Some(2), "{text}");
    insta::assert_snapshot!(text);
    // One alone may have another name than its file.
    let (code, text) = run_in(directory.path(), &["plan", "a.yaml"]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn labs_with_invalid_file_lists_the_others() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("a.yaml"), LAB).expect("written");
    fs::write(directory.path().join("b.yaml"), "kind: Lab\n").expect("written");
    let path = directory.path().display().to_string();
    let output = run(&["labs", "--topologies", &path]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stdout(&output).contains("\na "), "{}", stdout(&output));
}

#[test]
fn list_prints_the_selected_cases() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("mine.yaml"), LAB).expect("written");
    let lists = [
        "service-paths",
        "mine.yaml/policy=L*",
        "*/mode=nftables",
        "service-paths/mode=none",
        "service-paths/*none*",
    ]
    .map(|name| {
        let (code, text) = run_in(directory.path(), &["list", name]);
        format!("$ svclab list {name} # exits {code:?}\n{text}")
    });
    insta::assert_snapshot!(lists.join("\n"));
    // Every line selects its case again.
    let (_, text) = run_in(directory.path(), &["list", "service-paths"]);
    for line in text.lines() {
        assert_eq!(
            run_in(directory.path(), &["list", line]),
            (Some(0), format!("{line}\n"))
        );
    }
}

#[test]
fn lab_on_stdin_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("input"), LAB).expect("written");
    let list = |name: &str, input: &str| {
        let input = fs::File::open(directory.path().join(input)).expect("the file");
        let output = svclab()
            .current_dir(directory.path())
            .args(["list", "--", name])
            .stdin(input)
            .output()
            .expect("the command starts");
        format!(
            "$ svclab list {name}\n{}{}",
            stdout(&output),
            stderr(&output)
        )
    };
    fs::write(directory.path().join("wrong"), "kind: Lab\n").expect("written");
    let texts = [
        list("-", "input"),
        list("-/policy=Local", "input"),
        list("-", "wrong"),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}
