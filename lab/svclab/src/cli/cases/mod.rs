//! Commands that load labs and run their cases.

pub(super) mod claims;
pub(super) mod explain;
pub(super) mod graph;
pub(super) mod labs;
pub(super) mod list;
pub(super) mod plan;
pub(super) mod run;
pub(super) mod verify;
pub(super) mod why;
