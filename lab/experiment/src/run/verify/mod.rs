//! Comparing two kube-proxies by what packets do: every case is built with each of
//! them, and where a flow's connections come out otherwise, it is tried again until
//! chance is ruled out. Of a case with steps each step is compared, and to try again is to
//! run the whole case.

mod bench;
mod clients;
mod draws;
mod pairs;
mod shares;
mod side;
mod trial;

pub use pairs::{Pair, Pairs, pairs};
pub use side::{Program, SaysNothing, Side, version_of};
pub use trial::{Step, verify};
