//! Bisects two plans: changes running labs from trial to trial until the decisive differences are
//! found, then verifies the result in newly built labs.

mod baseline;
mod bisection_run;
mod declared_by;
mod error;
mod find;
mod lab_pool;
mod narrowing;
mod task;
mod trial_lab;

pub use declared_by::find_declarations;
pub use error::BisectError;
pub use find::find;
pub use lab_pool::parallel_labs;
pub use task::{Task, requirements};
