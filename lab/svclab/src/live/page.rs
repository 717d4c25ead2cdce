//! Renders the page about probes in a running lab.

use std::io;
use std::sync::Arc;

use svclab_judge::{AddressBook, ProbeOutcome, summarize};
use svclab_model::evidence::{Attempt, Evidence};
use svclab_model::plan::{Probe, Stage};
use svclab_report::{Additions, Answer, CaseAdditions, HtmlWriter, Writer as _};
use svclab_runner::results::{CaseResult, CaseStatus, Results, RunStart};
use svclab_runner::run::{CaseEvidence, Event, Prepared};

/// Probes that ran in a running lab.
#[derive(Debug)]
pub(super) struct ProbedLab<'l> {
    pub(super) prepared: &'l Prepared,
    pub(super) kernel: &'l str,
    pub(super) probes: &'l [Probe],
    pub(super) evidence: &'l Evidence,
    pub(super) start: RunStart,
}

impl ProbedLab<'_> {
    /// Renders the page.
    ///
    /// # Errors
    ///
    /// Never in practice: the page is written to memory.
    pub(super) fn render(&self, answer: Answer) -> io::Result<String> {
        let mut prepared = self.prepared.clone();
        // The lab may have been changed, and runs its probes in one stage.
        prepared.plan.stages = vec![Stage::new(self.probes.to_vec())];
        let prepared = Arc::new(prepared);
        let seen = CaseEvidence::new(&prepared, self.kernel, self.evidence);
        let result = self.result();
        let unjudged = CaseAdditions {
            unjudged: true,
            ..CaseAdditions::default()
        };
        let command = answer.command.clone();
        let additions = Additions {
            answer: Some(answer),
            cases: [(result.case.clone(), unjudged)].into(),
        };
        let mut page = Vec::new();
        let mut writer = HtmlWriter::new(&mut page, "", additions);
        let mut results = Results::new(std::collections::BTreeMap::new(), vec![result.clone()]);
        results.run = Some(self.start.facts(1, command));
        writer.event(&Event::CaseEnded {
            result: Box::new(result),
            evidence: Some(Arc::new(seen)),
        })?;
        writer.event(&Event::RunEnded {
            results: Box::new(results),
            duration: self.start.elapsed(),
        })?;
        String::from_utf8(page).map_err(io::Error::other)
    }

    /// Returns what the probes observed, without expectations.
    fn result(&self) -> CaseResult {
        let (case, cluster) = (&self.prepared.case, &self.prepared.cluster);
        let book = AddressBook::new(cluster, &self.prepared.plan);
        let attempts: Vec<Attempt> = self.evidence.attempts().cloned().collect();
        let probes = self.probes.iter().map(|probe| {
            let (mut observed, _) = summarize(&attempts, &probe.name, &book);
            // Like a run without expectations for source ports.
            observed.source_ports.clear();
            ProbeOutcome {
                name: probe.name.clone(),
                from: probe.namespace.clone(),
                to: probe.target.socket().to_string(),
                step: None,
                expected: None,
                observed,
                holds: true,
            }
        });
        CaseResult {
            kernel: self.kernel.to_owned(),
            result: CaseStatus::Pass,
            probes: probes.collect(),
            duration_ms: u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
            ..CaseResult::empty(&case.lab, &case.id)
        }
    }
}
