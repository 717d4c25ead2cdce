//! Commands about this machine and about svclab itself.

pub(super) mod doctor;
pub(super) mod kernel;
pub(super) mod schema;
