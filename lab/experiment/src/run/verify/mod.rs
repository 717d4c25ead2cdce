//! Compares two kube-proxies by the packets of every case. If the outcomes of a flow differ, the
//! flow is tried again until chance is ruled out. In a case with steps each step is compared, and
//! the whole case runs again.

mod bench;
mod clients;
mod draws;
mod pairs;
mod shares;
mod side;
mod trial;

pub use pairs::{CasePair, PreparedPairs, prepare_pairs};
pub use side::{Program, Side, VersionError, read_version};
pub use trial::{Progress, verify};
