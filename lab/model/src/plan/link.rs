//! Interfaces.

use std::fmt;
use std::str::FromStr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::net::IpAddr;

/// One interface of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// At most 15 bytes, unique in its namespace.
    pub name: String,
    /// What it is.
    pub kind: LinkKind,
    /// Its link-layer address, fixed so that neighbours can be.
    pub mac: Mac,
    /// Its addresses, host bits kept.
    pub addresses: Vec<IpNetwork>,
    /// The bridge it is a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// A frame may leave a bridge by the port it came in on.
    #[serde(default)]
    pub hairpin: bool,
    /// It is left down, as kube-proxy leaves `kube-ipvs0`: its addresses are the
    /// node's own all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// Largest packet, in bytes; the kernel's own choice when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl Link {
    /// Whether its cable ends in the namespace of that name.
    #[must_use]
    pub fn leads_to(&self, name: &str) -> bool {
        matches!(&self.kind, LinkKind::Veth { namespace, .. } if namespace == name)
    }
}

/// What an interface is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum LinkKind {
    /// One end of a cable into another namespace. Each end names the other.
    Veth {
        /// The namespace of the other end.
        namespace: String,
        /// The other end's name there.
        peer: String,
    },
    /// A switch.
    Bridge,
    /// An interface that leads nowhere and only holds addresses.
    Dummy,
    /// A tunnel end, forwarding entries set by hand as flannel does.
    Vxlan {
        /// Network identifier.
        vni: u32,
        /// UDP port.
        port: u16,
        /// The underlay interface, by name.
        dev: String,
        /// The underlay source address.
        local: IpAddr,
    },
}

/// A link-layer address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The address of an interface: made from its names, so that it is the same
    /// in every run, locally administered, and unicast.
    #[must_use]
    pub fn of(namespace: &str, link: &str) -> Self {
        let digest = Sha256::digest(format!("{namespace}\0{link}"));
        let mut mac = [0x0a, 0x58, 0, 0, 0, 0];
        mac[2..].copy_from_slice(&digest[..4]);
        Self(mac)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let colon = if at > 0 { ":" } else { "" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Not six hexadecimal bytes between colons.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a link-layer address: six hexadecimal bytes between colons")]
pub struct BadMac(String);

impl FromStr for Mac {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let bad = || BadMac(text.to_owned());
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
    fn a_mac_is_stable_local_and_unicast() {
        let mac = Mac::of("node-1", "eth0");
        assert_eq!(mac, Mac::of("node-1", "eth0"));
        assert_ne!(mac, Mac::of("node-1", "eth1"));
        assert_eq!(mac.0[0] & 0b11, 0b10);
    }

    #[test]
    fn a_mac_reads_what_it_prints() {
        let mac = Mac::of("pod/default/client", "eth0");
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
