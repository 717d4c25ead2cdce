//! Defines the exit codes of `svclab`.
//!
//! If several codes apply to one command, the first of this list decides: [`INTERRUPTED`], [`BUG`],
//! [`AGENT_LOST`], [`HOST_UNABLE`], [`INVALID_INPUT`], [`FAILED`], [`NOTHING_SELECTED`]. An `ERROR`
//! therefore outranks a failed expectation and a difference. [`SUCCESS`] means that the command
//! completed all requested work. Work that was omitted because it failed is never part of a
//! success.
//!
//! Two cases outrank an interruption. A panic of the command itself gives [`BUG`]. A change of the
//! host found by `run --certify` gives [`FAILED`].

/// The command succeeded, and no expectation failed.
pub const SUCCESS: u8 = 0;

/// An expectation failed, a difference was found, or a certified run changed the host.
pub const FAILED: u8 = 1;

/// The input is invalid: an argument, a lab, or a dump.
pub const INVALID_INPUT: u8 = 2;

/// The host lacks a program, a kernel feature, a privilege, or memory.
pub const HOST_UNABLE: u8 = 3;

/// Nothing was selected: no lab, case or running lab has the name.
pub const NOTHING_SELECTED: u8 = 4;

/// The agent or guest of the lab was lost.
pub const AGENT_LOST: u8 = 5;

/// Bug in svclab: a panic, an invalid answer, or a case without a result (`EX_SOFTWARE` of
/// sysexits.h).
pub const BUG: u8 = 70;

/// The user interrupted the command: 128 + SIGINT, as in shells.
pub const INTERRUPTED: u8 = 130;
