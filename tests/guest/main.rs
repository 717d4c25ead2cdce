//! Tests guests, which are real kernels in QEMU, and all known failures of starting one. The tests
//! fail if QEMU or a kernel package is not available.

mod accounts;
mod agree;
mod alive;
mod bisect;
mod broken;
mod command;
mod confined;
mod container;
mod explain;
mod kept;
mod lacking;
mod outcome;
mod qemu_state;
mod replay;
mod room;
mod running;
mod support;
mod trace;
mod why;

/// Path of the program under test.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");
