//! Input of a search.

use svclab_planner::replay::UnseenNextHop;
use svclab_runner::run::dumps::DumpOverride;
use svclab_runner::run::prepare::{PrepareOptions, Prepared, prepare};
use svclab_runner::run::select::SelectedLab;
use svclab_scenario::expectation::ProbeExpectation;

/// Case to examine.
#[derive(Debug)]
pub struct WhyRequest<'l> {
    /// Lab of the case.
    pub lab: &'l SelectedLab,
    /// Prepared case.
    pub prepared: Prepared,
    /// Options for preparing changed cases.
    pub wishes: PrepareOptions,
    /// Name of the probe to examine; `None` means all probes with failing connections.
    pub probe: Option<String>,
    /// Wanted result of this probe; `None` for the result that the case expects.
    pub wanted: Option<ProbeExpectation>,
}

/// Next hop of a node that is assumed not to reply.
#[derive(Debug, Clone)]
pub(super) struct SilentNextHop {
    node: String,
    hop: UnseenNextHop,
}

impl SilentNextHop {
    pub(super) fn describe(&self) -> String {
        self.hop.describe_silence(&self.node)
    }

    /// Describes the opposite assumption.
    pub(super) fn describe_reply(&self) -> String {
        self.hop.describe_reply(&self.node)
    }
}

impl WhyRequest<'_> {
    /// Returns the request for a case in which the selected next hops of nodes do not reply, of which
    /// no dump shows whether they exist, and these next hops. `None` without such next hops.
    pub(super) fn with_silent_next_hops(
        &self,
        is_selected: impl Fn(&str, &UnseenNextHop) -> bool,
    ) -> Option<(Self, Vec<SilentNextHop>)> {
        let mut wishes = self.wishes.clone();
        let mut assumed = Vec::new();
        let replayed = self
            .prepared
            .replay_reports
            .iter()
            .zip(&self.prepared.dumps);
        for (report, (dump, lenient)) in replayed {
            let mut silent = dump.as_ref().clone();
            let hops = report.unseen_next_hops().into_iter();
            for hop in hops.filter(|hop| is_selected(&report.node, hop)) {
                silent.add_failed_neighbour(hop.address, &hop.interface);
                assumed.push(SilentNextHop {
                    node: report.node.clone(),
                    hop: hop.clone(),
                });
            }
            let given = DumpOverride {
                dump: silent,
                lenient: *lenient,
                ..DumpOverride::default()
            };
            wishes.dumps.insert(report.node.clone(), given);
        }
        if assumed.is_empty() {
            return None;
        }
        let mut prepared = prepare(self.lab, &self.prepared.case, wishes.clone()).ok()?;
        for report in &mut prepared.replay_reports {
            let mut before = self.prepared.replay_reports.iter();
            // It also contains what was omitted when the files were read.
            if let Some(before) = before.find(|before| before.node == report.node) {
                report.clone_from(before);
                report.forget_unseen_next_hops();
            }
        }
        let request = Self {
            lab: self.lab,
            prepared,
            wishes,
            probe: self.probe.clone(),
            wanted: self.wanted.clone(),
        };
        Some((request, assumed))
    }
}
