//! Tests guests, which are real kernels in QEMU, and all known failures of starting one. The tests
//! fail if QEMU or a kernel package is not available.

#[path = "../shared/accounting.rs"]
mod accounting;
mod accounts;
mod agree;
mod alive;
mod bisect;
mod broken;
#[path = "../shared/by_hand.rs"]
mod by_hand;
#[path = "../shared/caches.rs"]
mod caches;
#[path = "../shared/cases.rs"]
mod cases;
mod command;
mod confined;
mod container;
#[path = "../shared/dropped.rs"]
mod dropped;
mod explain;
#[path = "../shared/guests.rs"]
mod guests;
mod kept;
mod lacking;
mod outcome;
mod processes;
mod qemu_state;
mod replay;
mod room;
mod running;
#[path = "../shared/running_labs.rs"]
mod running_labs;
#[path = "../shared/settled.rs"]
mod settled;
mod support;
mod trace;
#[path = "../shared/traced.rs"]
mod traced;
mod why;

/// Path of the program under test.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");
