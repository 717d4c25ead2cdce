//! Tests `svclab up`, `ps` and `down`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serial_test::file_serial;
use svclab_runner::kernel::witness;

use super::{Labs, assert_told};
use crate::killed::{left, of_session};
use crate::waiting::children;

/// Maximum time until all processes have ended.
const SOON: Duration = Duration::from_secs(2);

/// Whether a file name has this extension.
fn is_of(file: &str, extension: &str) -> bool {
    Path::new(file)
        .extension()
        .is_some_and(|known| known == extension)
}

fn signal(process: i32, signal: Signal) {
    kill(Pid::from_raw(process), signal).expect("the signal can be sent");
}

#[test]
fn a_lab_stands_until_it_is_taken_away() {
    let labs = Labs::none();
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    assert_told!(labs, run(&["ps"]));
    assert_told!(labs, run(&["up", "--detach", &labs.case("Local")]));
    assert_told!(labs, run(&["ps"]));
    // Starts the same case again.
    assert_told!(labs, run(&["up", "--detach", &labs.case("Local")]));
    assert_told!(labs, run(&["up", &labs.case("Local")]));
    let holder = labs.runtime.holder();
    assert_told!(labs, run(&["down"]));
    let left = left(holder, Instant::now() + SOON);
    assert!(left.is_empty(), "{left:?} go on");
    assert_eq!(labs.runtime.files(), ["lock"]);
    assert_told!(labs, run(&["down"]));
}

#[test]
fn of_several_labs_one_is_named() {
    let labs = Labs::one();
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    // With two running labs, the suggested commands name the lab.
    assert_told!(labs, run(&["up", "--detach", &labs.case("Cluster")]));
    assert_told!(labs, run(&["exec", "node-1", "--", "true"]));
    assert_told!(
        labs,
        run(&["exec", "--lab", "other", "node-1", "--", "true"])
    );
    assert_told!(
        labs,
        run(&["exec", "--lab", "lab/policy=Local", "node-1", "--", "true"])
    );
    assert_told!(
        labs,
        run(&["probe", "pod/default/client", "service/default/web:80"])
    );
    assert_told!(labs, run(&["down"]));
    assert_told!(labs, run(&["down", "--all"]));
    assert_told!(labs, run(&["down", "--all"]));
}

#[test]
fn one_case_is_to_stand_on_one_kernel() {
    let labs = Labs::none();
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    let all = labs.case("Local").replace("/policy=Local", "");
    assert_told!(labs, run(&["up", "--detach", &all]));
    assert_told!(labs, run(&["up", &labs.case("Local"), "--kernel", "all"]));
    assert_told!(labs, run(&["up", &labs.case("Local"), "--program", "ls"]));
    assert_told!(labs, run(&["up"]));
    assert_told!(labs, run(&["up", "no-such-lab"]));
}

#[test]
fn a_lab_that_cannot_be_built_is_told_of_in_the_foreground() {
    let labs = Labs::none();
    let case = labs.case("Local");
    let path = case.replace("/policy=Local", "");
    let text = std::fs::read_to_string(&path).expect("the lab");
    let wrong = text.replacen(
        "leftovers: {iptables: []}",
        r#"leftovers: {iptables: ["*nat", "-A POSTROUTING -m nosuchmatch -j RETURN"]}"#,
        1,
    );
    std::fs::write(&path, wrong).expect("the lab can be written");
    let detached = labs.runtime.run(&["up", "--detach", &case]);
    assert_told!(labs, detached);
    let held = labs.runtime.run(&["up", &case]);
    assert_eq!(labs.told(&held), labs.told(&detached));
    assert_eq!(labs.runtime.files(), ["lock"]);
}

#[test]
fn in_the_foreground_it_stands_until_ctrl_c() {
    let labs = Labs::none();
    let ended_by = |end: &dyn Fn(i32)| {
        let mut holder = labs.runtime.start(&["up", &labs.case("Local")]);
        let mut lines = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
        let said: Vec<String> = lines
            .by_ref()
            .map_while(Result::ok)
            .take_while(|line| !line.starts_with("Ctrl-C"))
            .collect();
        assert!(said[0].contains(" stands on "), "{said:?}");
        end(i32::try_from(holder.id()).expect("a small number"));
        let output = holder.wait_with_output().expect("an end");
        assert_eq!(labs.runtime.files(), ["lock"]);
        output
    };
    assert_told!(labs, ended_by(&|holder| signal(holder, Signal::SIGINT)));
    assert_told!(
        labs,
        ended_by(&|_| {
            let output = labs.runtime.run(&["down"]);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        })
    );
}

#[test]
#[file_serial(machine)]
fn a_holder_that_is_killed_takes_all_with_it() {
    let before = witness::look().digest();
    let labs = Labs::one();
    let holder = labs.runtime.holder();
    // The daemon runs in a session of its own.
    assert!(of_session(holder).len() > 1);
    signal(holder, Signal::SIGKILL);
    let left = left(holder, Instant::now() + SOON);
    assert!(left.is_empty(), "{left:?} go on");
    assert_eq!(witness::look().digest(), before);
    // The next command removes the files of the killed daemon.
    assert_eq!(labs.runtime.files().len(), 3);
    assert_told!(labs, labs.runtime.run(&["exec", "node-1", "--", "true"]));
    assert!(!labs.runtime.files().iter().any(|file| is_of(file, "sock")));
    labs.runtime.up(&labs.case("Local"));
}

#[test]
fn a_lab_that_is_lost_is_told_of_in_its_log() {
    let labs = Labs::one();
    let holder = labs.runtime.holder();
    let [waits] = children(holder)[..] else {
        panic!("there is one agent");
    };
    let exec = labs
        .runtime
        .start(&["exec", "node-1", "--", "cat", "/dev/zero"]);
    signal(waits, Signal::SIGKILL);
    let exec = exec.wait_with_output().expect("an end");
    assert_eq!(exec.status.code(), Some(125));
    let left = left(holder, Instant::now() + SOON);
    assert!(left.is_empty(), "{left:?} go on");
    let files = labs.runtime.files();
    let log = files.iter().find(|file| is_of(file, "log"));
    let log = labs.runtime.sockets().join(log.expect("its log is left"));
    insta::assert_snapshot!(std::fs::read_to_string(log).expect("text"));
    assert!(!files.iter().any(|file| is_of(file, "sock")));
}

#[test]
fn what_programs_read_is_as_its_schema_says() {
    let labs = Labs::one();
    let about = labs.runtime.about();
    assert_eq!(about["case"], "lab/policy=Local");
    assert_eq!(about["state"], "standing");
    let namespaces = about["namespaces"].as_array().expect("a list");
    assert!(namespaces.contains(&"pod/default/client".into()));
    let schema = labs.runtime.run(&["schema", "ps"]);
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).expect("a schema");
    let printed = labs.runtime.run(&["ps", "--format", "json"]);
    let printed: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let wrong: Vec<String> = validator
        .iter_errors(&printed)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(wrong, [""; 0]);
}
