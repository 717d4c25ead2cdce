//! Reads, checks and compares dumps of nodes.
//!
//! A dump is a set of tool outputs in a file, a directory or an archive. [`NodeDump`] is a parsed
//! dump; [`compare()`] lists the differences between two dumps that affect packets.

#![warn(unreachable_pub)]

pub mod archive;
pub mod compare;
mod converted;
mod difference;
pub mod folder;
mod gap;
mod hardware;
mod incomplete;
mod lists;
mod merge;
pub mod node;
pub mod owner;
mod parse;
pub mod recognise;
mod silent;
mod text;

pub use compare::compare;
pub use difference::{Difference, DumpChange, DumpLocation, Owner, Side};
pub use gap::Gap;
pub use hardware::OwnHardwareAddresses;
pub use incomplete::uncollected::uncollected_state;
pub use node::{File, NodeDump, ParsedDump};
