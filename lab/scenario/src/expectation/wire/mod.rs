//! Expectations about packets on an interface.

mod pattern;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use crate::expectation::count::Count;
pub use pattern::{Overlay, PacketKind, PacketPattern, PacketPatternError, Peer};

/// Reference to an interface of a node, pod, host or load balancer: `node-1/eth0`,
/// `pod/default/client/eth0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InterfaceRef {
    /// Name of the node, pod, host or load balancer, as in a probe.
    pub owner: String,
    /// Name of the interface inside its namespace.
    pub interface: String,
}

impl fmt::Display for InterfaceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.interface)
    }
}

/// Error of parsing a [`InterfaceRef`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an interface; write for example `node-1/eth0`")]
pub struct InterfaceRefError(String);

impl FromStr for InterfaceRef {
    type Err = InterfaceRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once('/') {
            Some((owner, interface)) if !owner.is_empty() && !interface.is_empty() => Ok(Self {
                owner: owner.to_owned(),
                interface: interface.to_owned(),
            }),
            _ => Err(InterfaceRefError(text.to_owned())),
        }
    }
}

/// Expected number of packets on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WireShape")]
pub struct WireExpectation {
    /// Interface of the packets.
    pub on: InterfaceRef,
    /// Pattern of the packets.
    pub pattern: PacketPattern,
    /// Number of packets: with `see`, at least 1 unless the lab states a count; with `never`, 0.
    pub count: Count,
    /// Maximum segment size option of a SYN or SYN-ACK, in bytes; `None` matches any packet.
    pub mss: Option<u16>,
    /// Window in the TCP header, not scaled; `None` matches any window.
    pub window: Option<u16>,
    /// Intervals between a packet and its retransmissions; `None` if retransmissions are not
    /// checked.
    pub resent: Option<Vec<Duration>>,
}

/// Renders the pattern of the packets: `SYN from node-1, mss 65495`.
impl fmt::Display for WireExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pattern)?;
        if let Some(mss) = self.mss {
            write!(f, ", mss {mss}")?;
        }
        match self.window {
            Some(window) => write!(f, ", window {window}"),
            None => Ok(()),
        }
    }
}

/// Expectation in the format of the document.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "WireExpectation")]
pub(crate) struct WireShape {
    /// Interface in the form `NAME/INTERFACE`, such as `node-1/eth0`.
    #[serde(deserialize_with = "crate::decode::values::parsed")]
    #[schemars(with = "String")]
    on: InterfaceRef,
    /// Pattern of packets that must appear: `KIND [from NAME[:port]] [to NAME[:port]] [via vxlan]`.
    /// The kinds are SYN, SYN-ACK, ACK, RST, FIN, UDP, PING, PONG, UNREACHABLE and ANY.
    #[serde(default, deserialize_with = "crate::decode::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    see: Option<PacketPattern>,
    /// Pattern of packets that must not appear, in the format of `see`.
    #[serde(default, deserialize_with = "crate::decode::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    never: Option<PacketPattern>,
    /// Number of packets that match `see`; default at least 1.
    #[serde(default)]
    count: Option<Count>,
    /// Maximum segment size option that a packet must have to match, in bytes. Only SYN and SYN-ACK
    /// packets have the option.
    #[serde(default)]
    mss: Option<u16>,
    /// Window that a packet must have in its TCP header to match, not scaled.
    #[serde(default)]
    window: Option<u16>,
    /// Intervals between a packet of `see` and its retransmissions, such as `[1s, 2s, 4s]`. Within
    /// the maximum wait of the probes, each of them is expected, and no other.
    #[serde(default, deserialize_with = "crate::decode::values::durations")]
    #[schemars(with = "Option<Vec<String>>")]
    resent: Option<Vec<Duration>>,
}

impl JsonSchema for WireExpectation {
    fn schema_name() -> Cow<'static, str> {
        WireShape::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        WireShape::json_schema(generator)
    }
}

impl TryFrom<WireShape> for WireExpectation {
    type Error = &'static str;

    fn try_from(shape: WireShape) -> Result<Self, Self::Error> {
        let (pattern, count) = match (shape.see, shape.never, shape.count) {
            (Some(pattern), None, count) => (pattern, count.unwrap_or(Count::at_least(1))),
            (None, Some(pattern), None) => (pattern, Count::exactly(0)),
            (None, Some(_), Some(_)) => {
                return Err("`never` already means a count of 0; remove `count`");
            }
            (None, None, _) => return Err("`see` or `never` is required"),
            (Some(_), Some(_), _) => {
                return Err("`see` and `never` are two expectations; write two entries");
            }
        };
        let is_tcp = pattern.kind.is_tcp();
        if (shape.mss.is_some() || shape.window.is_some()) && !is_tcp {
            return Err("only TCP packets have `mss` and `window`");
        }
        if shape.mss.is_some() && !pattern.kind.has_mss_option() {
            return Err("only SYN and SYN-ACK packets have an `mss`");
        }
        if shape.resent.is_some() && (!is_tcp || count.contains(0)) {
            return Err("`resent` requires at least 1 expected TCP packet");
        }
        if shape.resent.as_ref().is_some_and(Vec::is_empty) {
            return Err("`resent` requires at least 1 interval");
        }
        Ok(Self {
            on: shape.on,
            pattern,
            count,
            mss: shape.mss,
            window: shape.window,
            resent: shape.resent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_ref_splits_at_last_slash() {
        let interface: InterfaceRef = "pod/default/client/eth0".parse().expect("an interface");
        assert_eq!(
            (interface.owner.as_str(), interface.interface.as_str()),
            ("pod/default/client", "eth0")
        );
        assert!("node-1".parse::<InterfaceRef>().is_err());
        assert!("/eth0".parse::<InterfaceRef>().is_err());
    }

    #[test]
    fn wire_expectation_requires_see_or_never() {
        let read = |json| serde_json::from_value::<WireExpectation>(json);
        let json = serde_json::json!({"on": "node-1/eth0", "see": "SYN"});
        assert_eq!(read(json).expect("see").count, Count::at_least(1));
        let json = serde_json::json!({"on": "node-1/eth0", "never": "SYN"});
        assert_eq!(read(json).expect("never").count, Count::exactly(0));
        let json = serde_json::json!({"on": "node-1/eth0", "see": "SYN", "resent": ["1s", "2s"]});
        let pauses = [1, 2].map(Duration::from_secs).to_vec();
        assert_eq!(read(json).expect("resent").resent, Some(pauses));
        for json in [
            serde_json::json!({"on": "node-1/eth0"}),
            serde_json::json!({"on": "node-1/eth0", "see": "SYN", "never": "RST"}),
            serde_json::json!({"on": "node-1/eth0", "never": "SYN", "count": 1}),
            serde_json::json!({"on": "node-1/eth0", "see": "UDP", "window": 1}),
            serde_json::json!({"on": "node-1/eth0", "see": "ACK", "mss": 1}),
            serde_json::json!({"on": "node-1/eth0", "never": "SYN", "resent": ["1s"]}),
            serde_json::json!({"on": "node-1/eth0", "see": "SYN", "resent": []}),
        ] {
            assert!(read(json).is_err());
        }
    }
}
