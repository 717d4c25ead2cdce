//! Runs probes in a running lab, and explains their packets. The daemon does this, because only the
//! daemon has the names that the lab's file gives to addresses.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::messages::{OutputForm, ProbeReport, ProbeRequest, RenderedJourneys};
use super::page::ProbedLab;
use svclab_journey::journey::{Journey, journeys};
use svclab_judge::{AddressBook, Explainer, summarize};
use svclab_model::evidence::{Attempt, Evidence, StageEvidence};
use svclab_model::plan::{Delta, EvidenceRequest, Probe, Stage};
use svclab_planner::build::plan_probe;
use svclab_report::Answer;
use svclab_report::explain::{CaseHead, CaseJourneys, StageJourneys};
use svclab_report::journey::JourneyRenderer;
use svclab_report::verify::ComparedTables;
use svclab_runner::kernel::{KernelError, Session, StreamOpener};
use svclab_runner::results::{ErrorKind, RunError, RunStart};
use svclab_runner::run::{Prepared, to_run_error, unknown_probe_error};
use svclab_scenario::lab;

/// Name of a user's probe in the plan.
const USER_PROBE_NAME: &str = "probe";

#[derive(Debug)]
pub(super) struct RunningLab {
    pub(super) prepared: Prepared,
    /// Release of its kernel.
    pub(super) kernel: String,
    pub(super) opener: StreamOpener,
    pub(super) probes: mpsc::UnboundedSender<ProbeJob>,
}

/// Probes that a client waits for.
#[derive(Debug)]
pub(super) struct ProbeJob {
    probes: Vec<Probe>,
    watch: EvidenceRequest,
    reply: oneshot::Sender<Result<Evidence, KernelError>>,
}

impl RunningLab {
    /// Runs one probe of a user.
    pub(super) async fn run_probe(
        &self,
        request: ProbeRequest,
        explain: Option<OutputForm>,
    ) -> Result<ProbeReport, RunError> {
        let Prepared { plan, cluster, .. } = &self.prepared;
        let spec = lab::Probe {
            connections: request.connections,
            ..lab::Probe::new(request.from, request.to, request.protocol)
        };
        let probe = plan_probe(
            cluster,
            &plan.namespaces,
            USER_PROBE_NAME,
            &spec,
            request.max_wait,
        );
        let probe = probe.map_err(|(_, error)| RunError {
            kind: ErrorKind::Input,
            message: error.message,
            remedy: error.help,
        })?;
        let watch = match explain {
            // Users who need packets use `svclab capture`.
            None => EvidenceRequest::default(),
            Some(_) => EvidenceRequest::everything(plan),
        };
        let start = RunStart::now();
        let evidence = self.run_probes(vec![probe.clone()], watch).await?;
        let book = AddressBook::new(cluster, plan);
        let attempts: Vec<Attempt> = evidence.attempts().cloned().collect();
        let (mut observed, _) = summarize(&attempts, USER_PROBE_NAME, &book);
        // Like a run without expectations for source ports.
        observed.source_ports.clear();
        let probes = [probe.clone()];
        let probed_lab = self.probed(&probes, &evidence, start);
        let explained = explain.map(|form| self.render_explanation(&probed_lab, None, form));
        Ok(ProbeReport {
            from: probe.namespace.clone(),
            target: probe.target,
            observed,
            explained: explained.transpose()?,
            attempts,
        })
    }

    /// Runs the probes of the lab's file.
    pub(super) async fn explain_probes(
        &self,
        probe_name: Option<&str>,
        max_wait: Duration,
        form: OutputForm,
    ) -> Result<RenderedJourneys, RunError> {
        let Prepared { plan, case, .. } = &self.prepared;
        let mut probes: Vec<Probe> = plan.initial_probes().cloned().collect();
        if let Some(wanted) = probe_name
            && !probes.iter().any(|probe| probe.name == wanted)
        {
            return Err(unknown_probe_error(wanted, &probes));
        }
        for probe in &mut probes {
            let spec = case.spec.probes.get(&probe.name);
            if spec.is_none_or(|own| own.max_wait.is_none()) {
                probe.max_wait = max_wait;
            }
        }
        let watch = EvidenceRequest::everything(plan);
        let start = RunStart::now();
        let evidence = self.run_probes(probes.clone(), watch).await?;
        let probed_lab = self.probed(&probes, &evidence, start);
        self.render_explanation(&probed_lab, probe_name, form)
    }

    /// Runs probes in the lab's current state and returns the evidence.
    async fn run_probes(
        &self,
        probes: Vec<Probe>,
        watch: EvidenceRequest,
    ) -> Result<Evidence, RunError> {
        let (reply, evidence) = oneshot::channel();
        let job = ProbeJob {
            probes,
            watch,
            reply,
        };
        let _ = self.probes.send(job);
        match evidence.await {
            Ok(evidence) => evidence.map_err(|error| to_run_error(&error)),
            Err(_) => Err(RunError {
                kind: ErrorKind::Lost,
                message: "the lab was stopped before the probe ended".to_owned(),
                remedy: None,
            }),
        }
    }

    /// Renders the journeys of these probes, or of the probe `wanted`. All namespaces must have been
    /// captured and traced.
    ///
    /// # Errors
    ///
    /// When the page cannot be rendered.
    fn render_explanation(
        &self,
        probed: &ProbedLab<'_>,
        probe_name: Option<&str>,
        form: OutputForm,
    ) -> Result<RenderedJourneys, RunError> {
        let Prepared { plan, cluster, .. } = &self.prepared;
        let ProbedLab {
            probes, evidence, ..
        } = probed;
        // A running lab runs its probes in one stage.
        let first = StageEvidence::default();
        let seen = evidence.stages.first().unwrap_or(&first);
        let journeys: Vec<Journey> = journeys(plan, probes, seen)
            .into_iter()
            .filter(|journey| probe_name.is_none_or(|wanted| journey.probe == wanted))
            .collect();
        let book = AddressBook::new(cluster, plan).with_probes(probes);
        let explainer = Explainer::new(book, seen);
        let head = CaseHead::new(
            self.prepared.case.id.clone(),
            self.kernel.clone(),
            None,
            evidence,
        );
        let text = |verbose| {
            let renderer = JourneyRenderer {
                explainer: &explainer,
                verbose,
                brief: false,
            };
            renderer.render_case(&head, journeys.iter())
        };
        let data = || CaseJourneys {
            head: head.clone(),
            stages: vec![StageJourneys::new(None, journeys.clone(), &explainer)],
        };
        Ok(match form {
            OutputForm::Data => RenderedJourneys::Data(Box::new(data())),
            OutputForm::Text { verbose } => RenderedJourneys::Text(text(verbose)),
            OutputForm::Page {
                verbose,
                title,
                command,
            } => {
                let (text, data) = (text(verbose), Box::new(data()));
                let answer = Answer {
                    title,
                    command,
                    text: anstream::adapter::strip_str(&text).to_string(),
                    json: String::new(),
                    flows: ComparedTables::default(),
                };
                let page = probed.render(answer).map_err(|error| RunError {
                    kind: ErrorKind::Bug,
                    message: format!("the page cannot be rendered: {error}"),
                    remedy: None,
                })?;
                RenderedJourneys::Page { text, data, page }
            }
        })
    }

    fn probed<'l>(
        &'l self,
        probes: &'l [Probe],
        evidence: &'l Evidence,
        start: RunStart,
    ) -> ProbedLab<'l> {
        ProbedLab {
            prepared: &self.prepared,
            kernel: &self.kernel,
            probes,
            evidence,
            start,
        }
    }
}

/// Runs the requested probes one after the other, until the lab is lost.
pub(super) async fn run_jobs(
    session: &mut Session,
    asked: &mut mpsc::UnboundedReceiver<ProbeJob>,
) -> KernelError {
    loop {
        tokio::select! {
            Some(ProbeJob { probes, watch, reply }) = asked.recv() => {
                let tried = run_job(session, probes, watch).await;
                if let Err(error @ KernelError::Lost(_)) = &tried {
                    let error = error.clone();
                    let _ = reply.send(tried);
                    return error;
                }
                let _ = reply.send(tried);
            }
            // Backend health changes need no action here.
            turned = session.next_health_change() => {
                if let Err(error) = turned {
                    return error;
                }
            }
        }
    }
}

async fn run_job(
    session: &mut Session,
    probes: Vec<Probe>,
    watch: EvidenceRequest,
) -> Result<Evidence, KernelError> {
    let delta = Delta {
        stages: Some(vec![Stage::new(probes)]),
        evidence: Some(watch),
        ..Delta::default()
    };
    session.change(delta).await?;
    session.probe().await
}
