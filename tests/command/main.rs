//! Tests the svclab command: output, exit codes, and effects on the machine.

mod bad_input;
mod binary;
mod bisect;
#[path = "../shared/by_hand.rs"]
mod by_hand;
#[path = "../shared/caches.rs"]
mod caches;
#[expect(dead_code, reason = "this test does not select a case by name")]
#[path = "../shared/cases.rs"]
mod cases;
mod certified;
mod cgroup;
mod ci;
mod claims;
mod closed;
mod collect;
#[path = "../shared/copied.rs"]
mod copied;
mod damaged;
mod diff;
mod every_case;
mod explain;
mod fake;
mod fields;
#[path = "../shared/full.rs"]
mod full;
#[path = "../shared/guests.rs"]
mod guests;
mod interrupted;
mod kept;
mod killed;
mod measured;
mod node_ports;
mod panics;
mod paths;
mod printed;
mod readme;
mod refusals;
mod replay;
#[path = "../shared/rights.rs"]
mod rights;
mod rules;
mod running;
#[path = "../shared/running_labs.rs"]
mod running_labs;
#[path = "../shared/settled.rs"]
mod settled;
mod short;
mod style;
mod support;
mod typed;
mod untouched;
mod verify;
#[path = "../shared/waiting.rs"]
mod waiting;
mod why;

/// Path of the program under test.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");
