//! Commands that start, use and stop running labs.

mod attach;
pub(super) mod capture;
mod detach;
pub(super) mod down;
pub(super) mod exec;
pub(super) mod probe;
pub(super) mod ps;
mod ready_message;
pub(super) mod up;
