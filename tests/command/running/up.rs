//! Tests `svclab up`, `ps` and `down`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serial_test::file_serial;
use svclab_runner::certify;
use svclab_test_support::processes::{children, session_processes, wait_for_session_end};

use super::{Labs, assert_output_snapshot};

/// Maximum time until all processes have ended.
const MAX_END_TIME: Duration = Duration::from_secs(2);

/// Whether a file name has this extension.
fn has_extension(file: &str, extension: &str) -> bool {
    Path::new(file)
        .extension()
        .is_some_and(|known| known == extension)
}

fn send_signal(process: i32, signal: Signal) {
    kill(Pid::from_raw(process), signal).expect("the signal can be sent");
}

#[test]
fn up_lab_runs_until_down() {
    let labs = Labs::new();
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    assert_output_snapshot!(labs, run(&["ps"]));
    assert_output_snapshot!(labs, run(&["up", "--detach", &labs.case("Local")]));
    assert_output_snapshot!(labs, run(&["ps"]));
    // Starts the same case again.
    assert_output_snapshot!(labs, run(&["up", "--detach", &labs.case("Local")]));
    assert_output_snapshot!(labs, run(&["up", &labs.case("Local")]));
    let holder = labs.runtime.daemon_pid();
    assert_output_snapshot!(labs, run(&["down"]));
    let left = wait_for_session_end(holder, Instant::now() + MAX_END_TIME);
    assert!(left.is_empty(), "{left:?} still run");
    assert_eq!(labs.runtime.files(), ["lock"]);
    assert_output_snapshot!(labs, run(&["down"]));
}

#[test]
fn command_two_running_labs_needs_name() {
    let labs = Labs::with_running_case();
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    // With two running labs, the suggested commands name the lab.
    assert_output_snapshot!(labs, run(&["up", "--detach", &labs.case("Cluster")]));
    assert_output_snapshot!(labs, run(&["exec", "node-1", "--", "true"]));
    assert_output_snapshot!(
        labs,
        run(&["exec", "--lab", "other", "node-1", "--", "true"])
    );
    assert_output_snapshot!(
        labs,
        run(&["exec", "--lab", "lab/policy=Local", "node-1", "--", "true"])
    );
    assert_output_snapshot!(
        labs,
        run(&["probe", "pod/default/client", "service/default/web:80"])
    );
    assert_output_snapshot!(labs, run(&["down"]));
    assert_output_snapshot!(labs, run(&["down", "--all"]));
    assert_output_snapshot!(labs, run(&["down", "--all"]));
}

#[test]
fn up_several_cases_or_kernels_is_refused() {
    let labs = Labs::new();
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    let lab_path = labs.case("Local").replace("/policy=Local", "");
    assert_output_snapshot!(labs, run(&["up", "--detach", &lab_path]));
    assert_output_snapshot!(labs, run(&["up", &labs.case("Local"), "--kernel", "all"]));
    assert_output_snapshot!(labs, run(&["up", &labs.case("Local"), "--program", "ls"]));
    assert_output_snapshot!(labs, run(&["up"]));
    assert_output_snapshot!(labs, run(&["up", "no-such-lab"]));
}

#[test]
fn up_failing_build_is_reported_in_foreground() {
    let labs = Labs::new();
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
    assert_output_snapshot!(labs, detached);
    let foreground = labs.runtime.run(&["up", &case]);
    assert_eq!(
        labs.render_output(&foreground),
        labs.render_output(&detached)
    );
    assert_eq!(labs.runtime.files(), ["lock"]);
}

#[test]
fn up_in_foreground_lab_runs_until_ctrl_c() {
    let labs = Labs::new();
    let ended_by = |end: &dyn Fn(i32)| {
        let mut holder = labs.runtime.start(&["up", &labs.case("Local")]);
        let mut lines = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
        let printed: Vec<String> = lines
            .by_ref()
            .map_while(Result::ok)
            .take_while(|line| !line.contains("Ctrl-C"))
            .collect();
        assert!(printed[0].contains(" is running on "), "{printed:?}");
        end(i32::try_from(holder.id()).expect("the PID fits"));
        let output = holder.wait_with_output().expect("the command ends");
        assert_eq!(labs.runtime.files(), ["lock"]);
        output
    };
    assert_output_snapshot!(
        labs,
        ended_by(&|holder| send_signal(holder, Signal::SIGINT))
    );
    assert_output_snapshot!(
        labs,
        ended_by(&|_| {
            let output = labs.runtime.run(&["down"]);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        })
    );
}

#[test]
#[file_serial(machine)]
fn daemon_killed_ends_lab_and_leaves_no_trace() {
    let before = certify::read_state().digest();
    let labs = Labs::with_running_case();
    let holder = labs.runtime.daemon_pid();
    // The daemon runs in a session of its own.
    assert!(session_processes(holder).len() > 1);
    send_signal(holder, Signal::SIGKILL);
    let left = wait_for_session_end(holder, Instant::now() + MAX_END_TIME);
    assert!(left.is_empty(), "{left:?} still run");
    assert_eq!(certify::read_state().digest(), before);
    // The next command removes the files of the killed daemon.
    assert_eq!(labs.runtime.files().len(), 3);
    assert_output_snapshot!(labs, labs.runtime.run(&["exec", "node-1", "--", "true"]));
    assert!(
        !labs
            .runtime
            .files()
            .iter()
            .any(|file| has_extension(file, "sock"))
    );
    labs.runtime.up(&labs.case("Local"));
}

#[test]
fn lab_lost_is_reported_in_log() {
    let labs = Labs::with_running_case();
    let holder = labs.runtime.daemon_pid();
    let [parent] = children(holder)[..] else {
        panic!("the daemon has one agent");
    };
    let exec = labs
        .runtime
        .start(&["exec", "node-1", "--", "cat", "/dev/zero"]);
    send_signal(parent, Signal::SIGKILL);
    let exec = exec.wait_with_output().expect("the command ends");
    assert_eq!(exec.status.code(), Some(125));
    let left = wait_for_session_end(holder, Instant::now() + MAX_END_TIME);
    assert!(left.is_empty(), "{left:?} still run");
    let files = labs.runtime.files();
    let log = files.iter().find(|file| has_extension(file, "log"));
    let log = labs.runtime.sockets().join(log.expect("the log is kept"));
    insta::assert_snapshot!(std::fs::read_to_string(log).expect("text"));
    assert!(!files.iter().any(|file| has_extension(file, "sock")));
}

#[test]
fn ps_json_format_matches_schema() {
    let labs = Labs::with_running_case();
    let about = labs.runtime.lab_info();
    assert_eq!(about["case"], "lab/policy=Local");
    assert_eq!(about["state"], "running");
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
