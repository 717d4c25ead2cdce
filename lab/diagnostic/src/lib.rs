//! Reads files of users safely, and reports errors in them.
//!
//! Input: a path or a text. Output: a [`Source`](source::Source), and [`Diagnostic`]s with
//! positions in the source, rendered for a terminal.

#![warn(unreachable_pub)]

pub mod bug;
mod diagnostic;
pub mod exit_code;
pub mod files;
pub mod printable;
pub mod shortage;
pub mod source;
pub mod suggest;

pub use diagnostic::{Diagnostic, Label, Rendering, Severity};
