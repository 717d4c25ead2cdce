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
use svclab_model::plan::{Patience, Watch};
use svclab_report::journey::seen_text;
use svclab_report::{Format, Options as Telling};
use svclab_runner::kernel::{Choice, agent_program};
use svclab_runner::results::seen::Seen;
use svclab_runner::results::{CaseResult, Event, Results};
use svclab_runner::run::{Chosen, Given, Options, Wishes, execute, prepare};
use svclab_scenario::Scenario;

/// Lab that can be run: a cluster, probes and expectations.
///
/// Only a separate process, the agent `svclab-agent`, creates namespaces, rules and packets. The
/// calling process enters no namespace, and all resources are removed when the agent ends. Any
/// tokio runtime is suitable.
///
/// ```no_run
/// # async fn test() -> Result<(), svclab::LabError> {
/// let ran = svclab::Lab::from_file("labs/node-port.yaml")?
///     .kube_proxy("bin/kube-proxy")
///     .run()
///     .await?;
/// assert!(ran.passed(), "{ran}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Lab {
    chosen: Chosen,
    wishes: Wishes,
    kernels: Choice,
    agent: Option<PathBuf>,
    watched: bool,
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
    Wrong(String),
    /// The lab has no such case.
    #[error("the lab has no case `{case}`; it has {}", .there.join(", "))]
    NoCase {
        /// Requested name.
        case: String,
        /// Identifiers of the lab's cases.
        there: Vec<String>,
    },
    /// The agent is not installed.
    #[error(
        "the program `svclab-agent` is not found; install it in a directory of PATH, or name it \
         by the variable {} or by Lab::agent",
        agent_program::VARIABLE
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
        Self::of(Source::of_text("<lab>", text))
    }

    /// Loads a lab from a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or all errors of the lab.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, LabError> {
        Self::of(Source::read(path.as_ref())?)
    }

    fn of(source: Source) -> Result<Self, LabError> {
        let named = source.name().to_owned();
        let sources = Sources::new(vec![source]);
        let loaded = Scenario::load(&sources);
        let (scenario, warnings) = loaded.map_err(|wrong| shown(&sources, &wrong))?;
        let chosen = Chosen {
            cases: (0..scenario.cases().len()).collect(),
            scenario,
            warnings,
            named,
        };
        Ok(Self {
            chosen,
            wishes: Patience::SETTLED.into(),
            kernels: Choice::Auto,
            agent: None,
            watched: false,
        })
    }

    /// Runs this kube-proxy, instead of generated rules, on every node that has kube-proxy.
    #[must_use]
    pub fn kube_proxy(mut self, path: impl Into<PathBuf>) -> Self {
        self.wishes.kube_proxy = Some(path.into());
        self
    }

    /// Sets the maximum wait for probes without their own.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.wishes.patience = patience;
        self
    }

    /// Sets the kernel. The default is the host if possible, otherwise the newest guest.
    #[must_use]
    pub fn kernel(mut self, kernels: Choice) -> Self {
        self.kernels = kernels;
        self
    }

    /// Sets the program of the agent, which must have the version of this crate. The default is the
    /// first of: the variable `SVCLAB_AGENT`, the `svclab-agent` that cargo built beside the
    /// running program, the `svclab-agent` in `PATH`.
    #[must_use]
    pub fn agent(mut self, program: impl Into<PathBuf>) -> Self {
        self.agent = Some(program.into());
        self
    }

    /// Collects full evidence: every packet and every rule that it matched. Required to explain
    /// where connections failed.
    #[must_use]
    pub fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    /// Returns the identifiers of the cases, such as `node-port/policy=Cluster`.
    pub fn cases(&self) -> impl Iterator<Item = &str> {
        let all = self.chosen.scenario.cases();
        self.chosen.cases.iter().map(|at| all[*at].id.as_str())
    }

    /// Selects a single case by its identifier, or by the part after the lab's name.
    ///
    /// # Errors
    ///
    /// Returns [`LabError::NoCase`] if the lab has no such case.
    pub fn case(mut self, name: &str) -> Result<Self, LabError> {
        let all = self.chosen.scenario.cases();
        let is_named = |id: &str| {
            id == name || id.strip_prefix(self.chosen.scenario.name()) == Some(&format!("/{name}"))
        };
        let found: Vec<usize> = (0..all.len()).filter(|at| is_named(&all[*at].id)).collect();
        if found.is_empty() {
            return Err(LabError::NoCase {
                case: name.to_owned(),
                there: all.iter().map(|case| case.id.clone()).collect(),
            });
        }
        self.chosen.cases = found;
        Ok(self)
    }

    /// Builds all cases, runs their probes and removes the labs again, several in parallel.
    /// Dropping the future removes all resources immediately.
    ///
    /// # Errors
    ///
    /// Returns an error if the lab is invalid or the agent is not found. A case that this machine
    /// cannot run has an error as its own result.
    pub async fn run(self) -> Result<Ran, LabError> {
        let agent = self
            .agent
            .or_else(agent_program::find)
            .ok_or(LabError::NoAgent)?;
        let mut cases: Vec<Given> = Vec::new();
        for at in &self.chosen.cases {
            let case = &self.chosen.scenario.cases()[*at];
            let prepared = prepare(&self.chosen, case, self.wishes.clone());
            let sources = &self.chosen.scenario.sources;
            let mut prepared = prepared.map_err(|wrong| shown(sources, &wrong))?;
            if self.watched {
                prepared.plan.watch = Watch::everything(&prepared.plan);
            }
            cases.push(Ok(prepared));
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let options = Options {
            kernels: self.kernels,
            agent: Some(agent),
            jobs: cores,
            agents: cores,
            keep: false,
            see: true,
            notice: None,
        };
        let (tell, mut told) = mpsc::unbounded_channel();
        let (results, _) = execute(cases, &options, &tell, pending()).await;
        drop(tell);
        let mut seen: Vec<Arc<Seen>> = Vec::new();
        while let Some(event) = told.recv().await {
            if let Event::Finished {
                seen: Some(one), ..
            } = event
            {
                seen.push(one);
            }
        }
        Ok(Ran { results, seen })
    }
}

fn shown(sources: &Sources, wrong: &[Diagnostic]) -> LabError {
    let shown = wrong
        .iter()
        .map(|diagnostic| diagnostic.render(sources, Rendering::default()));
    LabError::Wrong(shown.collect::<String>().trim_end().to_owned())
}

/// Results of a lab. `Display` prints them as `svclab run` does.
#[derive(Debug, Clone)]
pub struct Ran {
    results: Results,
    seen: Vec<Arc<Seen>>,
}

impl Ran {
    /// Whether all cases met their expectations.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.results.exit_code() == exit_code::SUCCESS
    }

    /// Returns the results in the format of `svclab run --format json`.
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
        self.seen(case).map(|seen| &seen.document.evidence)
    }

    /// Returns the explanation of a case in the format of `svclab explain`. It is complete only
    /// with [`Lab::watched`].
    #[must_use]
    pub fn explanation(&self, case: &str) -> Option<String> {
        let result = self.cases().iter().find(|result| result.case == case)?;
        Some(seen_text(result, self.seen(case)?))
    }

    fn seen(&self, case: &str) -> Option<&Seen> {
        let mut all = self.seen.iter().map(AsRef::as_ref);
        all.find(|seen| seen.document.case == case)
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        let mut writer = Format::Human.writer(&mut text, Telling::default());
        for result in &self.results.cases {
            let event = Event::Finished {
                result: Box::new(result.clone()),
                seen: None,
            };
            // Writes to memory cannot fail.
            writer.event(&event).map_err(|_| fmt::Error)?;
        }
        drop(writer);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}
