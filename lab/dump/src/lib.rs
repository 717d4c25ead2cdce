//! What a node holds, as the programs print it: read from files, checked, and
//! compared by what it means.

pub mod compare;
pub mod difference;
pub mod folder;
pub mod lists;
pub mod node;
pub mod owner;
pub mod proxy;
pub mod tarball;

pub use compare::compare;
pub use difference::{Change, Difference, Owner, Place, Side};
pub use node::{File, NodeDump, Read};
