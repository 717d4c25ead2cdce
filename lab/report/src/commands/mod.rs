//! Renders the results of commands other than `run`, for people and programs.

pub mod bisect;
pub mod claims;
pub mod compare;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod ps;
pub mod replay;
pub mod verify;
pub mod version_history;
pub mod why;
