//! Labs from within somebody's own tests: read, run, and their verdicts as values.

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

/// A lab that can be run: a cluster, and what to try in it.
///
/// Namespaces, rules and packets are an agent's business, which is a process of its
/// own, `svclab-agent`: nothing of the caller's process enters a namespace, and
/// nothing is left when it ends. Any tokio runtime serves.
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

/// Why a lab did not run. What became of cases is never among these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] SourceError),
    /// The lab is wrong: what and where, as the command shows it.
    #[error("{0}")]
    Wrong(String),
    /// The lab has no such case.
    #[error("the lab has no case `{case}`; it has {}", .there.join(", "))]
    NoCase {
        /// As it was asked for.
        case: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// There is no agent.
    #[error(
        "the program `svclab-agent` is not found; install it in a directory of PATH, or name it \
         by the variable {} or by Lab::agent",
        agent_program::VARIABLE
    )]
    NoAgent,
}

impl Lab {
    /// The lab that this text is, in the format that `svclab schema` describes.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn from_yaml(text: impl Into<String>) -> Result<Self, LabError> {
        Self::of(Source::of_text("<lab>", text))
    }

    /// The lab of a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read; everything that is wrong with it.
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

    /// The same lab, with this kube-proxy on every node that has one, in place of
    /// generated rules.
    #[must_use]
    pub fn kube_proxy(mut self, path: impl Into<PathBuf>) -> Self {
        self.wishes.kube_proxy = Some(path.into());
        self
    }

    /// The same lab, whose probes wait so long where they say nothing of it themselves.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.wishes.patience = patience;
        self
    }

    /// The same lab, in another kernel than the host where it can and else the newest
    /// guest.
    #[must_use]
    pub fn kernel(mut self, kernels: Choice) -> Self {
        self.kernels = kernels;
        self
    }

    /// The same lab, with this program as the agent. Without it, that is the one that the
    /// variable `SVCLAB_AGENT` names, else the `svclab-agent` that cargo built beside the
    /// running program, else the first one of `PATH`. It must be of this crate's version.
    #[must_use]
    pub fn agent(mut self, program: impl Into<PathBuf>) -> Self {
        self.agent = Some(program.into());
        self
    }

    /// The same lab, with everything watched: evidence then holds every packet and every
    /// rule that it met, and says where connections broke.
    #[must_use]
    pub fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    /// The names of its cases: `node-port/policy=Cluster`.
    pub fn cases(&self) -> impl Iterator<Item = &str> {
        let all = self.chosen.scenario.cases();
        self.chosen.cases.iter().map(|at| all[*at].id.as_str())
    }

    /// Only this case of it, by its whole name or what follows the lab's.
    ///
    /// # Errors
    ///
    /// When it has no such case.
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

    /// Builds every case, runs its probes and takes it away again, several side by side.
    /// When the future is dropped, all of it is taken away at once.
    ///
    /// # Errors
    ///
    /// When the lab is wrong, or there is no agent. A case that this machine cannot run
    /// is an [`Outcome::Error`] of that case.
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

/// What became of a lab. Displayed, it is what `svclab run` prints of it.
#[derive(Debug, Clone)]
pub struct Ran {
    results: Results,
    seen: Vec<Arc<Seen>>,
}

impl Ran {
    /// Whether every case came out as expected.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.results.exit_code() == exit_code::SUCCESS
    }

    /// The results, as `svclab run --format json` prints them.
    #[must_use]
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// What became of each case, in order.
    #[must_use]
    pub fn cases(&self) -> &[CaseResult] {
        &self.results.cases
    }

    /// What was seen of a case, by its whole name; none if it came to no verdict.
    #[must_use]
    pub fn evidence(&self, case: &str) -> Option<&Evidence> {
        self.seen(case).map(|seen| &seen.document.evidence)
    }

    /// What is to be said of a case, as `svclab explain` says it; of use where it was
    /// [`Lab::watched`].
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
            // Memory takes everything.
            writer.event(&event).map_err(|_| fmt::Error)?;
        }
        drop(writer);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}
