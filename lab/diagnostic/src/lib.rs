//! Files of users: reading them safely, places in them, and what is wrong there.
//!
//! Input: a path or a text. Output: a [`Source`](source::Source) with
//! [`Diagnostic`]s that point into it, rendered for a terminal.

pub mod bug;
mod diagnostic;
pub mod exit_code;
pub mod files;
pub mod printable;
pub mod shortage;
pub mod source;
pub mod suggest;

pub use diagnostic::{Diagnostic, Label, Rendering, Severity};
