//! Measures the API server of labs with 10,000 services and 200 changes a second: response times,
//! delay of watch events, and memory.
//!
//! Run by `scripts/bench`. The program also acts as its own client, in the namespace in which the
//! API is served.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comfy_table::{Table, presets};
use serde_json::{Value, json};
use svclab_model::plan::{API_ADDRESS, Namespace, Plan};
use svclab_runner::kernel::{Host, Session};
use tokio::runtime::Builder;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Path of the measured program.
const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

const SERVICES: u32 = 10_000;

/// Number of changes, and number of changes a second.
const CHANGES: u32 = 2_000;
const CHANGES_PER_SECOND: u32 = 200;

const WATCHERS: usize = 3;

/// Annotation with the time at which a change was sent, in nanoseconds since the epoch.
const SENT_ANNOTATION: &str = "svclab/sent";

/// Namespace of the API server and the clients.
const NODE: &str = "node";

fn main() {
    let words: Vec<String> = env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[1..] {
        ["list", target] => measure_list(target),
        ["watch", target] => measure_watch(target),
        _ => measure(),
    }
}

fn measure() {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let path = env::current_exe().expect("a program has a path");
        let own = fs::canonicalize(path).expect("a path");
        let host = Host::with_agent(AGENT.into()).with_programs([own.clone()]);
        let agent = host.start().await.expect("an agent");
        let plan = Plan {
            case: "an API server".to_owned(),
            namespaces: vec![Namespace {
                name: NODE.to_owned(),
                ..Namespace::default()
            }],
            ..Plan::default()
        };
        let mut session = agent.build(plan).await.expect("a namespace");
        let process = agent.process().expect("an agent is a process");
        let before = resident(process);
        let program = own.display().to_string();
        let mut table = Table::new();
        table
            .load_style(presets::ASCII_MARKDOWN)
            .set_header(["an API server of 10,000 services", ""]);
        let begun = Instant::now();
        let objects = (0..SERVICES).flat_map(|number| [service(number), slice(number, None)]);
        let objects: Vec<Value> = objects.collect();
        let version = session.serve(NODE, API_ADDRESS, objects).await;
        let version = version.expect("the objects can be served");
        table.add_row([
            "transfer to the agent",
            &format_milliseconds(begun.elapsed()),
        ]);
        for (label, target) in [
            ("listing services", "/api/v1/services".to_owned()),
            (
                "the slices as a stream, to its bookmark",
                "/apis/discovery.k8s.io/v1/endpointslices?watch=true&sendInitialEvents=true\
                 &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
                    .to_owned(),
            ),
        ] {
            let finished = session.run(NODE, &program, &["list", &target], "").await;
            let finished = finished.expect("a client");
            assert!(finished.success, "{finished:?}");
            table.add_row([label, finished.stdout.trim()]);
        }
        measure_changes(&mut session, &program, version, &mut table).await;
        table.add_row([
            "memory of the agent, before and after".to_owned(),
            format!("{before} MiB, {} MiB", resident(process)),
        ]);
        println!("{table}");
    });
}

/// Sends changes of endpoint slices at a constant rate while clients watch.
async fn measure_changes(session: &mut Session, program: &str, version: u64, table: &mut Table) {
    let target =
        format!("/apis/discovery.k8s.io/v1/endpointslices?watch=true&resourceVersion={version}");
    let watchers: Vec<String> = (0..WATCHERS).map(|at| format!("watcher {at}")).collect();
    let words = ["watch".to_owned(), target];
    for name in &watchers {
        let started = session.start(NODE, name, program, &words).await;
        started.expect("a client");
    }
    let mut pace = interval(Duration::from_secs(1) / CHANGES_PER_SECOND);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let begun = Instant::now();
    for change in 0..CHANGES {
        pace.tick().await;
        // Any order that reaches all services is sufficient.
        let number = change * 7919 % SERVICES;
        let changed = slice(number, Some(now()));
        let put = session
            .update_objects(NODE, API_ADDRESS, vec![changed])
            .await;
        put.expect("the object can be served");
    }
    let took = begun.elapsed();
    table.add_row([
        format!("{CHANGES} changes at {CHANGES_PER_SECOND} per second"),
        format!("{:.0} per second", f64::from(CHANGES) / took.as_secs_f64()),
    ]);
    for name in &watchers {
        loop {
            let running = session
                .program_status(name)
                .await
                .expect("the program was started");
            if running.ended.is_some() {
                table.add_row([
                    &format!("until {name} receives the last change"),
                    running.output.trim(),
                ]);
                break;
            }
            // The agent sends no event when a program ends.
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn service(number: u32) -> Value {
    let address = Ipv4Addr::from(0x0a60_0000 + number);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("service-{number}"), "namespace": "default"},
        "spec": {"clusterIP": address.to_string(), "ports": [{"port": 80, "targetPort": 8080}]},
    })
}

fn slice(number: u32, sent: Option<u128>) -> Value {
    let endpoints = (0..5).map(|endpoint| {
        let address = Ipv4Addr::from(0x0a80_0000 + number * 5 + endpoint);
        json!({"addresses": [address.to_string()], "conditions": {"ready": true}})
    });
    let endpoints: Vec<Value> = endpoints.collect();
    let sent = sent.map(|sent| sent.to_string()).unwrap_or_default();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": format!("service-{number}-a"), "namespace": "default",
            "labels": {"kubernetes.io/service-name": format!("service-{number}")},
            "annotations": {SENT_ANNOTATION: sent},
        },
        "ports": [{"port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures times that processes of one machine exchange"
)]
fn now() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock that is set").as_nanos()
}

fn format_milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Sends a GET request and reads lines until `each` returns true.
fn get_lines(target: &str, mut each: impl FnMut(&str) -> bool) {
    let mut stream = TcpStream::connect(API_ADDRESS).expect("an API server");
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nHost: {API_ADDRESS}\r\nConnection: close\r\n\r\n"
    )
    .expect("the API server listens");
    for line in BufReader::new(stream).lines() {
        if each(&line.expect("the API server sends text")) {
            break;
        }
    }
}

/// Client: prints the time of a full response and its size.
fn measure_list(target: &str) {
    let begun = Instant::now();
    let mut bytes = 0;
    get_lines(target, |line| {
        bytes += line.len();
        line.contains("\"BOOKMARK\"")
    });
    println!(
        "{}, {} KiB",
        format_milliseconds(begun.elapsed()),
        bytes / 1024
    );
}

/// Client: prints the delays between the sending and the receipt of changes.
fn measure_watch(target: &str) {
    let mut late: Vec<u128> = Vec::new();
    let expected_events = usize::try_from(CHANGES).expect("the number fits");
    get_lines(target, |line| {
        // Lines between events contain the chunk sizes.
        if line.starts_with('{') {
            let event: Value = serde_json::from_str(line).expect("an event");
            let sent = event["object"]["metadata"]["annotations"][SENT_ANNOTATION].as_str();
            let sent: u128 = sent.and_then(|sent| sent.parse().ok()).expect("a time");
            late.push(now().saturating_sub(sent));
        }
        late.len() == expected_events
    });
    late.sort_unstable();
    let percentile = |share: usize| {
        let place = (late.len() * share / 100).min(late.len().saturating_sub(1));
        late.get(place).map_or(0, |nanoseconds| nanoseconds / 1000)
    };
    println!(
        "{} changes: median {} us, 99 of 100 within {} us, all within {} us",
        late.len(),
        percentile(50),
        percentile(99),
        percentile(100)
    );
}

/// Returns the resident memory of a process and its descendants in MiB.
fn resident(process: u32) -> u64 {
    let own_memory = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let own = own_memory
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next())
        .and_then(|kibibytes| kibibytes.parse::<u64>().ok())
        .unwrap_or_default();
    let children = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|child| child.parse().ok());
    own / 1024 + children.map(resident).sum::<u64>()
}
