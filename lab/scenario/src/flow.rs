//! Flows: probes that say themselves what becomes of them, case by case, and what
//! others say of such flows.

use indexmap::IndexMap;
use schemars::JsonSchema;
use std::time::Duration;

use super::expectation::{ProbeExpectation, SourcePort, selects};
use super::flow_count::FlowCount;
use super::probe::Probe;
use super::values::AxisValues;
use svclab_model::plan::Protocol;

/// A probe with rows of its own: what is expected of it in which cases.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flow {
    /// Who calls: `pod/NAMESPACE/NAME`, a node or a host.
    pub from: String,
    /// Who is called: a name or an address, with its port:
    /// `lb/default/nginx:443`, `service/default/nginx:80`, `10.0.0.1:443`.
    pub to: String,
    /// What is spoken: `tcp` (the default), `udp` or `ping`.
    #[serde(default)]
    pub protocol: Protocol,
    /// How many exchanges are attempted, one after the other; as many as
    /// `spec.connections` says when absent.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub connections: Option<u32>,
    /// The source the caller binds its socket to: one of its addresses, or a
    /// name for it.
    #[serde(default)]
    pub bind: Option<String>,
    /// How long an answer is waited for, such as `3s`; the command line's
    /// `--patience` when absent.
    #[serde(default, deserialize_with = "super::values::duration")]
    #[schemars(with = "Option<String>")]
    pub patience: Option<Duration>,
    /// The probe or flow that must have ended before this one begins.
    #[serde(default)]
    pub after: Option<String>,
    /// The step across which its connections stay open, as a probe's.
    #[serde(default)]
    pub across: Option<String>,
    /// What is expected of it: the first row whose `when` matches a case is the
    /// case's.
    #[schemars(length(min = 1))]
    pub expect: Vec<FlowRow>,
}

impl Flow {
    /// How many exchanges are attempted in the cases of a row of a lab that says so many
    /// of all flows.
    #[must_use]
    pub fn connections(&self, row: &FlowRow, of_lab: u32) -> u32 {
        row.connections.or(self.connections).unwrap_or(of_lab)
    }

    /// The probe that it is when it attempts so many exchanges.
    #[must_use]
    pub fn probe(&self, connections: u32) -> Probe {
        Probe {
            from: self.from.clone(),
            to: self.to.clone(),
            protocol: self.protocol,
            connections,
            bind: self.bind.clone(),
            patience: self.patience,
            after: self.after.clone(),
            across: self.across.clone(),
        }
    }
}

/// What is expected of a flow in the cases a row is for, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowRow {
    /// The values of axes the row is for; an axis that is not named may have any
    /// value.
    #[serde(default)]
    pub when: IndexMap<String, AxisValues>,
    /// How many exchanges are attempted in these cases, if not as many as the flow
    /// says.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub connections: Option<u32>,
    /// TCP: the connection stood and the server's message came.
    #[serde(default)]
    pub connected: Option<FlowCount>,
    /// TCP: an RST or an ICMP port unreachable answered. UDP: the latter.
    #[serde(default)]
    pub refused: Option<FlowCount>,
    /// Another ICMP error answered, or there was no route.
    #[serde(default)]
    pub unreachable: Option<FlowCount>,
    /// TCP: an RST ended the connection after it stood.
    #[serde(default)]
    pub reset: Option<FlowCount>,
    /// TCP: the connection stood, and then no word came in time.
    #[serde(default)]
    pub silent: Option<FlowCount>,
    /// Nothing came in time.
    #[serde(default)]
    pub timeout: Option<FlowCount>,
    /// UDP and ping: an answer came.
    #[serde(default)]
    pub answered: Option<FlowCount>,
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
    /// Whether the flow's outcome does not matter in these cases. Such a row expects
    /// nothing else.
    #[serde(default)]
    pub any: bool,
    /// Why it is so.
    #[serde(default)]
    pub because: Option<String>,
    /// Where that can be read: a file of the program's source and its version.
    #[serde(default)]
    pub source: Option<String>,
    /// The facts of `spec.facts` that these cases bear out.
    #[serde(default)]
    pub covers: Vec<String>,
}

/// The fields of a row that say something besides what is expected.
pub(super) const NO_EXPECTATION: [&str; 5] = ["when", "connections", "because", "source", "covers"];

impl FlowRow {
    /// What it expects of the flow when it attempts so many exchanges.
    #[must_use]
    pub fn expectation(&self, connections: u32) -> ProbeExpectation {
        let of = |count: Option<FlowCount>| count.map(|count| count.of(connections));
        ProbeExpectation {
            connected: of(self.connected),
            refused: of(self.refused),
            unreachable: of(self.unreachable),
            reset: of(self.reset),
            silent: of(self.silent),
            timeout: of(self.timeout),
            answered: of(self.answered),
            endpoints: self.endpoints.clone(),
            seen_source: self.seen_source.clone(),
            seen_sources: self.seen_sources.clone(),
            source_port: self.source_port,
            any: self.any,
        }
    }
}

/// What somebody else says of a flow, such as a unit test of kube-proxy's: who is
/// reached and whether the source is rewritten, or how the flow fails.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fact {
    /// Who says so: a test by its name.
    pub test: String,
    /// The values of axes with which it says so; an axis that is not named may have any
    /// value.
    #[serde(default)]
    pub when: IndexMap<String, AxisValues>,
    /// What it says, in its own words: `10.0.0.2 -> 172.30.0.41:80 => 10.180.0.1:80`.
    pub says: String,
    /// Whom the flow reaches, as a set, by the lab's names.
    #[serde(default)]
    pub reaches: Option<Vec<String>>,
    /// Whether who is reached sees another source than the caller's.
    #[serde(default)]
    pub masqueraded: Option<bool>,
    /// How it fails.
    #[serde(default)]
    pub fails: Option<Failing>,
    /// Why no flow of the lab's covers it, where none does.
    #[serde(default)]
    pub not_covered: Option<String>,
}

impl Fact {
    /// Whether it says something of the case with these axis values.
    #[must_use]
    pub fn is_of(&self, values: &IndexMap<String, String>) -> bool {
        selects(&self.when, values)
    }
}

/// How a flow fails, of a fact that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Failing {
    /// It is refused: a fact's `REJECT`.
    Refused,
    /// It times out: a fact's `DROP`.
    Timeout,
}
