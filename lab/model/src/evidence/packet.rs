//! One packet on one interface.

use serde::{Deserialize, Serialize};

use super::bytes;

/// The most packets that evidence has of one stage of a case.
pub const MAX_PACKETS: usize = 50_000;

/// Which way a packet crossed an interface, as its namespace sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// It came in.
    In,
    /// It went out.
    Out,
}

/// A frame as an interface carried it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Packet {
    /// Nanoseconds since the epoch, by the kernel that carried it and its clock as
    /// it was when the lab began: setting it changes nothing.
    pub time: u64,
    /// The namespace.
    pub namespace: String,
    /// The interface, by name.
    pub interface: String,
    /// Which way it went.
    pub direction: Direction,
    /// How long it was on the wire, in bytes.
    pub length: u32,
    /// Its first bytes, from the Ethernet header on.
    #[serde(with = "bytes")]
    #[schemars(with = "String")]
    pub bytes: Vec<u8>,
}
