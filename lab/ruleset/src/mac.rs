//! Defines link-layer addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Link-layer address of 6 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Address that no interface has. In the forwarding database of a vxlan device, it stands for
    /// unknown addresses.
    pub const ZERO: Self = Self([0; 6]);

    /// Derives a link-layer address from the names of a namespace and an interface. The address is
    /// the same in every run, locally administered, and unicast.
    #[must_use]
    pub fn from_names(namespace: &str, link: &str) -> Self {
        let digest = Sha256::digest(format!("{namespace}\0{link}"));
        let mut mac = [0x0a, 0x58, 0, 0, 0, 0];
        mac[2..].copy_from_slice(&digest[..4]);
        Self(mac)
    }

    /// Whether the address is that of a group: multicast or broadcast.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let colon = if index > 0 { ":" } else { "" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Error for a text that is not six hexadecimal bytes between colons.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a link-layer address: expected 6 hexadecimal bytes separated by colons")]
pub struct ParseMacError(String);

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let bad = || ParseMacError(text.to_owned());
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts
                .next()
                .filter(|part| part.len() == 2)
                .ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Self(mac))
    }
}

impl Serialize for Mac {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_from_names_is_stable_local_and_unicast() {
        let mac = Mac::from_names("node-1", "eth0");
        assert_eq!(mac, Mac::from_names("node-1", "eth0"));
        assert_ne!(mac, Mac::from_names("node-1", "eth1"));
        assert_eq!(mac.0[0] & 0b11, 0b10);
    }

    #[test]
    fn mac_parse_reverses_display() {
        let mac = Mac::from_names("pod/default/client", "eth0");
        assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
        for bad in [
            "",
            "0a:58",
            "0a:58:00:00:00:00:00",
            "0a:58:0:00:00:000",
            "zz:58:00:00:00:00",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}
