//! Expectations of a lab. A row states the expected verdicts of probes, packets on interfaces,
//! counters, rules and kernel state.

pub(crate) mod claim_ref;
pub mod count;
mod probe;
mod schema;
pub(crate) mod state;
pub(crate) mod step;
pub mod wire;

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::decode::values::AxisValues;
use crate::expectation::count::Count;
use crate::expectation::wire::WireExpectation;
use probe::ProbeOrAny;

pub use crate::expectation::claim_ref::ClaimRef;
pub use crate::expectation::probe::{ANY, ProbeExpectation, SourcePort};
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

    /// Whether packets or kernel state can contradict an expectation. Nothing contradicts `any`.
    #[must_use]
    pub fn is_refutable(&self) -> bool {
        let mut others = self.clone();
        others.probes.retain(|_, expected| !expected.any);
        !others.is_empty()
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

/// Expected growth of a kernel counter.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CounterExpectation {
    /// Name of a node, pod, host or load balancer.
    pub on: String,
    /// Name of the counter as `nstat` prints it: `TcpExtIPReversePathFilter`. Counters of conntrack
    /// are `conntrack.insert_failed`, `conntrack.drop`, `conntrack.early_drop` and
    /// `conntrack.invalid`.
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
    /// the chain, or of `nft list ruleset`. An iptables chain of both IP families is that of IPv4.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use svclab_model::plan::ProbeProtocol;

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
