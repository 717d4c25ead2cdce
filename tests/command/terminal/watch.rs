//! Tests `run --watch`.

use std::fs;
use std::path::Path;

use super::User;
use crate::run::output::failing_lab;
use crate::support::{LAB, run, stderr, svclab, write_lab};

/// End of each round.
const WAITING: &str = "; Ctrl-C ends";

fn start(directory: &Path, arguments: &[&str]) -> User {
    let mut command = svclab();
    command
        .current_dir(directory)
        .args(["run", "--watch"])
        .args(arguments);
    User::start(command, 200)
}

/// Replaces a file with a new one, as editors do.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).expect("a file");
    fs::rename(&new, file).expect("a file");
}

#[test]
fn watch_runs_again_and_marks_new_failures() {
    let (directory, path) = write_lab(LAB);
    let mut user = start(directory.path(), &["lab.yaml"]);
    let first = user.read_until(WAITING);
    assert!(first.contains("2 passed, 0 failed"), "{first}");
    assert!(first.contains("waiting for changes of 1 file"), "{first}");

    // A file that is not part of the lab changes first.
    fs::write(directory.path().join("other.yaml"), "").expect("a file");
    replace(&path, &failing_lab());
    let second = user.read_until(WAITING);
    assert!(second.contains("changed: lab.yaml\r\n"), "{second}");
    assert!(second.contains("NEW FAILURE lab/policy=Local"), "{second}");
    assert!(!second.contains("FIXED"), "{second}");

    // The same failure is not new.
    fs::write(&path, failing_lab() + "\n").expect("a file");
    let third = user.read_until(WAITING);
    assert!(third.contains("1 case still fails"), "{third}");
    assert!(!third.contains("NEW FAILURE"), "{third}");

    fs::write(&path, "spec: [").expect("a file");
    let invalid = user.read_until(WAITING);
    assert!(invalid.contains("NEW FAILURE lab\r\n"), "{invalid}");
    // Without the file, nothing can run.
    fs::remove_file(&path).expect("a file");
    let missing = user.read_until(WAITING);
    assert!(missing.contains("no such file"), "{missing}");

    fs::write(&path, failing_lab()).expect("a file");
    let fourth = user.read_until(WAITING);
    assert!(fourth.contains("lab.yaml\r\n"), "{fourth}");
    user.send("\x03");
    assert_eq!(user.wait(), Some(1));
}

#[test]
fn watch_directory_finds_new_and_linked_labs() {
    let directory = tempfile::tempdir().expect("a directory");
    let labs = directory.path().join("labs");
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&labs).expect("a directory");
    fs::create_dir(&elsewhere).expect("a directory");
    let target = elsewhere.join("target.yaml");
    fs::write(&target, LAB).expect("a file");
    std::os::unix::fs::symlink(&target, labs.join("lab.yaml")).expect("a link");
    let mut user = start(directory.path(), &["-q", "--topologies", "labs"]);
    user.read_until("2 passed");
    replace(&target, &failing_lab());
    user.read_until("NEW FAILURE lab/policy=Local");
    replace(&target, LAB);
    user.read_until("FIXED lab/policy=Local");
    let other = failing_lab().replace("{name: lab}", "{name: other}");
    fs::write(labs.join("other.yml"), other).expect("a file");
    user.read_until("NEW FAILURE other/policy=Local");
    // The directory disappears and comes back, as in a checkout.
    fs::rename(&labs, directory.path().join("gone")).expect("a directory");
    user.read_until("cannot read labs");
    fs::create_dir(directory.path().join("new")).expect("a directory");
    fs::write(directory.path().join("new/lab.yaml"), LAB).expect("a file");
    fs::rename(directory.path().join("new"), &labs).expect("a directory");
    user.read_until("2 passed");
    user.send("\x03");
    assert_eq!(user.wait(), Some(0));
}

#[test]
fn watch_ctrl_c_during_a_run_ends_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = crate::support::project().join("topologies/canal-stale-rule.yaml");
    let lab = lab.display().to_string();
    let case = format!("{lab}/stale=present,rpFilter=1,underlay=passes");
    let mut user = start(directory.path(), &["--max-wait=5m", &case]);
    // The progress appears after 1 s.
    user.read_until("0/1 ");
    user.send("\x03");
    user.read_until("interrupted");
    assert_eq!(user.wait(), Some(130));
}

#[test]
fn watch_useless_options_are_refused() {
    let (_directory, path) = write_lab(LAB);
    let lab = path.to_str().expect("UTF-8");
    let errors = [
        &["-"][..],
        &["-/policy=Local"],
        &[lab, "--format=json"],
        &[lab, "--shard=1/2"],
        &[lab, "--last-failed"],
        &[lab, "--certify"],
        &[lab, "--keep-on-failure"],
        &["no-lab"],
    ]
    .map(|arguments| {
        let output = run(&[&["run", "--watch"], arguments].concat());
        let is_missing = arguments == ["no-lab"];
        let expected = if is_missing { 4 } else { 2 };
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}");
        stderr(&output)
            .lines()
            .take(2)
            .collect::<Vec<_>>()
            .join("\n")
    });
    insta::assert_snapshot!(errors.join("\n"));
    // Without a directory of labs, the embedded ones are used.
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = svclab();
    let output = command
        .current_dir(directory.path())
        .args(["run", "--watch", "local-ingress"])
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(stderr(&output));
}
