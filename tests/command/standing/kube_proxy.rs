//! Tests running labs with a program as kube-proxy on their node.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Labs, assert_told};
use crate::fake;
use crate::killed::{left, of_session};

/// Maximum time until all processes have ended.
const SOON: Duration = Duration::from_secs(2);

/// Writes a lab for a [`fake`] kube-proxy. Returns the lab and a function that runs `svclab up`.
fn labs(ending: &str) -> (Labs, impl Fn(&Labs, &[&str]) -> Output) {
    let labs = Labs::of(&fake::lab());
    let program = fake::kube_proxy(labs.directory.path(), ending);
    let program = program.display().to_string();
    let up = move |labs: &Labs, more: &[&str]| {
        let case = labs.case("Local");
        let own = ["up", &case, "--kernel=host", "--kube-proxy", &program];
        let words: Vec<&str> = own.iter().chain(more).copied().collect();
        labs.runtime.run(&words)
    };
    (labs, up)
}

/// Counts the kube-proxy processes of a daemon's lab, by process name.
fn proxies(holder: i32) -> usize {
    let names = of_session(holder).into_iter().filter_map(|process| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        (name.trim() == "kube-proxy").then_some(())
    });
    names.count()
}

#[test]
fn it_runs_until_the_lab_is_taken_away() {
    let (labs, up) = labs(fake::WRITES);
    let run = |arguments: &[&str]| labs.runtime.run(arguments);
    assert_told!(labs, up(&labs, &["--detach"]));
    assert_told!(labs, run(&["ps"]));
    let holder = labs.runtime.holder();
    assert_eq!(proxies(holder), 1);
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
    assert_told!(
        labs,
        run(&["probe", "pod/default/client", "pod/default/web:8080"])
    );
    let explained = run(&["explain", "--standing", "--format=json"]);
    assert_eq!(explained.status.code(), Some(0), "{explained:?}");
    let told: serde_json::Value = serde_json::from_slice(&explained.stdout).expect("JSON");
    let call = &told["cases"][0]["connections"][0];
    assert_eq!(call["verdict"], "connected");
    assert_told!(labs, run(&["down"]));
    let left = left(holder, Instant::now() + SOON);
    assert!(left.is_empty(), "{left:?} go on");
}

#[test]
fn it_ends_with_a_holder_that_is_killed() {
    let (labs, up) = labs(fake::WRITES);
    let standing = up(&labs, &["--detach"]);
    assert_eq!(standing.status.code(), Some(0), "{standing:?}");
    let holder = labs.runtime.holder();
    assert_eq!(proxies(holder), 1);
    kill(Pid::from_raw(holder), Signal::SIGKILL).expect("the signal can be sent");
    let left = left(holder, Instant::now() + SOON);
    assert!(left.is_empty(), "{left:?} go on");
}

#[test]
fn one_that_has_ended_is_told_by_whatever_is_tried() {
    let (labs, up) = labs(fake::WRITES);
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
    assert_told!(
        labs,
        labs.runtime
            .run(&["probe", "pod/default/client", "pod/default/web:8080"])
    );
}

#[test]
fn one_that_ends_is_told_as_a_run_tells_it() {
    let (labs, up) = labs(fake::ENDS);
    let detached = up(&labs, &["--detach"]);
    assert_told!(labs, detached);
    let held = up(&labs, &[]);
    assert_eq!(labs.told(&held), labs.told(&detached));
    assert_eq!(labs.runtime.files(), ["lock"]);
}

#[test]
fn what_cannot_run_is_refused_as_a_run_refuses_it() {
    let (labs, up) = labs(fake::WRITES);
    let program = labs.directory.path().join("kube-proxy");
    fs::set_permissions(&program, Permissions::from_mode(0o644)).expect("permissions");
    let detached = up(&labs, &["--detach"]);
    assert_told!(labs, detached);
    let held = up(&labs, &[]);
    assert_eq!(labs.told(&held), labs.told(&detached));
    let program = program.display().to_string();
    let case = labs.case("Local");
    let ran = labs
        .runtime
        .run(&["run", &case, "--kernel=host", "--kube-proxy", &program]);
    let told = labs.told(&ran);
    assert!(
        told.starts_with("ERROR lab/policy=Local  the lab is wrong"),
        "{told}"
    );
    assert!(told.ends_with(&labs.told(&detached)), "{told}");
}
