//! Details of a case, as data: what a page about the case shows beside its files. A page can be made
//! again from them.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case_additions::CaseAdditions;
use crate::commands::explain::StageJourneys;
use crate::results::CaseDocument;
use crate::shown_frames::{ShownFrame, shown_frames};
use crate::text::shell_quote;
use crate::timed_events::TimedEvents;
use svclab_drawing::Topology;
use svclab_journey::journey::{Hop, PacketPath};
use svclab_model::evidence::{AddressPair, ConntrackEntry, Evidence, IpvsConnection};
use svclab_planner::cluster::FABRIC;
use svclab_rules::kube_proxy::settings;
use svclab_runner::results::CaseResult;
use svclab_runner::run::CaseEvidence;

/// Details of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CaseDetails {
    /// Result of the case.
    pub result: CaseDocument,
    /// Command that runs the case again.
    pub rerun: String,
    /// Answer of the command that ran the case, if it is not `svclab run`.
    #[serde(flatten)]
    pub additions: CaseAdditions,
    /// Description of the lab by its author. Absent without evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Basis of the result.
    pub basis: Basis,
    /// Texts of the claims that the case tests, by identifier.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claim_texts: BTreeMap<String, String>,
    /// Text of the lab document. Absent without evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lab_text: Option<String>,
    /// Texts of the files of objects that the lab names, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub object_files: BTreeMap<String, String>,
    /// Hosts, routers, nodes and pods of the lab. Absent without evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// Journeys of each stage, in the order of `evidence.stages`.
    #[serde(default)]
    pub stages: Vec<StageJourneys>,
    /// Entries of conntrack and IPVS that the packets of one connection of each kind belong to, at
    /// the end of their stage.
    #[serde(default)]
    pub entries: TrackedConnections,
    /// Bytes of the packets of one connection of each kind.
    #[serde(default)]
    pub frames: Vec<ShownFrame>,
    /// Steps, health checks, drops and lines of logs.
    #[serde(default)]
    pub timed_events: TimedEvents,
}

/// Entries of conntrack and IPVS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TrackedConnections {
    /// Entries of conntrack.
    pub conntrack: Vec<ConntrackEntry>,
    /// Connections of IPVS.
    pub ipvs: Vec<IpvsConnection>,
}

/// Basis of a result: which parts are real, and which are not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Basis {
    /// Programs and kernels that were real.
    pub real: Vec<String>,
    /// Rules that svclab generated.
    pub generated: Vec<String>,
    /// Parts that were simulated: the network between nodes, and parts of a dump.
    pub simulated: Vec<String>,
    /// Parts of a dump that were omitted, each with the reason.
    pub omitted: Vec<String>,
    /// Records that are incomplete.
    pub unknown: Vec<String>,
}

impl CaseDetails {
    /// Creates the details of a case. `rerun_command` is the command that repeats a case, without
    /// the case name.
    pub(crate) fn new(
        result: &CaseResult,
        seen: Option<&CaseEvidence>,
        rerun_command: &str,
    ) -> Self {
        let stages = seen.map(|seen| {
            let journeys = seen.journeys.iter().cloned();
            StageJourneys::from_case(&seen.prepared, &seen.evidence, &result.probes, journeys)
        });
        let claim_texts = seen.map_or_else(BTreeMap::new, |seen| {
            let claims = &seen.prepared.case.spec.claims;
            let tested = result.claims.iter();
            let texts = tested.filter_map(|tested| {
                let claim = claims.get(&tested.id)?;
                Some((tested.id.clone(), claim.says.clone()))
            });
            texts.collect()
        });
        let stages = stages.unwrap_or_default();
        Self {
            entries: seen.map_or_else(TrackedConnections::default, |seen| {
                TrackedConnections::of_stages(&stages, &seen.evidence)
            }),
            frames: seen.map_or_else(Vec::new, |seen| shown_frames(&stages, &seen.evidence)),
            timed_events: seen.map_or_else(TimedEvents::default, |seen| {
                let checks = &seen.prepared.plan.health;
                TimedEvents::new(&seen.evidence, checks, &seen.journeys)
            }),
            claim_texts,
            about: seen
                .map(|seen| seen.prepared.case.spec.about.clone())
                .filter(|about| !about.is_empty()),
            lab_text: seen.and_then(|seen| {
                let (_, source) = seen.prepared.sources.iter().next()?;
                Some(source.text().to_owned())
            }),
            object_files: seen.map_or_else(BTreeMap::new, |seen| {
                let files = seen.prepared.sources.iter().skip(1);
                files
                    .filter(|(_, source)| source.is_showable())
                    .map(|(_, source)| (source.name().to_owned(), source.text().to_owned()))
                    .collect()
            }),
            topology: seen.map(|seen| Topology::new(&seen.prepared.plan, &seen.prepared.cluster)),
            stages,
            ..Self::without_evidence(CaseDocument::from(result), rerun_command)
                .with_basis(seen.map(Basis::of_evidence))
        }
    }

    /// Creates the details of a case of which only the result is known.
    pub(crate) fn without_evidence(result: CaseDocument, rerun_command: &str) -> Self {
        let details = Self {
            rerun: String::new(),
            additions: CaseAdditions::default(),
            basis: Basis::default(),
            about: None,
            claim_texts: BTreeMap::new(),
            lab_text: None,
            object_files: BTreeMap::new(),
            topology: None,
            stages: Vec::new(),
            entries: TrackedConnections::default(),
            frames: Vec::new(),
            timed_events: TimedEvents::default(),
            result,
        };
        Self {
            rerun: format!("{rerun_command} {}", shell_quote(details.result.cli_name())),
            ..details
        }
    }

    /// Returns the command that searches for fixes of the case.
    pub(crate) fn search_command(&self) -> String {
        format!("svclab why {}", shell_quote(self.result.cli_name()))
    }

    /// Returns the status of the case for people.
    pub(crate) fn status_name(&self) -> &'static str {
        if self.additions.unjudged {
            "not judged"
        } else {
            self.result.result.upper_case_name()
        }
    }

    fn with_basis(mut self, basis: Option<Basis>) -> Self {
        self.basis = basis.unwrap_or_default();
        let kernel = &self.result.kernel;
        if !kernel.is_empty() {
            self.basis.real.insert(0, format!("kernel {kernel}"));
        }
        self
    }
}

impl TrackedConnections {
    /// Finds the entries of the connections that a page shows.
    fn of_stages(stages: &[StageJourneys], evidence: &Evidence) -> Self {
        let mut entries = Self::default();
        for (stage, seen) in stages.iter().zip(&evidence.stages) {
            let shown = stage.groups().into_iter();
            let packets = shown.flat_map(|(explained, _)| &explained.journey.packets);
            let own = Self::of_packets(packets, &seen.conntrack, &seen.ipvs_connections);
            entries.conntrack.extend(own.conntrack);
            entries.ipvs.extend(own.ipvs);
        }
        entries
    }

    /// Selects the entries that packets belong to.
    pub(crate) fn of_packets<'p>(
        packets: impl Iterator<Item = &'p PacketPath>,
        conntrack: &[ConntrackEntry],
        ipvs: &[IpvsConnection],
    ) -> Self {
        let hops: Vec<&Hop> = packets.flat_map(|packet| &packet.hops).collect();
        let conntrack = conntrack.iter();
        let conntrack = conntrack.filter(|entry| hops.iter().any(|hop| is_tracked_by(hop, entry)));
        let ipvs = ipvs.iter();
        let ipvs = ipvs.filter(|entry| hops.iter().any(|hop| is_balanced_by(hop, entry)));
        Self {
            conntrack: conntrack.cloned().collect(),
            ipvs: ipvs.cloned().collect(),
        }
    }
}

/// Whether a packet belongs to an entry of conntrack where it passed a namespace.
fn is_tracked_by(hop: &Hop, entry: &ConntrackEntry) -> bool {
    let flows = [hop.before, hop.after];
    entry.namespace == hop.namespace
        && [entry.original, entry.reply]
            .iter()
            .any(|tuple| flows.contains(tuple))
}

/// Whether a packet belongs to a connection of IPVS where it passed a namespace.
fn is_balanced_by(hop: &Hop, entry: &IpvsConnection) -> bool {
    let is_request = |flow: AddressPair| {
        flow.source == entry.client
            && [entry.virtual_server, entry.real_server].contains(&flow.destination)
    };
    let is_reply = |flow: AddressPair| {
        flow.destination == entry.client
            && [entry.virtual_server, entry.real_server].contains(&flow.source)
    };
    entry.namespace == hop.namespace
        && [hop.before, hop.after]
            .into_iter()
            .any(|flow| is_request(flow) || is_reply(flow))
}

impl Basis {
    fn of_evidence(seen: &CaseEvidence) -> Self {
        let prepared = &seen.prepared;
        let proxies = prepared.plan.kube_proxies.iter();
        let mut nodes_by_proxy: IndexMap<String, Vec<&str>> = IndexMap::new();
        for node in &prepared.cluster.nodes {
            if let Some(proxy) = node.generated_proxy() {
                let key = format!("{}: {}", proxy.version, settings(proxy).join(" "));
                nodes_by_proxy.entry(key).or_default().push(&node.name);
            }
        }
        let generated = nodes_by_proxy
            .iter()
            .map(|(proxy, nodes)| format!("rules of {} for kube-proxy {proxy}", nodes.join(", ")));
        let fabric = prepared.plan.namespace(FABRIC);
        let fabric = fabric.map(|own| format!("{}: the network between nodes", own.name));
        let reports = prepared.replay_reports.iter();
        let simulated = reports.clone().flat_map(|report| {
            let lines = report.simulated.iter();
            lines.map(|line| format!("{}: {line}", report.node))
        });
        let omitted = reports.flat_map(|report| {
            let lines = report.omitted.iter();
            lines.map(|item| format!("{}: {}: {}", report.node, item.description, item.reason))
        });
        let stages = seen.evidence.stages.iter();
        let missed = stages.fold(0_u64, |sum, stage| {
            sum.saturating_add(stage.packets_missed)
                .saturating_add(stage.trace_missed)
        });
        let missed =
            (missed > 0).then(|| format!("{missed} packets and trace events were not recorded"));
        let mut stages = seen.evidence.stages.iter();
        let drops = stages.find_map(|stage| stage.drops.unavailable_reason());
        Self {
            real: proxies
                .map(|proxy| format!("kube-proxy on {}", proxy.namespace))
                .collect(),
            generated: generated.collect(),
            simulated: fabric.into_iter().chain(simulated).collect(),
            omitted: omitted.collect(),
            unknown: missed.into_iter().chain(drops.map(str::to_owned)).collect(),
        }
    }

    /// Returns the lists that are not empty, with their titles.
    pub(crate) fn lists(&self) -> Vec<(&'static str, &[String])> {
        let lists = [
            ("Real", &self.real),
            ("Generated", &self.generated),
            ("Simulated", &self.simulated),
            ("Not in the lab", &self.omitted),
            ("Unknown", &self.unknown),
        ];
        lists
            .into_iter()
            .filter(|(_, lines)| !lines.is_empty())
            .map(|(title, lines)| (title, lines.as_slice()))
            .collect()
    }
}
