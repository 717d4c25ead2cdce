//! Runs a bisection: changes labs from trial to trial until the decisive differences are found,
//! then verifies the result in newly built labs.

mod baseline;
mod bisection_run;
mod find;
mod narrowing;
mod probe_mode;
mod running_trial;

pub use find::find;
