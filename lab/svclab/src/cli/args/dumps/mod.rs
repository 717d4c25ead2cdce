//! Arguments of the commands that read dumps of nodes.

mod bisect;
mod diff;
mod redact;
mod replay;

pub(crate) use bisect::{BisectArguments, BisectFormat};
pub(crate) use diff::{DiffArguments, DiffFormat};
pub(crate) use redact::RedactArguments;
pub(crate) use replay::{ReplayArguments, ReplayFormat, parse_source_and_target};

pub(super) use bisect::BISECT_HELP;
pub(super) use diff::DIFF_HELP;
pub(super) use redact::REDACT_HELP;
pub(super) use replay::REPLAY_HELP;
