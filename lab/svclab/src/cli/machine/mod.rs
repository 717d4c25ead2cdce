//! Commands about this machine and about svclab itself.

pub(super) mod collect_node;
pub(super) mod doctor;
pub(super) mod kernel;
pub(super) mod merge;
pub(super) mod report;
pub(super) mod schema;
pub(super) mod shell;
