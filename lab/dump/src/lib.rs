//! Reads, checks and compares dumps of nodes.
//!
//! A dump is a set of tool outputs in files, directories or tarballs. [`NodeDump`] is a parsed
//! dump; [`compare()`] lists the differences between two dumps that affect packets.

#![warn(unreachable_pub)]

pub mod compare;
mod difference;
pub mod folder;
mod lists;
pub mod nft_owner;
pub mod node;
pub mod owner;
mod proxy;
pub mod tarball;

pub use compare::compare;
pub use difference::{Difference, DumpChange, DumpLocation, Owner, Side};
pub use node::{File, NodeDump, ParsedDump};
