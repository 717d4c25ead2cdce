//! Runs labs from tests of other crates, and returns their results as values.

use std::fmt;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;

use svclab_diagnostic::exit_code;
use svclab_diagnostic::source::Sources;
use svclab_diagnostic::source::{Source, SourceError};
use svclab_diagnostic::{Diagnostic, Rendering};
use svclab_model::evidence::Evidence;
use svclab_model::plan::{EvidenceRequest, MaxWait};
use svclab_report::journey::render_case_journeys;
use svclab_report::results::Document;
use svclab_report::{Format, Options as ReportOptions};
use svclab_runner::kernel::{KernelChoice, agent_program};
use svclab_runner::results::{CaseResult, Results};
use svclab_runner::run::CaseEvidence;
use svclab_runner::run::{
    Event, PrepareOptions, RunControl, RunInput, RunOptions, SelectedLab, execute, prepare,
};
use svclab_scenario::{FileAccess, Scenario};

/// Lab that can be run: a cluster, probes and expectations.
///
/// Only a separate process, the agent `svclab-agent`, creates namespaces, rules and packets. The
/// calling process enters no namespace, and all resources are removed when the agent ends. Any
/// tokio runtime is suitable.
///
/// ```no_run
/// # async fn test() -> Result<(), svclab::LabError> {
/// let ran = svclab::Lab::from_file("labs/node-port.yaml")?
///     .with_kube_proxy("bin/kube-proxy")
///     .run()
///     .await?;
/// assert!(ran.passed(), "{ran}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Lab {
    chosen: SelectedLab,
    options: PrepareOptions,
    kernels: KernelChoice,
    agent: Option<PathBuf>,
    full_evidence: bool,
}

/// Error that prevents a lab from running. Results of cases are not errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] SourceError),
    /// The lab is invalid. Contains its diagnostics as the command prints them.
    #[error("{0}")]
    Invalid(String),
    /// The lab has no such case.
    #[error("the lab has no case `{case}`; its cases are {}", .cases.join(", "))]
    NoCase {
        /// Requested name.
        case: String,
        /// Identifiers of the lab's cases.
        cases: Vec<String>,
    },
    /// The agent is not installed.
    #[error(
        "program `svclab-agent` not found; install it in a directory of PATH, or set its path with \
         the variable {} or Lab::agent",
        agent_program::PATH_VARIABLE
    )]
    NoAgent,
}

impl Lab {
    /// Loads a lab from a text in the format of `svclab schema`.
    ///
    /// # Errors
    ///
    /// Returns all errors of the lab.
    pub fn from_yaml(text: impl Into<String>) -> Result<Self, LabError> {
        Self::from_source(Source::from_text("<lab>", text))
    }

    /// Loads a lab from a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or all errors of the lab.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, LabError> {
        Self::from_source(Source::read(path.as_ref())?)
    }

    fn from_source(source: Source) -> Result<Self, LabError> {
        let named = source.name().to_owned();
        let loaded = Scenario::load_lab(source, FileAccess::LabDirectory);
        let (scenario, warnings) =
            loaded.map_err(|wrong| invalid_lab(&wrong.sources, &wrong.diagnostics))?;
        let chosen = SelectedLab {
            cases: (0..scenario.cases().len()).collect(),
            scenario,
            warnings,
            cli_name: named,
        };
        Ok(Self {
            chosen,
            options: MaxWait::SETTLED.into(),
            kernels: KernelChoice::Auto,
            agent: None,
            full_evidence: false,
        })
    }

    /// Runs this kube-proxy, instead of generated rules, on every node that has kube-proxy.
    #[must_use]
    pub fn with_kube_proxy(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.kube_proxy = Some(path.into());
        self
    }

    /// Sets the maximum wait for probes without their own.
    #[must_use]
    pub fn with_max_wait(mut self, max_wait: MaxWait) -> Self {
        self.options.max_wait = max_wait;
        self
    }

    /// Sets the kernel. The default is the host if possible, otherwise the newest guest.
    #[must_use]
    pub fn with_kernel(mut self, kernels: KernelChoice) -> Self {
        self.kernels = kernels;
        self
    }

    /// Sets the program of the agent, which must have the version of this crate. The default is the
    /// first of: the variable `SVCLAB_AGENT`, the `svclab-agent` that cargo built beside the
    /// running program, the `svclab-agent` in `PATH`.
    #[must_use]
    pub fn with_agent(mut self, program: impl Into<PathBuf>) -> Self {
        self.agent = Some(program.into());
        self
    }

    /// Collects full evidence: every packet and every rule that it matched. Required to explain
    /// where connections failed.
    #[must_use]
    pub fn with_full_evidence(mut self) -> Self {
        self.full_evidence = true;
        self
    }

    /// Returns the identifiers of the cases, such as `node-port/policy=Cluster`.
    pub fn cases(&self) -> impl Iterator<Item = &str> {
        let cases = self.chosen.scenario.cases();
        self.chosen.cases.iter().map(|at| cases[*at].id.as_str())
    }

    /// Selects a single case by its identifier, or by the part after the lab's name.
    ///
    /// # Errors
    ///
    /// Returns [`LabError::NoCase`] if the lab has no such case.
    pub fn select_case(mut self, name: &str) -> Result<Self, LabError> {
        let cases = self.chosen.scenario.cases();
        let is_named = |id: &str| {
            id == name || id.strip_prefix(self.chosen.scenario.name()) == Some(&format!("/{name}"))
        };
        let indices: Vec<usize> = (0..cases.len())
            .filter(|at| is_named(&cases[*at].id))
            .collect();
        if indices.is_empty() {
            return Err(LabError::NoCase {
                case: name.to_owned(),
                cases: cases.iter().map(|case| case.id.clone()).collect(),
            });
        }
        self.chosen.cases = indices;
        Ok(self)
    }

    /// Builds all cases, runs their probes and removes the labs again, several in parallel.
    /// Dropping the future removes all resources immediately.
    ///
    /// # Errors
    ///
    /// Returns an error if the lab is invalid or the agent is not found. A case that this machine
    /// cannot run has an error as its own result.
    pub async fn run(self) -> Result<LabRun, LabError> {
        let agent = self
            .agent
            .or_else(agent_program::find)
            .ok_or(LabError::NoAgent)?;
        let mut cases: Vec<RunInput> = Vec::new();
        for at in &self.chosen.cases {
            let case = &self.chosen.scenario.cases()[*at];
            let prepared = prepare(&self.chosen, case, self.options.clone());
            let sources = &self.chosen.scenario.sources;
            let mut prepared = prepared.map_err(|wrong| invalid_lab(sources, &wrong))?;
            if self.full_evidence {
                prepared.plan.evidence = EvidenceRequest::everything(&prepared.plan);
            }
            cases.push(Ok(prepared));
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let options = RunOptions {
            kernels: self.kernels,
            agent: Some(agent),
            jobs: cores,
            agents: cores,
            keep: false,
            with_evidence: true,
            command: String::new(),
            shard: None,
            control: RunControl::default(),
            notice: None,
        };
        let (event_sender, mut events) = mpsc::unbounded_channel();
        // Futures that contain that of a run stay small.
        let running = Box::pin(execute(cases, &options, &event_sender, pending()));
        let (results, _) = running.await;
        drop(event_sender);
        let mut case_evidence: Vec<Arc<CaseEvidence>> = Vec::new();
        while let Some(event) = events.recv().await {
            if let Event::CaseEnded {
                evidence: Some(one),
                ..
            } = event
            {
                case_evidence.push(one);
            }
        }
        Ok(LabRun {
            results,
            case_evidence,
        })
    }
}

fn invalid_lab(sources: &Sources, wrong: &[Diagnostic]) -> LabError {
    let shown = wrong
        .iter()
        .map(|diagnostic| diagnostic.render(sources, Rendering::default()));
    LabError::Invalid(shown.collect::<String>().trim_end().to_owned())
}

/// Results of a lab. `Display` prints them as `svclab run` does.
#[derive(Debug, Clone)]
pub struct LabRun {
    results: Results,
    case_evidence: Vec<Arc<CaseEvidence>>,
}

impl LabRun {
    /// Whether all cases met their expectations.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.results.exit_code() == exit_code::SUCCESS
    }

    /// Returns the results as `svclab run --format json` prints them.
    #[must_use]
    pub fn document(&self) -> Document {
        Document::from(&self.results)
    }

    /// Returns the results.
    #[must_use]
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// Returns the result of each case, in order.
    #[must_use]
    pub fn cases(&self) -> &[CaseResult] {
        &self.results.cases
    }

    /// Returns the evidence of a case by its identifier; `None` if the case has no verdict.
    #[must_use]
    pub fn evidence(&self, case: &str) -> Option<&Evidence> {
        self.find_evidence(case).map(|seen| &seen.evidence)
    }

    /// Returns the explanation of a case in the format of `svclab explain`. It is complete only
    /// with [`Lab::with_full_evidence`].
    #[must_use]
    pub fn explanation(&self, case: &str) -> Option<String> {
        let result = self.cases().iter().find(|result| result.case == case)?;
        Some(render_case_journeys(result, self.find_evidence(case)?))
    }

    fn find_evidence(&self, case: &str) -> Option<&CaseEvidence> {
        let mut documents = self.case_evidence.iter().map(AsRef::as_ref);
        documents.find(|seen| seen.case == case)
    }
}

impl fmt::Display for LabRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        let mut writer = Format::Human.writer(&mut text, ReportOptions::default());
        for result in &self.results.cases {
            let event = Event::CaseEnded {
                result: Box::new(result.clone()),
                evidence: None,
            };
            // Writes to memory cannot fail.
            writer.event(&event).map_err(|_| fmt::Error)?;
        }
        drop(writer);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}
