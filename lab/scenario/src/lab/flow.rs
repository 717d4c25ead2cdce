//! Flows, which are probes with their own expectations for each case, and facts about them.

use indexmap::IndexMap;
use schemars::JsonSchema;
use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use crate::decode::values::AxisValues;
use crate::expectation::{ProbeExpectation, SourcePort, matches_values};
use crate::lab::flow_count::FlowCount;
use crate::lab::probe::Probe;
use svclab_model::plan::ProbeProtocol;

/// Probe with its own rows of expectations.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flow {
    /// Source: `pod/NAMESPACE/NAME`, a node or a host.
    pub from: String,
    /// Target: a name or an address with a port, such as `lb/default/nginx:443`,
    /// `service/default/nginx:80` or `10.0.0.1:443`.
    pub to: String,
    /// Protocol: `tcp`, `udp` or `ping`; default `tcp`.
    #[serde(default)]
    pub protocol: ProbeProtocol,
    /// Number of connections; default `spec.connections`.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub connections: Option<u32>,
    /// Maximum number of connections at the same time: 1 opens each connection when the one before
    /// has ended. By default, connections are opened in order without waiting.
    #[serde(default)]
    pub concurrency: Option<NonZeroU32>,
    /// Source address to which the caller binds its socket: one of its addresses, or a name of it.
    #[serde(default)]
    pub bind: Option<String>,
    /// Source port of the first connection; the next connections have the next ports. By default,
    /// the kernel assigns ports.
    #[serde(default)]
    pub source_port: Option<NonZeroU16>,
    /// Size of each request and of each answer in bytes, such as `1400` or `100k`. For TCP, this is
    /// the payload of the connection in each direction (at most 1 MiB). For UDP and ping, this is
    /// the payload of a datagram (at most 65507 bytes). By default, both are short.
    #[serde(default, deserialize_with = "crate::decode::bytes::bytes")]
    #[schemars(schema_with = "crate::decode::bytes::schema")]
    pub bytes: Option<NonZeroU32>,
    /// Number of datagrams (UDP) or echo requests (ping) that each socket sends one right after the
    /// other, at most 1000; default 1. A verdict `answered` needs an answer to each.
    #[serde(default)]
    pub datagrams: Option<NonZeroU32>,
    /// Maximum wait for an answer, such as `3s`; default `--max-wait` of the command line.
    #[serde(default, deserialize_with = "crate::decode::values::duration")]
    #[schemars(with = "Option<String>")]
    pub max_wait: Option<Duration>,
    /// Name of the probe or flow that must end before this flow starts.
    #[serde(default)]
    pub after: Option<String>,
    /// Name of the step across which the connections stay open, as for a probe.
    #[serde(default)]
    pub across: Option<String>,
    /// Expectations: the first row whose `when` matches a case applies to that case.
    #[schemars(length(min = 1))]
    pub expect: Vec<FlowRow>,
}

impl Flow {
    /// Returns the number of connections for a row. `of_lab` is the number for flows without one.
    #[must_use]
    pub fn connections(&self, row: &FlowRow, default_connections: u32) -> u32 {
        row.connections
            .or(self.connections)
            .unwrap_or(default_connections)
    }

    /// Returns the flow as a probe with this number of connections.
    #[must_use]
    pub fn probe(&self, connections: u32) -> Probe {
        Probe {
            from: self.from.clone(),
            to: self.to.clone(),
            protocol: self.protocol,
            connections,
            concurrency: self.concurrency,
            bind: self.bind.clone(),
            source_port: self.source_port,
            bytes: self.bytes,
            datagrams: self.datagrams,
            max_wait: self.max_wait,
            after: self.after.clone(),
            across: self.across.clone(),
        }
    }
}

/// Expectations for a flow in the cases that `when` matches.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlowRow {
    /// Axis values of the cases for this row. An axis that is not named may have any value.
    #[serde(default)]
    pub when: IndexMap<String, AxisValues>,
    /// Number of connections in these cases; default `connections` of the flow.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub connections: Option<u32>,
    /// TCP: the connection was established and the server's message arrived.
    #[serde(default)]
    pub connected: Option<FlowCount>,
    /// TCP: an RST or an ICMP port unreachable answered. UDP: an ICMP port unreachable answered.
    #[serde(default)]
    pub refused: Option<FlowCount>,
    /// Another ICMP error answered, or the source had no route to the target.
    #[serde(default)]
    pub unreachable: Option<FlowCount>,
    /// TCP: an RST ended the established connection.
    #[serde(default)]
    pub reset: Option<FlowCount>,
    /// TCP: the connection was established, and no data arrived in time.
    #[serde(default)]
    pub silent: Option<FlowCount>,
    /// No answer arrived in time.
    #[serde(default)]
    pub timeout: Option<FlowCount>,
    /// UDP and ping: an answer arrived.
    #[serde(default)]
    pub answered: Option<FlowCount>,
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
    /// Whether the flow's outcome does not matter in these cases; default `false`. A row with `any`
    /// has no other expectation.
    #[serde(default)]
    pub any: bool,
    /// Reason for the result.
    #[serde(default)]
    pub because: Option<String>,
    /// Reference for the reason: a source file of the program and its version.
    #[serde(default)]
    pub source: Option<String>,
    /// Identifiers of the facts in `spec.facts` that these cases confirm.
    #[serde(default)]
    pub covers: Vec<String>,
}

/// Fields of a row that are not expectations.
pub(crate) const NON_EXPECTATION_KEYS: [&str; 5] =
    ["when", "connections", "because", "source", "covers"];

impl FlowRow {
    /// Returns the expectation for the flow with this number of connections.
    #[must_use]
    pub fn expectation(&self, connections: u32) -> ProbeExpectation {
        let resolve = |count: Option<FlowCount>| count.map(|count| count.resolve(connections));
        ProbeExpectation {
            connected: resolve(self.connected),
            refused: resolve(self.refused),
            unreachable: resolve(self.unreachable),
            reset: resolve(self.reset),
            silent: resolve(self.silent),
            timeout: resolve(self.timeout),
            answered: resolve(self.answered),
            endpoints: self.endpoints.clone(),
            seen_source: self.seen_source.clone(),
            seen_sources: self.seen_sources.clone(),
            source_port: self.source_port,
            any: self.any,
        }
    }
}

/// Statement of another source about a flow, such as a unit test of kube-proxy. The fact states
/// either the endpoints and the masquerading, or how the flow fails.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fact {
    /// Source of the fact: the name of a test.
    pub test: String,
    /// Axis values for which the fact holds. An axis that is not named may have any value.
    #[serde(default)]
    pub when: IndexMap<String, AxisValues>,
    /// Original text of the fact, such as `10.0.0.2 -> 172.30.0.41:80 => 10.180.0.1:80`.
    pub says: String,
    /// Endpoints that the flow reaches, as a set of names in the lab.
    #[serde(default)]
    pub reaches: Option<Vec<String>>,
    /// Whether the endpoint sees a source address other than the caller's.
    #[serde(default)]
    pub masqueraded: Option<bool>,
    /// Way in which the flow fails: `refused` or `timeout`.
    #[serde(default)]
    pub fails: Option<FailureVerdict>,
    /// Reason why no flow of the lab covers the fact.
    #[serde(default)]
    pub not_covered: Option<String>,
}

impl Fact {
    /// Whether the fact applies to the case with these axis values.
    #[must_use]
    pub fn is_applicable(&self, values: &IndexMap<String, String>) -> bool {
        matches_values(&self.when, values)
    }
}

/// Way in which a flow fails according to a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailureVerdict {
    /// The flow is refused: `REJECT` in a fact.
    Refused,
    /// The flow times out: `DROP` in a fact.
    Timeout,
}
