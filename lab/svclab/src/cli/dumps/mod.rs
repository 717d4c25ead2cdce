//! Commands that read dumps of nodes or objects of clusters.

pub(super) mod bisect;
pub(super) mod diff;
mod generated;
mod lab_file;
mod prepare;
pub(super) mod redact;
pub(super) mod replay;
pub(super) mod rules;
mod sides;
