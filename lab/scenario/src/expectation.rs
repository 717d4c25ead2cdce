//! What a lab expects of its cases: one row says what becomes of every probe,
//! what is seen on the wire, which counters grow and which rules are met.

use std::borrow::Cow;
use std::fmt;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::count::Count;
use super::values::AxisValues;
use super::wire::WireExpectation;
use svclab_model::plan::Protocol;

pub use super::claim_ref::ClaimRef;
pub use super::state_expectation::{LinkExpectation, SetExpectation, VirtualServerExpectation};
pub use super::step_expectation::StepExpectation;

/// The keys of what is expected besides probes.
pub const EXPECTED_KEYS: [&str; 8] = [
    "wire", "counters", "rules", "chains", "sets", "ipvs", "links", "steps",
];

/// The keys of a row that are no probe's name.
pub const ROW_KEYS: [&str; 10] = [
    "when", "wire", "counters", "rules", "chains", "sets", "ipvs", "links", "steps", "claims",
];

/// What is expected of the cases a row is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// The values of axes the row is for; an axis that is not named may have any
    /// value, so an empty `when` matches every case.
    pub when: IndexMap<String, AxisValues>,
    /// What is expected.
    pub expected: Expected,
    /// The claims the row speaks of.
    pub claims: Vec<ClaimRef>,
}

impl Row {
    /// Whether the row is for the case with these axis values.
    #[must_use]
    pub fn matches(&self, values: &IndexMap<String, String>) -> bool {
        selects(&self.when, values)
    }
}

/// Whether `when` holds for these axis values.
pub(super) fn selects(
    when: &IndexMap<String, AxisValues>,
    values: &IndexMap<String, String>,
) -> bool {
    when.iter()
        .all(|(axis, any)| values.get(axis).is_some_and(|value| any.contains(value)))
}

/// What evidence is held against: the body of a row, and of a claim that says
/// something of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expected {
    /// What becomes of each probe, by its name.
    pub probes: IndexMap<String, ProbeExpectation>,
    /// What is seen on interfaces.
    pub wire: Vec<WireExpectation>,
    /// Which of the kernel's counters grow.
    pub counters: Vec<CounterExpectation>,
    /// Which rules packets meet.
    pub rules: Vec<RuleExpectation>,
    /// What chains hold.
    pub chains: Vec<ChainExpectation>,
    /// What sets are and hold.
    pub sets: Vec<SetExpectation>,
    /// What IPVS holds.
    pub ipvs: Vec<VirtualServerExpectation>,
    /// What interfaces are and hold.
    pub links: Vec<LinkExpectation>,
    /// When traffic has moved after a step, by its name.
    pub steps: IndexMap<String, StepExpectation>,
}

impl Expected {
    /// Whether nothing is expected.
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

    /// Takes the value of `key`, which is one of the kinds of expectation or the
    /// name of a probe.
    fn take<'de, A: MapAccess<'de>>(&mut self, key: String, map: &mut A) -> Result<(), A::Error> {
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

/// What becomes of a probe's exchanges.
///
/// Of a probe whose connections stay open across a step it is what became of them
/// after it: `connected` and `answered` if they go on, `reset` if they ended, `silent` or
/// `timeout` if no word came any more; `endpoints` are those that spoke then.
///
/// The counts are of exchanges with that verdict. A verdict that is not named is
/// expected never, unless none is named at all: then only `endpoints` and the
/// sources are held against the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct ProbeExpectation {
    /// TCP: the connection stood and the server's message came.
    #[serde(default)]
    pub connected: Option<Count>,
    /// TCP: an RST or an ICMP port unreachable answered. UDP: the latter.
    #[serde(default)]
    pub refused: Option<Count>,
    /// Another ICMP error answered, or there was no route.
    #[serde(default)]
    pub unreachable: Option<Count>,
    /// TCP: an RST ended the connection after it stood.
    #[serde(default)]
    pub reset: Option<Count>,
    /// TCP: the connection stood, and then no word came in time.
    #[serde(default)]
    pub silent: Option<Count>,
    /// Nothing came in time.
    #[serde(default)]
    pub timeout: Option<Count>,
    /// UDP and ping: an answer came.
    #[serde(default)]
    pub answered: Option<Count>,
    /// The pods that answered, as a set.
    #[serde(default)]
    pub endpoints: Option<Vec<String>>,
    /// The one source that the servers saw: a name or an address.
    #[serde(default)]
    pub seen_source: Option<String>,
    /// The sources that the servers saw, as a set, where there are several.
    #[serde(default)]
    pub seen_sources: Option<Vec<String>>,
    /// Whether the port that the servers saw is that of the caller's own socket.
    #[serde(default)]
    pub source_port: Option<SourcePort>,
    /// Whether the row has the word `any` in place of a map: no outcome is wrong.
    #[serde(skip)]
    pub any: bool,
}

/// The word for a probe whose outcome does not matter.
pub const ANY: &str = "any";

/// The value of a probe's name in a row: a map, or the word `any`.
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

/// What became of a source port on the way.
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
    /// It is that of the caller's socket.
    Kept,
    /// Translation chose another.
    Changed,
}

impl SourcePort {
    /// The word users write and read.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Changed => "changed",
        }
    }
}

impl ProbeExpectation {
    /// Whether neither a verdict nor an endpoint nor a source is expected, and `any` is
    /// not written either.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The verdicts by their names, with what is expected of each.
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

    /// The names of the verdicts an exchange in this protocol can have.
    #[must_use]
    pub const fn verdicts_of(protocol: Protocol) -> &'static [&'static str] {
        match protocol {
            Protocol::Tcp => &[
                "connected",
                "refused",
                "unreachable",
                "reset",
                "silent",
                "timeout",
            ],
            Protocol::Udp => &["answered", "refused", "unreachable", "timeout"],
            Protocol::Ping => &["answered", "unreachable", "timeout"],
        }
    }

    /// The set of sources that servers are expected to have seen; `None` when
    /// nothing is expected of them.
    #[must_use]
    pub fn sources(&self) -> Option<Vec<&str>> {
        match (&self.seen_source, &self.seen_sources) {
            (Some(one), _) => Some(vec![one]),
            (None, Some(many)) => Some(many.iter().map(String::as_str).collect()),
            (None, None) => None,
        }
    }
}

/// What is expected of a counter of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CounterExpectation {
    /// Whose: a node, pod, host or balancer.
    pub on: String,
    /// Its name as `nstat` prints it: `TcpExtIPReversePathFilter`.
    pub counter: String,
    /// By how much it grows while the probes run.
    pub grows: Count,
}

/// What a chain is expected to hold, once all components have written.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChainExpectation {
    /// The node whose chain it is.
    pub on: String,
    /// Its table: `nat`, or one of nftables' own by family and name, `ip kube-proxy`.
    pub table: String,
    /// The chain: `POSTROUTING`.
    pub chain: String,
    /// All its rules, in order, as `iptables-save` prints them behind the
    /// chain's name, or as `nft list ruleset` does.
    pub is: Vec<String>,
}

/// What is expected of a rule.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleExpectation {
    /// The node whose rule it is.
    pub on: String,
    /// Its table: `nat`, or one of nftables' own by family and name, `ip kube-proxy`.
    pub table: String,
    /// Its chain: `POSTROUTING`.
    pub chain: String,
    /// A part of the rule as `iptables-save` or `nft list ruleset` prints it.
    pub rule: String,
    /// How many packets meet it while the probes run.
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
                    "a map of probes' names, {}",
                    EXPECTED_KEYS.map(|key| format!("`{key}`")).join(", ")
                )
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Expected, A::Error> {
                let mut expected = Expected::default();
                while let Some(key) = map.next_key()? {
                    expected.take(key, &mut map)?;
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
                    "a map of probes' names, {}",
                    ROW_KEYS.map(|key| format!("`{key}`")).join(", ")
                )
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut row = Row::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "when" => row.when = map.next_value()?,
                        "claims" => row.claims = map.next_value()?,
                        _ => row.expected.take(key, &mut map)?,
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
        let wire = described::<Vec<WireExpectation>>(generator, "What is seen on interfaces.");
        let counters = described::<Vec<CounterExpectation>>(
            generator,
            "Which of the kernel's counters grow, and by how much.",
        );
        let rules = described::<Vec<RuleExpectation>>(
            generator,
            "Which rules packets meet, and how often.",
        );
        let chains =
            described::<Vec<ChainExpectation>>(generator, "What chains hold, rule by rule.");
        let sets = described::<Vec<SetExpectation>>(generator, "What sets are and hold.");
        let ipvs = described::<Vec<VirtualServerExpectation>>(
            generator,
            "What IPVS holds, virtual server by virtual server.",
        );
        let links = described::<Vec<LinkExpectation>>(generator, "What interfaces are and hold.");
        let steps = described::<IndexMap<String, StepExpectation>>(
            generator,
            "When traffic has moved after a step, by its name.",
        );
        let probe = generator.subschema_for::<ProbeExpectation>();
        json_schema!({
            "description": "What is expected of probes, by their names, and of what is seen besides.",
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
                    {"const": ANY, "description": "The outcome of the probe does not matter."},
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
        let when = described::<IndexMap<String, AxisValues>>(
            generator,
            "The values of axes the row is for. An axis that is not named may have any value.",
        );
        let claims =
            described::<Vec<ClaimRef>>(generator, "The claims of `spec.claims` the row speaks of.");
        schema.insert(
            "description".to_owned(),
            "What is expected of the cases that `when` matches; the first row that matches is a case's."
                .into(),
        );
        if let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) {
            properties.insert("when".to_owned(), when.into());
            properties.insert("claims".to_owned(), claims.into());
        }
        schema
    }
}

/// The schema of a type, described for the place it is used in.
fn described<T: JsonSchema>(generator: &mut SchemaGenerator, description: &str) -> Schema {
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
    fn keys_that_are_no_words_of_a_row_are_probes() {
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
    fn an_axis_that_is_not_named_may_have_any_value() {
        let row = row(json!({"when": {"rpFilter": [0, 2]}}));
        assert!(row.matches(&values(&[("rpFilter", "2"), ("policy", "Local")])));
        assert!(!row.matches(&values(&[("rpFilter", "1"), ("policy", "Local")])));
        assert!(Row::default().matches(&values(&[("rpFilter", "1")])));
    }

    #[test]
    fn every_named_verdict_belongs_to_some_protocol() {
        let all = [Protocol::Tcp, Protocol::Udp, Protocol::Ping];
        for (name, _) in ProbeExpectation::default().verdicts() {
            assert!(
                all.iter()
                    .any(|p| ProbeExpectation::verdicts_of(*p).contains(&name))
            );
        }
    }
}
