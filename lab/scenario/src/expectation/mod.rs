//! Expectations of a lab. A row states the expected verdicts of probes, packets on interfaces,
//! counters, rules and kernel state.

pub(crate) mod claim_ref;
pub mod count;
pub(crate) mod state;
pub(crate) mod step;
pub mod wire;
pub(crate) mod wire_expectation;

use std::borrow::Cow;
use std::fmt;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::decode::values::AxisValues;
use crate::expectation::count::Count;
use crate::expectation::wire::WireExpectation;
use svclab_model::plan::ProbeProtocol;

pub use crate::expectation::claim_ref::ClaimRef;
pub use crate::expectation::state::{LinkExpectation, SetExpectation, VirtualServerExpectation};
pub use crate::expectation::step::StepExpectation;

/// Keys of an expectation that are not names of probes.
pub const EXPECTED_KEYS: [&str; 8] = [
    "wire", "counters", "rules", "chains", "sets", "ipvs", "links", "steps",
];

/// Keys of a row that are not names of probes.
pub const ROW_KEYS: [&str; 10] = [
    "when", "wire", "counters", "rules", "chains", "sets", "ipvs", "links", "steps", "claims",
];

/// Row of `expect`: the expectations for some of the lab's cases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// Axis values of the cases for this row. An axis that is not named may have any value, so an
    /// empty `when` matches every case.
    pub when: IndexMap<String, AxisValues>,
    /// Expectations for the cases.
    pub expected: Expected,
    /// Claims that the cases confirm or refute.
    pub claims: Vec<ClaimRef>,
}

impl Row {
    /// Whether the row matches the case with these axis values.
    #[must_use]
    pub fn matches(&self, values: &IndexMap<String, String>) -> bool {
        matches_values(&self.when, values)
    }
}

/// Whether `when` matches these axis values.
pub(super) fn matches_values(
    when: &IndexMap<String, AxisValues>,
    values: &IndexMap<String, String>,
) -> bool {
    when.iter()
        .all(|(axis, wanted)| values.get(axis).is_some_and(|value| wanted.contains(value)))
}

/// Expectations to check against evidence: the body of a row, or `says` of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expected {
    /// Expected result of each probe, by its name.
    pub probes: IndexMap<String, ProbeExpectation>,
    /// Expected packets on interfaces.
    pub wire: Vec<WireExpectation>,
    /// Expected growth of kernel counters.
    pub counters: Vec<CounterExpectation>,
    /// Expected number of packets that match rules.
    pub rules: Vec<RuleExpectation>,
    /// Expected rules of chains.
    pub chains: Vec<ChainExpectation>,
    /// Expected type and members of sets.
    pub sets: Vec<SetExpectation>,
    /// Expected IPVS virtual servers.
    pub ipvs: Vec<VirtualServerExpectation>,
    /// Expected flags and addresses of interfaces.
    pub links: Vec<LinkExpectation>,
    /// Expected time for the traffic to move after a step, by the step's name.
    pub steps: IndexMap<String, StepExpectation>,
}

impl Expected {
    /// Whether there is no expectation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.probes.is_empty()
            && self.wire.is_empty()
            && self.counters.is_empty()
            && self.rules.is_empty()
            && self.chains.is_empty()
            && self.sets.is_empty()
            && self.ipvs.is_empty()
            && self.links.is_empty()
            && self.steps.is_empty()
    }

    /// Reads the value of `key`, which is the name of a probe or one of [`EXPECTED_KEYS`].
    fn read_entry<'de, A: MapAccess<'de>>(
        &mut self,
        key: String,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match key.as_str() {
            "wire" => self.wire = map.next_value()?,
            "counters" => self.counters = map.next_value()?,
            "rules" => self.rules = map.next_value()?,
            "chains" => self.chains = map.next_value()?,
            "sets" => self.sets = map.next_value()?,
            "ipvs" => self.ipvs = map.next_value()?,
            "links" => self.links = map.next_value()?,
            "steps" => self.steps = map.next_value()?,
            _ => {
                let ProbeOrAny(expectation) = map.next_value()?;
                self.probes.insert(key, expectation);
            }
        }
        Ok(())
    }
}

/// Expected result of a probe.
///
/// Each count is the number of attempts with that verdict. A verdict that is not named is expected
/// 0 times. If no verdict is named at all, only `endpoints` and the sources are checked.
///
/// For a probe whose connections stay open across a step, the verdicts describe the connections
/// after the step: `connected` and `answered` if they continue, `reset` if they ended, `silent` or
/// `timeout` if no data arrived any more. `endpoints` are the pods that answered after the step.
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
    #[serde(default)]
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
struct ProbeOrAny(ProbeExpectation);

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

/// Expected growth of a kernel counter.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CounterExpectation {
    /// Name of a node, pod, host or load balancer.
    pub on: String,
    /// Name of the counter as `nstat` prints it: `TcpExtIPReversePathFilter`.
    pub counter: String,
    /// Growth of the counter while the probes run.
    pub grows: Count,
}

/// Expected rules of a chain, after all components have written theirs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChainExpectation {
    /// Name of the node.
    pub on: String,
    /// Table of iptables, such as `nat`, or of nftables by family and name, such as `ip
    /// kube-proxy`.
    pub table: String,
    /// Name of the chain, such as `POSTROUTING`.
    pub chain: String,
    /// All rules of the chain, in order. The format is that of `iptables-save` after the name of
    /// the chain, or of `nft list ruleset`.
    pub is: Vec<String>,
}

/// Expected number of packets that match a rule.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleExpectation {
    /// Name of the node.
    pub on: String,
    /// Table of iptables, such as `nat`, or of nftables by family and name, such as `ip
    /// kube-proxy`.
    pub table: String,
    /// Name of the chain, such as `POSTROUTING`.
    pub chain: String,
    /// Substring of the rule as `iptables-save` or `nft list ruleset` prints it.
    pub rule: String,
    /// Number of packets that match the rule while the probes run.
    pub hits: Count,
}

impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ExpectedVisitor;

        impl<'de> Visitor<'de> for ExpectedVisitor {
            type Value = Expected;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "a map of probe names, {}",
                    EXPECTED_KEYS.map(|key| format!("`{key}`")).join(", ")
                )
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Expected, A::Error> {
                let mut expected = Expected::default();
                while let Some(key) = map.next_key()? {
                    expected.read_entry(key, &mut map)?;
                }
                Ok(expected)
            }
        }

        deserializer.deserialize_map(ExpectedVisitor)
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RowVisitor;

        impl<'de> Visitor<'de> for RowVisitor {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "a map of probe names, {}",
                    ROW_KEYS.map(|key| format!("`{key}`")).join(", ")
                )
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut row = Row::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "when" => row.when = map.next_value()?,
                        "claims" => row.claims = map.next_value()?,
                        _ => row.expected.read_entry(key, &mut map)?,
                    }
                }
                Ok(row)
            }
        }

        deserializer.deserialize_map(RowVisitor)
    }
}

impl JsonSchema for Expected {
    fn schema_name() -> Cow<'static, str> {
        "Expected".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let wire =
            with_description::<Vec<WireExpectation>>(generator, "Expected packets on interfaces.");
        let counters = with_description::<Vec<CounterExpectation>>(
            generator,
            "Expected growth of kernel counters.",
        );
        let rules = with_description::<Vec<RuleExpectation>>(
            generator,
            "Expected number of packets that match rules.",
        );
        let chains =
            with_description::<Vec<ChainExpectation>>(generator, "Expected rules of chains.");
        let sets = with_description::<Vec<SetExpectation>>(
            generator,
            "Expected type and members of sets.",
        );
        let ipvs = with_description::<Vec<VirtualServerExpectation>>(
            generator,
            "Expected IPVS virtual servers.",
        );
        let links = with_description::<Vec<LinkExpectation>>(
            generator,
            "Expected flags and addresses of interfaces.",
        );
        let steps = with_description::<IndexMap<String, StepExpectation>>(
            generator,
            "Expected time for the traffic to move after a step, by the step's name.",
        );
        let probe = generator.subschema_for::<ProbeExpectation>();
        json_schema!({
            "description": "Expected results of probes, by probe name, and other expectations.",
            "type": "object",
            "properties": {
                "wire": wire,
                "counters": counters,
                "rules": rules,
                "chains": chains,
                "sets": sets,
                "ipvs": ipvs,
                "links": links,
                "steps": steps,
            },
            "additionalProperties": {
                "anyOf": [
                    {"const": ANY, "description": "Any outcome of the probe is accepted."},
                    probe,
                ],
            },
        })
    }
}

impl JsonSchema for Row {
    fn schema_name() -> Cow<'static, str> {
        "Row".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Expected::json_schema(generator);
        let when = with_description::<IndexMap<String, AxisValues>>(
            generator,
            "Axis values of the cases for this row. An axis that is not named may have any value.",
        );
        let claims = with_description::<Vec<ClaimRef>>(
            generator,
            "Claims of `spec.claims` that the row refers to.",
        );
        schema.insert(
            "description".to_owned(),
            "Expectations for the cases that `when` matches. The first matching row applies to a \
             case."
                .into(),
        );
        if let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) {
            properties.insert("when".to_owned(), when.into());
            properties.insert("claims".to_owned(), claims.into());
        }
        schema
    }
}

/// Returns the schema of a type with another description.
fn with_description<T: JsonSchema>(generator: &mut SchemaGenerator, description: &str) -> Schema {
    let mut schema = generator.subschema_for::<T>();
    schema.insert("description".to_owned(), description.into());
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(json: serde_json::Value) -> Row {
        serde_json::from_value(json).expect("a row")
    }

    fn values(pairs: &[(&str, &str)]) -> IndexMap<String, String> {
        pairs
            .iter()
            .map(|(axis, value)| ((*axis).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn row_keys_other_than_keywords_are_probes() {
        let row = row(json!({
            "when": {"policy": "Local"},
            "call": {"connected": 4, "timeout": "2..6"},
            "wire": [{"on": "node-1/eth0", "see": "SYN"}],
            "claims": ["S1-18", {"id": "S2-35", "says": {"call": {"timeout": 8}}, "part": "x"}],
        }));
        assert_eq!(
            row.expected.probes["call"].connected,
            Some(Count::exactly(4))
        );
        assert_eq!(row.expected.wire.len(), 1);
        let says = row.claims[1].says.as_ref().expect("says");
        assert_eq!(says.probes["call"].timeout, Some(Count::exactly(8)));
        assert_eq!(
            (row.claims[0].id.as_str(), &row.claims[0].says),
            ("S1-18", &None)
        );
    }

    #[test]
    fn row_without_axis_matches_any_value() {
        let row = row(json!({"when": {"rpFilter": [0, 2]}}));
        assert!(row.matches(&values(&[("rpFilter", "2"), ("policy", "Local")])));
        assert!(!row.matches(&values(&[("rpFilter", "1"), ("policy", "Local")])));
        assert!(Row::default().matches(&values(&[("rpFilter", "1")])));
    }

    #[test]
    fn verdict_names_belong_to_a_protocol() {
        let protocols = [ProbeProtocol::Tcp, ProbeProtocol::Udp, ProbeProtocol::Ping];
        for (name, _) in ProbeExpectation::default().verdicts() {
            assert!(
                protocols
                    .iter()
                    .any(|p| ProbeExpectation::verdicts_for(*p).contains(&name))
            );
        }
    }
}
