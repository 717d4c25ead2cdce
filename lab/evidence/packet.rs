//! One packet on one interface.

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which way a packet crossed an interface, as its namespace sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// It came in.
    In,
    /// It went out.
    Out,
}

/// A frame as an interface carried it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub bytes: Vec<u8>,
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64
        .decode(text.as_bytes())
        .map_err(serde::de::Error::custom)
}
