//! Finds by experiment which differences between a good and a bad lab cause a failure.
//!
//! [`Pair`] merges two plans: it lists their differences by meaning and builds the plan for any
//! subset of them. [`find`] changes labs from trial to trial until the few decisive differences are
//! found.

mod declared_by;
pub mod document;
mod error;
mod merge;
mod narrow;
mod over;
mod pair;
mod search;
mod symptom;
mod task;
mod unexamined;

pub use declared_by::find_declarations;
pub use document::{Bisection, SCHEMA};
pub use error::BisectError;
pub use narrow::{DifferenceMask, TrialClass};
pub(crate) use narrow::{TrialCache, narrow_fixes};
pub use over::{OverlayError, is_whole, overlay_dump};
pub use pair::{Difference, Kind, Pair, PairError};
pub use search::find;
pub use symptom::{Indistinguishable, OutcomeDetail};
pub use task::{Task, parallel_labs, requirements};
pub use unexamined::Unexamined;
