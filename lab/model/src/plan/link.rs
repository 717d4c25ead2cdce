//! Defines network interfaces.

use std::fmt;

use ipnetwork::IpNetwork;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use svclab_ruleset::Mac;

/// Interface of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// Interface name, at most 15 bytes, unique in the namespace.
    pub name: String,
    /// Type of the interface.
    pub kind: LinkKind,
    /// Link-layer address, fixed so that static neighbour entries can name it.
    pub mac: Mac,
    /// Addresses with prefix lengths. Host bits are kept.
    pub addresses: Vec<IpNetwork>,
    /// Bridge that the interface is a port of. `None` if it is not a bridge port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Settings of the bridge port.
    #[serde(default, skip_serializing_if = "PortSettings::is_default")]
    pub port: PortSettings,
    /// Whether the interface stays down, as kube-proxy leaves `kube-ipvs0`. Its addresses are local
    /// to the node nevertheless.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// MTU in bytes. `None` leaves the choice to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl Link {
    /// Whether the interface is a veth whose peer is in the namespace `name`.
    #[must_use]
    pub fn is_veth_to(&self, name: &str) -> bool {
        matches!(&self.kind, LinkKind::Veth { namespace, .. } if namespace == name)
    }
}

/// Settings of a bridge port. The defaults are the kernel's (Linux v6.12, `net/bridge/br_if.c`,
/// `new_nbp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the settings are independent of each other"
)]
pub struct PortSettings {
    /// Whether the bridge may forward a frame out of the port that received it.
    pub hairpin: bool,
    /// Whether the port exchanges no frames with other isolated ports.
    pub isolated: bool,
    /// Whether the bridge learns addresses from frames of the port.
    pub learning: bool,
    /// Whether unicast frames to unknown addresses leave through the port.
    pub flood: bool,
    /// Whether the port receives only frames from addresses that lead to the port.
    pub locked: bool,
}

impl Default for PortSettings {
    fn default() -> Self {
        Self {
            hairpin: false,
            isolated: false,
            learning: true,
            flood: true,
            locked: false,
        }
    }
}

impl PortSettings {
    /// Returns the settings with their names in iproute2.
    #[must_use]
    pub const fn settings(&self) -> [(&'static str, bool); 5] {
        [
            ("hairpin", self.hairpin),
            ("isolated", self.isolated),
            ("learning", self.learning),
            ("flood", self.flood),
            ("locked", self.locked),
        ]
    }

    /// Changes the setting with this name in iproute2. Unknown names have no effect.
    pub fn set(&mut self, name: &str, is_on: bool) {
        match name {
            "hairpin" => self.hairpin = is_on,
            "isolated" => self.isolated = is_on,
            "learning" => self.learning = is_on,
            "flood" => self.flood = is_on,
            "locked" => self.locked = is_on,
            _ => {}
        }
    }

    /// Whether the settings are the kernel's defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Renders the settings in the format of `bridge link`, without defaults: ` hairpin on`. Each setting
/// follows a space.
impl fmt::Display for PortSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.settings().into_iter().zip(Self::default().settings());
        for ((name, value), _) in pairs.filter(|((_, value), (_, default))| value != default) {
            write!(f, " {name} {}", if value { "on" } else { "off" })?;
        }
        Ok(())
    }
}

/// Type of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "is")]
pub enum LinkKind {
    /// End of a veth pair between two namespaces. Each end names the other end.
    Veth {
        /// Namespace of the peer.
        namespace: String,
        /// Name of the peer interface in that namespace.
        peer: String,
    },
    /// Linux bridge.
    Bridge,
    /// Dummy interface, which only holds addresses.
    Dummy,
    /// Vxlan device with static forwarding entries, as flannel sets it up.
    Vxlan {
        /// VXLAN network identifier (VNI).
        vni: u32,
        /// UDP port of the tunnel.
        port: u16,
        /// Name of the underlay interface.
        dev: String,
        /// Source address in the underlay.
        local: IpAddr,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_settings_are_set_by_their_names() {
        let mut port = PortSettings::default();
        assert_eq!(port.to_string(), "");
        for (name, is_on) in port.settings() {
            port.set(name, !is_on);
            assert!(port.settings().contains(&(name, !is_on)));
        }
        assert_eq!(
            port.to_string(),
            " hairpin on isolated on learning off flood off locked on"
        );
        let json = serde_json::to_string(&port).unwrap();
        assert_eq!(serde_json::from_str::<PortSettings>(&json).unwrap(), port);
        assert!(
            serde_json::from_str::<PortSettings>("{}")
                .unwrap()
                .is_default()
        );
    }
}
