//! Bisecting two plans: labs that stand, changed from trial to trial, until what makes
//! the difference is found; then labs built anew, in which the answer has to hold.

mod bench;
mod benches;
mod ends;
mod error;
mod find;
mod narrowing;
mod said;
mod task;
mod trials;

pub use benches::side_by_side;
pub use error::BisectError;
pub use find::find;
pub use said::said_by;
pub use task::{Task, needs};
