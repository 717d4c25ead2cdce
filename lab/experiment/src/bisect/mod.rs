//! Finds by experiment which differences between a good and a bad lab cause a failure.
//!
//! [`Pair`] merges two plans: it lists their differences by meaning and builds the plan for any
//! subset of them. [`narrow()`] finds the few decisive differences by trials. [`Symptom`] defines
//! what a trial observes, the number of connections per trial, and the error probability.

pub mod document;
mod merge;
mod narrow;
mod over;
mod pair;
mod symptom;

pub use document::{Bisection, SCHEMA};
pub use narrow::{Culprits, DifferenceMask, NextTrial, TrialCache, TrialClass, narrow};
pub use over::{OverlayError, is_whole, overlay_dump};
pub use pair::{Difference, Kind, Pair, PairError};
pub use symptom::{Indistinguishable, OutcomeDetail, Symptom};
