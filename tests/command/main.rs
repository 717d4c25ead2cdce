//! Tests the svclab command: output, exit codes, and effects on the machine.

mod analysis;
mod dump;
mod failure;
mod fake;
mod input;
mod project;
mod run;
mod running;
mod support;
mod terminal;

/// Path of the program under test.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");
