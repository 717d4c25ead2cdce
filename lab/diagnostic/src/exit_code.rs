//! The exit codes of `svclab`.
//!
//! Where several apply to one command, the first of these decides: [`INTERRUPTED`],
//! [`BUG`], [`LOST`], [`MACHINE`], [`INPUT`], [`FAILED`], [`NOTHING`]. So an `ERROR`
//! outranks an expectation that failed and a difference that was found, and
//! [`SUCCESS`] says that all that was asked for was done: what was left out because it
//! failed is never part of a success. A panic of the command itself outranks an
//! interruption, with [`BUG`], and so does what `run --certify` finds changed on the
//! machine, with [`FAILED`].

/// Everything came out as expected, or what was asked for was done.
pub const SUCCESS: u8 = 0;

/// An expectation failed, something differs, or a certified run changed the machine.
pub const FAILED: u8 = 1;

/// The input is wrong: an argument, a lab, a dump.
pub const INPUT: u8 = 2;

/// This machine cannot do it: it lacks a program, a kernel feature, a right or room.
pub const MACHINE: u8 = 3;

/// Nothing was selected: no lab, no case or no running lab has that name.
pub const NOTHING: u8 = 4;

/// The agent or the guest that held the lab was lost.
pub const LOST: u8 = 5;

/// svclab has a bug: a panic, an answer that makes no sense, a case without a result.
/// (`EX_SOFTWARE` of sysexits.h)
pub const BUG: u8 = 70;

/// The user interrupted it: 128 + SIGINT, as shells have it.
pub const INTERRUPTED: u8 = 130;
