//! Compares the outcomes of two sides: the independent draws of one flow, and the shares of a
//! service's endpoints over all its flows.

mod draws;
mod shares;
#[cfg(test)]
mod simulated;

pub(crate) use draws::{DrawUnit, Draws, Likeness};
pub(crate) use shares::{ShareGroup, SharePool};
