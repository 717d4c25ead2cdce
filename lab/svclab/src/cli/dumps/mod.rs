//! Commands that read dumps of nodes or objects of clusters.

pub(super) mod bisect;
pub(super) mod diff;
pub(super) mod replay;
pub(super) mod rules;
mod sides;
