//! Guests: real kernels booted by QEMU, and everything that can go wrong on the
//! way to one. QEMU and a kernel package must be at hand; where they are not,
//! these tests fail and say so.

mod accounts;
#[path = "../shared/accounts.rs"]
mod accounts_of;
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
mod replay;
mod room;
mod seen;
#[path = "../shared/settled.rs"]
mod settled;
mod standing;
#[path = "../shared/standing.rs"]
mod standing_labs;
mod support;
mod trace;
#[path = "../shared/traced.rs"]
mod traced;
mod why;

/// The program under test.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");
