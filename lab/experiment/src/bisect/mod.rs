//! Finding by experiment what makes the difference between a lab that is well and one
//! that is not.
//!
//! [`Pair`] is two plans laid over each other: their differences by meaning, and the plan
//! of any choice of them. [`narrow()`] finds the few that decide, by trials; [`Symptom`]
//! says what is looked at in a trial, how often it must be tried, and how sure that is.

pub mod document;
mod merge;
mod narrow;
mod over;
mod pair;
mod symptom;

pub use document::{Bisection, SCHEMA};
pub use narrow::{Chosen, Known, Like, Narrowed, Wanted, narrow};
pub use over::{OverError, is_whole, over};
pub use pair::{Difference, Kind, Pair, PairError};
pub use symptom::{Alike, Level, Symptom};
