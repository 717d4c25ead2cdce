//! Tests guests, which are real kernels in QEMU, and all known failures of starting one. The tests
//! fail if QEMU or a kernel package is not available.

mod alive;
mod analysis;
mod command;
mod confined;
mod drafts;
mod evidence;
mod programs;
mod running;
mod start;
mod support;

/// Path of the program under test.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");
