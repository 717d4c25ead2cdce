//! What a node holds, as the programs print it: read from files, checked, and
//! compared by what it means.

pub mod attributes;
pub mod format;
pub mod iptables;
pub mod limits;
pub mod links;
pub mod policy;
pub mod problem;
pub mod routes;
pub mod servers;
pub mod sets;
pub mod sysctls;
pub mod text;

pub use format::Format;
pub use problem::{Problem, Wrong};
pub use text::Text;
