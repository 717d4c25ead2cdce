//! Experiments: labs that are built and probed again and again, each time with something
//! changed.
//!
//! [`verify`] compares two kube-proxies, [`why`] finds what to change where a connection
//! fails, and [`bisect`] which difference between two labs breaks a call. What they run
//! is in [`run`].

pub mod bisect;
pub mod run;
pub mod verify;
pub mod why;
