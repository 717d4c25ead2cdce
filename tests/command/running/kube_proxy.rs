//! Tests running labs with a program as kube-proxy on their node.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Labs, assert_output_snapshot};
use crate::fake;
use svclab_test_support::processes::{session_processes, wait_for_session_end};

/// Maximum time until all processes have ended.
const MAX_END_TIME: Duration = Duration::from_secs(2);

/// Writes a lab for a [`fake`] kube-proxy. Returns the lab and a function that runs `svclab up`.
fn labs_with_fake(ending: &str) -> (Labs, impl Fn(&Labs, &[&str]) -> Output) {
    let labs = Labs::from_text(&fake::lab_without_rules());
    let program = fake::write_fake_kube_proxy(labs.directory.path(), ending);
    let program = program.display().to_string();
    let up = move |labs: &Labs, more: &[&str]| {
        let case = labs.case("Local");
        let arguments = ["up", &case, "--kernel=host", "--kube-proxy", &program];
        let words: Vec<&str> = arguments.iter().chain(more).copied().collect();
        labs.runtime.run(&words)
    };
    (labs, up)
}

/// Counts the kube-proxy processes of a daemon's lab, by process name.
fn count_kube_proxies(holder: i32) -> usize {
    let processes = session_processes(holder);
    let names = processes.values().filter(|name| *name == "kube-proxy");
    names.count()
}

#[test]
fn kube_proxy_in_running_lab_runs_until_down() {
    let (labs, up) = labs_with_fake(fake::SYNCS);
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    assert_output_snapshot!(labs, up(&labs, &["--detach"]));
    assert_output_snapshot!(labs, run(&["ps"]));
    let holder = labs.runtime.daemon_pid();
    assert_eq!(count_kube_proxies(holder), 1);
    // kube-proxy and its API server run on the node.
    let asks = concat!(
        "use IO::Socket::INET;",
        r#"my $api = IO::Socket::INET->new("127.0.0.1:16443") or die;"#,
        r#"print $api "GET /api/v1/namespaces/default/services/web HTTP/1.0\r\n\r\n";"#,
        "print while <$api>;",
    );
    let asked = run(&["exec", "node-1", "--", "perl", "-e", asks]);
    let answer = String::from_utf8_lossy(&asked.stdout);
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    assert!(head.contains(" 200 OK"), "{answer}");
    let service: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.10");
    assert_output_snapshot!(
        labs,
        run(&["probe", "pod/default/client", "pod/default/web:8080"])
    );
    let explained = run(&["explain", "--running", "--format=json"]);
    assert_eq!(explained.status.code(), Some(0), "{explained:?}");
    let document: serde_json::Value = serde_json::from_slice(&explained.stdout).expect("JSON");
    let call = &document["cases"][0]["stages"][0]["connections"][0];
    assert_eq!(call["verdict"], "connected");
    assert_output_snapshot!(labs, run(&["down"]));
    let left = wait_for_session_end(holder, Instant::now() + MAX_END_TIME);
    assert!(left.is_empty(), "{left:?} still run");
}

#[test]
fn kube_proxy_daemon_killed_ends() {
    let (labs, up) = labs_with_fake(fake::SYNCS);
    let standing = up(&labs, &["--detach"]);
    assert_eq!(standing.status.code(), Some(0), "{standing:?}");
    let holder = labs.runtime.daemon_pid();
    assert_eq!(count_kube_proxies(holder), 1);
    kill(Pid::from_raw(holder), Signal::SIGKILL).expect("the signal can be sent");
    let left = wait_for_session_end(holder, Instant::now() + MAX_END_TIME);
    assert!(left.is_empty(), "{left:?} still run");
}

#[test]
fn kube_proxy_ended_is_reported_by_every_command() {
    let (labs, up) = labs_with_fake(fake::SYNCS);
    let standing = up(&labs, &["--detach"]);
    assert_eq!(standing.status.code(), Some(0), "{standing:?}");
    // Returns once the process has ended and its end was noticed.
    let killed = concat!(
        "for each in /proc/[0-9]*; do read -r name <\"$each/comm\"; ",
        "[ \"$name\" != kube-proxy ] || process=${each#/proc/}; done; ",
        "kill -KILL \"$process\" && while kill -0 \"$process\"; do :; done"
    );
    let killed = labs
        .runtime
        .run(&["exec", "node-1", "--", "sh", "-c", killed]);
    assert_eq!(killed.status.code(), Some(0), "{killed:?}");
    assert_output_snapshot!(
        labs,
        labs.runtime
            .run(&["probe", "pod/default/client", "pod/default/web:8080"])
    );
}

#[test]
fn up_kube_proxy_exit_is_reported_like_run() {
    let (labs, up) = labs_with_fake(fake::EXITS);
    let detached = up(&labs, &["--detach"]);
    assert_output_snapshot!(labs, detached);
    let held = up(&labs, &[]);
    assert_eq!(labs.render_output(&held), labs.render_output(&detached));
    assert_eq!(labs.runtime.files(), ["lock"]);
}

#[test]
fn up_kube_proxy_not_executable_is_refused_like_run() {
    let (labs, up) = labs_with_fake(fake::SYNCS);
    let program = labs.directory.path().join("kube-proxy");
    fs::set_permissions(&program, Permissions::from_mode(0o644)).expect("permissions");
    let detached = up(&labs, &["--detach"]);
    assert_output_snapshot!(labs, detached);
    let held = up(&labs, &[]);
    assert_eq!(labs.render_output(&held), labs.render_output(&detached));
    let program = program.display().to_string();
    let case = labs.case("Local");
    let ran = labs
        .runtime
        .run(&["run", &case, "--kernel=host", "--kube-proxy", &program]);
    let output_text = labs.render_output(&ran);
    assert!(
        output_text.starts_with("ERROR lab/policy=Local  the lab is invalid"),
        "{output_text}"
    );
    assert!(
        output_text.ends_with(&labs.render_output(&detached)),
        "{output_text}"
    );
}
