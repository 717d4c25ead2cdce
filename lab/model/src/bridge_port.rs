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
