//! Bisecting two plans: one lab that stands, changed from trial to trial, until what makes
//! the difference is found; then labs built anew, in which the answer has to hold.

mod bench;
mod find;

pub use find::{BisectError, Task, find, needs};
