//! Tests what a run prints: failures at the end, quiet output and colours.

use std::fs;
use std::process::Output;

use crate::support::{LAB, run, stderr, stdout, svclab, write_lab};

/// Returns a lab of which the case `policy=Local` fails.
pub fn failing_lab() -> String {
    let expected = "- when: {policy: Local}\n    call: {connected: 1";
    assert!(LAB.contains(expected), "the lab has another form");
    LAB.replace(expected, "- when: {policy: Local}\n    call: {refused: 1")
}

/// Returns standard output with directories and times replaced.
pub(super) fn normalized(output: &Output, path: &std::path::Path) -> String {
    let text = stdout(output).replace(&path.display().to_string(), "lab.yaml");
    let lines = text.lines().map(|line| match line.rsplit_once("  (") {
        Some((head, time)) if time.ends_with(" s)") => format!("{head}  (TIME)"),
        _ => line
            .split_once(" in ")
            .filter(|(counts, _)| counts.contains(" passed, "))
            .map_or_else(
                || line.to_owned(),
                |(counts, _)| format!("{counts} in TIME"),
            ),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn run_failures_are_repeated_at_the_end() {
    let (_directory, path) = write_lab(failing_lab());
    let file = path.to_str().expect("UTF-8");
    let output = run(&["run", "--jobs", "1", file]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    insta::assert_snapshot!(normalized(&output, &path));
}

#[test]
fn run_quiet_prints_failures_and_summary() {
    let (_directory, path) = write_lab(failing_lab());
    let file = path.to_str().expect("UTF-8");
    let output = run(&["run", "--quiet", file]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    insta::assert_snapshot!(normalized(&output, &path));
    assert_eq!(stderr(&output), "");
    let passing = format!("{file}/policy=Cluster");
    let output = run(&["run", "-q", &passing]);
    insta::assert_snapshot!(normalized(&output, &path), @"1 passed, 0 failed, 0 errors in TIME");
}

#[test]
fn color_option_precedes_environment() {
    let (_directory, path) = write_lab(LAB);
    let lab = format!("{}/policy=Cluster", path.display());
    let is_coloured = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = svclab();
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        let output = command
            .args(arguments)
            .envs(environment.iter().copied())
            .output()
            .expect("the command starts");
        let text = stdout(&output) + &stderr(&output);
        assert!(!text.is_empty(), "{arguments:?}");
        text.contains('\x1b')
    };
    let run = ["run", lab.as_str()];
    let forced = [("CLICOLOR_FORCE", "1")];
    let refused = [("NO_COLOR", "1")];
    assert!(!is_coloured(&run, &[]), "the output is a pipe");
    assert!(is_coloured(&run, &forced));
    assert!(!is_coloured(&run, &[forced[0], refused[0]]));
    assert!(is_coloured(
        &[&run[..], &["--color=always"]].concat(),
        &refused
    ));
    assert!(!is_coloured(
        &[&["--color", "never"][..], &run].concat(),
        &forced
    ));
    // Help and errors of the command line.
    assert!(is_coloured(&["--color", "always", "--help"], &refused));
    assert!(is_coloured(
        &["run", "--color=always", "--unknown"],
        &refused
    ));
    assert!(!is_coloured(
        &["run", "--color=never", "--unknown"],
        &forced
    ));
    // The colour of a program in a lab is not that of svclab.
    assert!(!is_coloured(
        &["exec", "--unknown", "--", "--color=always"],
        &refused
    ));
}

#[test]
fn results_for_ci_name_files_of_the_repository() {
    let directory = tempfile::tempdir().expect("a directory");
    let labs = directory.path().join("tests/labs");
    fs::create_dir_all(&labs).expect("a directory");
    fs::create_dir(directory.path().join(".git")).expect("a directory");
    fs::write(labs.join("lab.yaml"), failing_lab()).expect("a lab");
    let place = labs.parent().expect("a directory");
    let absolute = labs.join("lab.yaml").display().to_string();
    for lab in ["labs/lab.yaml", "./labs/../labs/lab.yaml", &absolute] {
        let mut command = svclab();
        command.current_dir(place).args(["run", lab]);
        let output = command
            .args(["--format", "github", "--write", "junit=out.xml"])
            .output();
        let output = output.expect("the command starts");
        let annotation = "::error file=tests/labs/lab.yaml,line=";
        assert!(stdout(&output).contains(annotation), "{}", stdout(&output));
        let xml = fs::read_to_string(place.join("out.xml")).expect("JUnit");
        assert!(xml.contains("<testsuite name=\"lab\" "), "{xml}");
        assert!(xml.contains(" file=\"tests/labs/lab.yaml\""), "{xml}");
    }
}
