//! What is expected to be seen, or never to be seen, on an interface.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::count::Count;
use super::wire::Sight;

/// An interface of something that has interfaces: `node-1/eth0`,
/// `pod/default/client/eth0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tap {
    /// The node, pod, host or balancer, by the name a probe would use.
    pub of: String,
    /// The interface's name inside its namespace.
    pub interface: String,
}

impl fmt::Display for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.of, self.interface)
    }
}

/// Why a text is not a [`Tap`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no interface; write for example `node-1/eth0`")]
pub struct TapError(String);

impl FromStr for Tap {
    type Err = TapError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once('/') {
            Some((of, interface)) if !of.is_empty() && !interface.is_empty() => Ok(Self {
                of: of.to_owned(),
                interface: interface.to_owned(),
            }),
            _ => Err(TapError(text.to_owned())),
        }
    }
}

/// What must, or must never, be seen on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WireShape")]
pub struct WireExpectation {
    /// Where to look.
    pub on: Tap,
    /// What to look for.
    pub sight: Sight,
    /// How often it is to be seen: at least once when a lab says only `see`,
    /// zero for `never`.
    pub count: Count,
}

/// Something expected on the wire, as written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "WireExpectation")]
pub(super) struct WireShape {
    /// The interface to look at, as `NAME/INTERFACE`: `node-1/eth0`.
    #[serde(deserialize_with = "super::values::parsed")]
    #[schemars(with = "String")]
    on: Tap,
    /// Packets that must be seen there: `KIND [from NAME[:port]]
    /// [to NAME[:port]] [via vxlan]`, the kinds being SYN, SYN-ACK, ACK, RST,
    /// FIN, UDP, PING, PONG, UNREACHABLE and ANY.
    #[serde(default, deserialize_with = "super::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    see: Option<Sight>,
    /// Packets that must not be seen there, in the same words.
    #[serde(default, deserialize_with = "super::values::parsed_option")]
    #[schemars(with = "Option<String>")]
    never: Option<Sight>,
    /// How many packets of `see` are expected; at least one by default.
    #[serde(default)]
    count: Option<Count>,
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
        let (sight, count) = match (shape.see, shape.never, shape.count) {
            (Some(sight), None, count) => (sight, count.unwrap_or(Count::at_least(1))),
            (None, Some(sight), None) => (sight, Count::exactly(0)),
            (None, Some(_), Some(_)) => {
                return Err("`never` is a count already; leave `count` out");
            }
            (None, None, _) => return Err("say what to look for: `see` or `never`"),
            (Some(_), Some(_), _) => {
                return Err("`see` and `never` are two expectations; write two entries");
            }
        };
        Ok(Self {
            on: shape.on,
            sight,
            count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_splits_at_its_last_slash() {
        let tap: Tap = "pod/default/client/eth0".parse().expect("a tap");
        assert_eq!(
            (tap.of.as_str(), tap.interface.as_str()),
            ("pod/default/client", "eth0")
        );
        assert!("node-1".parse::<Tap>().is_err());
        assert!("/eth0".parse::<Tap>().is_err());
    }

    #[test]
    fn an_entry_says_see_or_never() {
        let read = |json| serde_json::from_value::<WireExpectation>(json);
        let json = serde_json::json!({"on": "node-1/eth0", "see": "SYN"});
        assert_eq!(read(json).expect("see").count, Count::at_least(1));
        let json = serde_json::json!({"on": "node-1/eth0", "never": "SYN"});
        assert_eq!(read(json).expect("never").count, Count::exactly(0));
        for json in [
            serde_json::json!({"on": "node-1/eth0"}),
            serde_json::json!({"on": "node-1/eth0", "see": "SYN", "never": "RST"}),
            serde_json::json!({"on": "node-1/eth0", "never": "SYN", "count": 1}),
        ] {
            assert!(read(json).is_err());
        }
    }
}
