//! Names the parts of places in which ways move horizontally.

/// Strip of a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Strip {
    /// Namespace of the place.
    pub namespace: String,
    /// Part of the place.
    pub zone: Zone,
}

/// Part of a place, from its uplinks to its pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Zone {
    /// Between the uplinks and the tunnel devices: tunnel packets.
    Uplink,
    /// Network stack: routing, rules and IPVS.
    Stack,
    /// Bridge with this name, for packets that do not enter the network stack.
    Bridge(String),
}
