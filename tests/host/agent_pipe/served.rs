//! Tests the Kubernetes API that an agent serves in a lab, and the programs that it starts there.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use svclab_model::protocol::{Event, Failure, FailureKind, ProgramStatus, Request};
use svclab_test_support::small_plan;

use super::conversation::{Conversation, test_users};

/// Address of the API server, in the namespace `router`.
const API_ADDRESS: &str = "127.0.0.1:6443";

/// Maximum time for a program to start on a busy machine.
const MAX_WAIT: Duration = Duration::from_mins(1);

fn node(name: &str, cidr: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": cidr}})
}

fn serve(agent: &mut Conversation, address: &str, objects: Vec<Value>) -> Result<u64, Failure> {
    agent.send(&Request::Serve {
        lab: 1,
        namespace: "router".to_owned(),
        address: address.parse().expect("an address and a port"),
        objects,
    });
    match agent.recv_answer() {
        Event::Served { lab: 1, version } => Ok(version),
        Event::Failed { lab: 1, failure } => Err(failure),
        other => panic!("{other:?}"),
    }
}

fn start(agent: &mut Conversation, name: &str, script: &str) -> Result<(), Failure> {
    agent.send(&Request::Start {
        lab: 1,
        namespace: "router".to_owned(),
        name: name.to_owned(),
        program: "bash".to_owned(),
        arguments: vec!["-c".to_owned(), script.to_owned()],
    });
    match agent.recv_answer() {
        Event::Started { lab: 1 } => Ok(()),
        Event::Failed { lab: 1, failure } => Err(failure),
        other => panic!("{other:?}"),
    }
}

fn program_status(agent: &mut Conversation, name: &str) -> Result<ProgramStatus, Failure> {
    let name = name.to_owned();
    agent.send(&Request::ProgramStatus { lab: 1, name });
    match agent.recv_answer() {
        Event::ProgramStatus {
            lab: 1,
            status: running,
        } => Ok(running),
        Event::Failed { lab: 1, failure } => Err(failure),
        other => panic!("{other:?}"),
    }
}

/// Polls the status of a program until the condition holds.
fn wait_for_status(
    agent: &mut Conversation,
    name: &str,
    is_expected: impl Fn(&ProgramStatus) -> bool,
) -> ProgramStatus {
    let begun = Instant::now();
    loop {
        let running = program_status(agent, name).expect("the program was started");
        if is_expected(&running) {
            return running;
        }
        assert!(begun.elapsed() < MAX_WAIT, "{running:?}");
    }
}

/// Returns a script that sends a GET request to the API and prints the response.
fn get_script(target: &str) -> String {
    let port = API_ADDRESS.replace(':', "/");
    format!(
        r"exec 3<>/dev/tcp/{port}; printf 'GET {target} HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\r\n' >&3; cat <&3"
    )
}

fn get_from_api(agent: &mut Conversation, target: &str) -> String {
    agent.send(&Request::Run {
        lab: 1,
        namespace: "router".to_owned(),
        program: "bash".to_owned(),
        arguments: vec!["-c".to_owned(), get_script(target)],
        input: String::new(),
    });
    match agent.recv_answer() {
        Event::ProgramFinished {
            lab: 1,
            output: finished,
        } => finished.stdout,
        other => panic!("{other:?}"),
    }
}

#[test]
fn api_watch_objects_changed_receives_events() {
    for user in test_users() {
        let mut agent = Conversation::start_ready(user);
        agent.build(1, small_plan());
        let version = serve(&mut agent, API_ADDRESS, vec![node("a", "10.244.1.0/24")]);
        assert_eq!(version, Ok(2));

        let found = get_from_api(&mut agent, "/api/v1/nodes/a");
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n"), "{found}");
        assert!(found.contains("content-type: application/json"), "{found}");
        assert!(found.contains(r#""podCIDR":"10.244.1.0/24""#), "{found}");
        let missing = get_from_api(&mut agent, "/api/v1/pods");
        assert!(
            missing.starts_with("HTTP/1.1 404 Not Found\r\n"),
            "{missing}"
        );
        assert!(missing.contains("/api/v1/pods is not served"), "{missing}");

        let watch = get_script("/api/v1/nodes?watch=true&resourceVersion=2");
        start(&mut agent, "watcher", &watch).expect("the program starts");
        wait_for_status(&mut agent, "watcher", |running| {
            running.output.starts_with("HTTP/1.1 200 OK\r\n")
        });
        let changed = vec![node("b", "10.244.2.0/24"), node("a", "10.244.3.0/24")];
        assert_eq!(serve(&mut agent, API_ADDRESS, changed), Ok(4));
        let output = wait_for_status(&mut agent, "watcher", |running| {
            running.output.contains("10.244.3.0/24")
        });
        assert_eq!(output.ended, None);
        let kinds: Vec<&str> = output
            .output
            .split(r#""type":""#)
            .skip(1)
            .filter_map(|event| event.split('"').next())
            .collect();
        assert_eq!(kinds, ["ADDED", "MODIFIED"], "{}", output.output);

        agent.send(&Request::Stop {
            lab: 1,
            server: "watcher".to_owned(),
        });
        assert_eq!(agent.recv_answer(), Event::Stopped { lab: 1 });
        let failure = program_status(&mut agent, "watcher").expect_err("the program was stopped");
        assert_eq!(failure.message, "watcher was never started");
    }
}

#[test]
fn agent_invalid_serve_or_start_returns_failure() {
    let mut agent = Conversation::start_ready(test_users()[0]);
    agent.build(1, small_plan());
    let pod = json!({"kind": "Pod", "metadata": {"name": "a"}});
    let failure = serve(&mut agent, API_ADDRESS, vec![pod]).expect_err("pods are not served");
    assert_eq!(failure.kind, FailureKind::Input);
    assert_eq!(
        failure.message,
        "cannot update the API server of the lab: cannot serve objects of kind `Pod`, only Node, \
         Service, EndpointSlice, Endpoints and ServiceCIDR"
    );
    serve(&mut agent, API_ADDRESS, Vec::new()).expect("an empty list can be served");
    // The same port is free on another address.
    serve(&mut agent, "127.0.0.2:6443", Vec::new()).expect("the address is free");
    let failure = serve(&mut agent, "0.0.0.0:6443", Vec::new()).expect_err("the address is in use");
    assert_eq!(
        failure.message,
        "cannot serve the Kubernetes API on 0.0.0.0:6443 in router: Address already in use (os \
         error 98)"
    );

    start(&mut agent, "short", "echo out; echo err >&2; exit 3").expect("the program starts");
    let ended = wait_for_status(&mut agent, "short", |running| running.ended.is_some());
    assert_eq!(ended.ended.as_deref(), Some("exited with status 3"));
    let mut lines: Vec<&str> = ended.output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "out"]);
    let failure = start(&mut agent, "short", "true").expect_err("the name is in use");
    assert_eq!(failure.message, "short is already started");
    start(&mut agent, "killed", "kill -9 $$").expect("the program starts");
    let ended = wait_for_status(&mut agent, "killed", |running| running.ended.is_some());
    assert_eq!(ended.ended.as_deref(), Some("was killed by signal 9"));
}
