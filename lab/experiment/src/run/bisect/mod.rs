//! Bisects two plans: changes running labs from trial to trial until the decisive differences are
//! found, then verifies the result in newly built labs.

mod bench;
mod benches;
mod ends;
mod error;
mod find;
mod narrowing;
mod said;
mod task;
mod trials;

pub use benches::parallel_labs;
pub use error::BisectError;
pub use find::find;
pub use said::find_declarations;
pub use task::{Task, requirements};
