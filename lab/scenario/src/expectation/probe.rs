//! Expected result of a probe: verdicts, endpoints and sources.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::expectation::count::Count;
use svclab_model::plan::ProbeProtocol;

/// Expected result of a probe.
///
/// Each count is the number of attempts with that verdict. A verdict that is not named is expected
/// 0 times. If no verdict is named at all, only `endpoints` and the sources are checked.
///
/// For a probe whose connections stay open across a step, the verdicts describe the connections
/// after the step. They are `connected` and `answered` if the connections continue, `reset` if they
/// ended, and `silent` or `timeout` if no data arrived any more. `endpoints` are the pods that
/// answered after the step.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct ProbeExpectation {
    /// TCP: the connection was established and the server's message arrived.
    #[serde(default)]
    pub connected: Option<Count>,
    /// TCP: an RST or an ICMP port unreachable answered. UDP: an ICMP port unreachable answered.
    #[serde(default)]
    pub refused: Option<Count>,
    /// Another ICMP error answered, or the source had no route to the target.
    #[serde(default)]
    pub unreachable: Option<Count>,
    /// TCP: an RST ended the established connection.
    #[serde(default)]
    pub reset: Option<Count>,
    /// TCP: the connection was established, and no data arrived in time.
    #[serde(default)]
    pub silent: Option<Count>,
    /// No answer arrived in time.
    #[serde(default)]
    pub timeout: Option<Count>,
    /// UDP and ping: an answer arrived.
    #[serde(default)]
    pub answered: Option<Count>,
    /// Names of the pods that answered, as a set.
    #[serde(default)]
    pub endpoints: Option<Vec<String>>,
    /// Single source address that the servers received from: a name or an address.
    #[serde(default, deserialize_with = "single_source")]
    pub seen_source: Option<String>,
    /// Source addresses that the servers received from, as a set of names or addresses.
    #[serde(default)]
    pub seen_sources: Option<Vec<String>>,
    /// Whether the servers see the source port of the caller's socket: `kept` or `changed`.
    #[serde(default)]
    pub source_port: Option<SourcePort>,
    /// Whether the row has `any` instead of a map: every outcome is accepted.
    #[serde(skip)]
    pub any: bool,
}

/// Keyword for a probe whose outcome does not matter.
pub const ANY: &str = "any";

/// Value at a probe's name in a row: a map or `any`.
pub(super) struct ProbeOrAny(pub ProbeExpectation);

impl<'de> Deserialize<'de> for ProbeOrAny {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ProbeOrAnyVisitor;

        impl<'de> Visitor<'de> for ProbeOrAnyVisitor {
            type Value = ProbeOrAny;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of verdicts, endpoints and sources, or `any`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ProbeOrAny, E> {
                if text != ANY {
                    return Err(E::invalid_value(de::Unexpected::Str(text), &self));
                }
                Ok(ProbeOrAny(ProbeExpectation {
                    any: true,
                    ..ProbeExpectation::default()
                }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ProbeOrAny, A::Error> {
                ProbeExpectation::deserialize(MapAccessDeserializer::new(map)).map(ProbeOrAny)
            }
        }

        deserializer.deserialize_any(ProbeOrAnyVisitor)
    }
}

/// Decodes a name. The error of a list names the field for several sources.
fn single_source<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    struct NameVisitor;

    impl Visitor<'_> for NameVisitor {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("one name (`seenSources` is for several)")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }

    deserializer.deserialize_str(NameVisitor).map(Some)
}

impl ProbeExpectation {
    /// Whether the expectation has no verdict, endpoint or source, and is not `any`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the names of all verdicts with their expected counts, `None` if not named.
    #[must_use]
    pub fn verdicts(&self) -> [(&'static str, Option<Count>); 7] {
        [
            ("connected", self.connected),
            ("refused", self.refused),
            ("unreachable", self.unreachable),
            ("reset", self.reset),
            ("silent", self.silent),
            ("timeout", self.timeout),
            ("answered", self.answered),
        ]
    }

    /// Returns the names of the verdicts that are possible with this protocol.
    #[must_use]
    pub const fn verdicts_for(protocol: ProbeProtocol) -> &'static [&'static str] {
        match protocol {
            ProbeProtocol::Tcp => &[
                "connected",
                "refused",
                "unreachable",
                "reset",
                "silent",
                "timeout",
            ],
            ProbeProtocol::Udp => &["answered", "refused", "unreachable", "timeout"],
            ProbeProtocol::Ping => &["answered", "unreachable", "timeout"],
        }
    }

    /// Returns the set of sources that the servers are expected to see, `None` if sources are not
    /// checked.
    #[must_use]
    pub fn sources(&self) -> Option<Vec<&str>> {
        match (&self.seen_source, &self.seen_sources) {
            (Some(one), _) => Some(vec![one]),
            (None, Some(many)) => Some(many.iter().map(String::as_str).collect()),
            (None, None) => None,
        }
    }
}

/// Effect of address translation on a source port.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Deserialize,
    serde::Serialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SourcePort {
    /// The server sees the source port of the caller's socket.
    Kept,
    /// The server sees another port, chosen by address translation.
    Changed,
}

impl SourcePort {
    /// Returns the keyword in labs and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Changed => "changed",
        }
    }
}
