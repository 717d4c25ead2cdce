//! Defines the settings of bridge ports.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Whether the port forwards frames: it has the spanning tree state `forwarding`, and not
    /// `disabled`.
    pub forwarding: bool,
}

impl Default for PortSettings {
    fn default() -> Self {
        Self {
            hairpin: false,
            isolated: false,
            learning: true,
            flood: true,
            locked: false,
            forwarding: true,
        }
    }
}

impl PortSettings {
    /// Returns the settings with their names in iproute2.
    #[must_use]
    pub const fn settings(&self) -> [(&'static str, bool); 6] {
        [
            ("hairpin", self.hairpin),
            ("isolated", self.isolated),
            ("learning", self.learning),
            ("flood", self.flood),
            ("locked", self.locked),
            ("state", self.forwarding),
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
            "state" => self.forwarding = is_on,
            _ => {}
        }
    }

    /// Returns the value of a setting in the format of `bridge -d link`.
    #[must_use]
    pub fn value(name: &str, is_on: bool) -> &'static str {
        match (name, is_on) {
            ("state", true) => "forwarding",
            ("state", false) => "disabled",
            (_, true) => "on",
            (_, false) => "off",
        }
    }

    /// Returns the settings that can be changed while the port is down: all but its state (Linux
    /// v6.12, `net/bridge/br_netlink.c`, `br_set_port_state`).
    #[must_use]
    pub const fn without_state(self) -> Self {
        Self {
            forwarding: true,
            ..self
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
            write!(f, " {name} {}", Self::value(name, value))?;
        }
        Ok(())
    }
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
            " hairpin on isolated on learning off flood off locked on state disabled"
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
