//! How experiments run.

pub mod bisect;
pub mod verify;
pub mod why;
