//! Labs, programs and checks that the tests, benchmarks and fuzzers of svclab share.

#![expect(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only tests use this crate"
)]

pub mod cases;
pub mod causes;
pub mod dump;
pub mod evidence;
pub mod fake_kube_proxy;
pub mod generated;
pub mod guests;
pub mod planted;
pub mod processes;
pub mod programs;
pub mod recordings;
pub mod running;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use svclab_model::plan::Plan;
use svclab_ruleset::input::{Input, ProgramInput};

/// Returns the root directory of the project.
pub fn root() -> &'static Path {
    let mut directories = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    directories.nth(2).expect("tests/support has two parents")
}

/// Returns the directory of the shipped labs.
pub fn topologies() -> PathBuf {
    root().join("topologies")
}

/// Builds the small plan: a client, and a router with one DNAT, one DROP and one REJECT rule. A
/// server is attached to its bridge, and a tunnel connects the two.
pub fn small_plan() -> Plan {
    serde_json::from_str(include_str!("../../plans/small.json")).expect("a plan")
}

/// Runs a future on a new single-threaded runtime.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

/// Returns `full` if `SVCLAB_FULL` is set and not empty, else `ordinary`. `scripts/test --full`
/// sets the variable; the long suites then run more trials, or run at all.
pub fn ordinary_or_full<T>(ordinary: T, full: T) -> T {
    if std::env::var_os("SVCLAB_FULL").is_some_and(|set| !set.is_empty()) {
        full
    } else {
        ordinary
    }
}

/// Whether this process can receive the kernel's drop events. The process must be root of the
/// initial user namespace with all capabilities.
pub fn can_trace_drops() -> bool {
    let namespace = fs::metadata("/proc/self/ns/user").expect("a namespace");
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = u64::from_str_radix(held.expect("a line").trim(), 16).expect("a number");
    // CAP_PERFMON and CAP_BPF, in the initial user namespace.
    held >> 38 & 3 == 3 && namespace.ino() == 0xEFFF_FFFD
}

/// Appends text to the input of a program.
pub fn append_text<T: ProgramInput>(input: &mut Input<T>, text: &str) {
    *input = Input::from_text(format!("{}{text}", input.text()));
}
