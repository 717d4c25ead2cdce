//! Collects the output that a user sees for a lab: errors, warnings, cases, plans, and checks of
//! evidence.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use crate::run::execute::flows;
use crate::run::{PrepareOptions, Prepared, SelectedLab, prepare};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::{Source, Sources};
use svclab_model::evidence::{Attempt, Evidence, SavedRules, StageEvidence, StepEvidence, Verdict};
use svclab_model::plan::{Backend, MaxWait, Plan, Probe};
use svclab_planner::print::render;
use svclab_scenario::Scenario;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LabOutput {
    /// Error messages, each with its help.
    pub errors: Vec<String>,
    /// Warning messages, each with its help.
    pub warnings: Vec<String>,
    /// Names of the cases, with their plans as `svclab plan` prints them and as data.
    pub plans: String,
    /// Checks of evidence, and the tables of reports.
    pub checks: String,
}

/// Program that passes the checks of a kube-proxy program, as it is not run.
const PROGRAM: &str = "/bin/sh";

/// Returns the output of a lab. The nodes run a real kube-proxy if `is_real`.
pub(super) fn lab_output(documents: &[Value], is_real: bool) -> LabOutput {
    let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
    let source = Source::from_bytes("<fields>", texts.join("\n---\n").into_bytes());
    let sources = Sources::from(source.expect("the documents are text"));
    let mut seen = LabOutput::default();
    let (scenario, warnings) = match Scenario::load(&sources) {
        Ok(loaded) => loaded,
        Err(diagnostics) => {
            seen.add_diagnostics(&diagnostics);
            return seen;
        }
    };
    seen.add_diagnostics(&warnings);
    let lab = SelectedLab {
        cases: Vec::new(),
        cli_name: scenario.name().to_owned(),
        scenario,
        warnings,
    };
    let wishes = PrepareOptions {
        kube_proxy: is_real.then(|| PROGRAM.into()),
        allow_outside: true,
        ..PrepareOptions::from(MaxWait::SETTLED)
    };
    for case in lab.scenario.cases() {
        let _ = writeln!(seen.plans, "{}", case.id);
        match prepare(&lab, case, wishes.clone()) {
            Ok(prepared) => seen.add_case(&prepared),
            Err(diagnostics) => seen.add_diagnostics(&diagnostics),
        }
    }
    seen
}

impl LabOutput {
    fn add_diagnostics(&mut self, diagnostics: &[Diagnostic]) {
        for each in diagnostics {
            let list = if each.is_error() {
                &mut self.errors
            } else {
                &mut self.warnings
            };
            list.push(format!("{} ({})", each.message, each.help.join("; ")));
        }
    }

    fn add_case(&mut self, prepared: &Prepared) {
        for plan in prepared.stages().map(|stage| stage.plan) {
            let data = serde_json::to_string(plan).expect("the plan is serializable");
            let _ = writeln!(self.plans, "{}\n{data}", render(plan));
        }
        for account in &prepared.replay_reports {
            let _ = writeln!(self.plans, "{account:?}");
        }
        let judge = prepared.judge().expect("the case was prepared");
        let judgement = judge.judge(&evidence(&prepared.plan));
        let outcomes = flows::flow_results(prepared, &judgement);
        let declared = flows::declared_flows(std::iter::once((0, prepared)));
        let _ = writeln!(self.checks, "{judgement:#?}{outcomes:#?}{declared:#?}");
    }
}

/// Returns evidence in which all connections reach the pod `near`, and with a rule.
fn evidence(plan: &Plan) -> Evidence {
    let stages = plan.stages.iter().map(|stage| StageEvidence {
        step: stage.step.as_ref().map(|step| StepEvidence {
            name: step.name.clone(),
            changed_at: 1_000_000,
            applied_at: 2_000_000,
            ..StepEvidence::default()
        }),
        ..connected(&stage.probes)
    });
    Evidence {
        stages: stages.collect(),
        ..Evidence::default()
    }
}

fn connected(probes: &[Probe]) -> StageEvidence {
    let attempt = |probe: &Probe, number| Attempt {
        idle: None,
        probe: probe.name.clone(),
        index: number,
        verdict: Verdict::Connected,
        endpoint: Some("pod/default/near".to_owned()),
        seen_source: Some(([10, 244, 1, 9], 40_000).into()),
        further_answers: Vec::new(),
        progress: None,
        local_address: Some(([10, 244, 1, 9], 40_000).into()),
        duration: Duration::from_millis(1),
        settled: false,
        error: None,
    };
    let probes = probes.iter();
    let attempts = probes.flat_map(|probe| (0..probe.connections).map(|at| attempt(probe, at)));
    StageEvidence {
        attempts: attempts.collect(),
        rules: vec![SavedRules {
            namespace: "node-1".to_owned(),
            backend: Backend::Nft,
            ip_version: 4,
            text: "*nat\n:POSTROUTING ACCEPT [0:0]\n[1:60] -A POSTROUTING a\nCOMMIT\n".to_owned(),
        }],
        ..StageEvidence::default()
    }
}
