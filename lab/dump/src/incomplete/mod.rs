//! Finds the state of a node that a dump lacks or shows in part.

pub(crate) mod uncollected;
mod unknown;
mod xtables_rules;
