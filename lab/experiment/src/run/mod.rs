//! Runs experiments on a kernel.

pub mod bisect;
pub mod verify;
pub mod why;
