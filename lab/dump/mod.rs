//! What a node holds, as the programs print it: read from files, checked, and
//! compared by what it means.

pub mod attributes;
pub mod compare;
pub mod difference;
pub mod folder;
pub mod format;
pub mod iptables;
pub mod kinds;
pub mod limits;
pub mod links;
pub(crate) mod lists;
pub mod nft;
pub mod node;
pub(crate) mod owner;
pub mod policy;
pub mod problem;
pub mod proxy;
pub mod routes;
pub mod servers;
pub mod sets;
pub mod sysctls;
pub mod tarball;
pub mod text;

pub use compare::compare;
pub use difference::{Change, Difference, Owner, Place, Side};
pub use format::Format;
pub use node::{File, NodeDump, Read};
pub use problem::{Problem, Wrong};
pub use text::Text;
