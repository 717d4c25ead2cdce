//! Turns a case into a plan, or into diagnostics of its errors.

pub mod binary;
pub mod dumps;
mod invalid_case;
mod planning_memory;
pub mod refit;
mod stages;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::results::{FileLine, Warning};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::printable::printable;
use svclab_diagnostic::source::Sources;
use svclab_dump::NodeDump;
use svclab_judge::{ClaimOutcome, ClaimVerdict, Judge, JudgedCase};
use svclab_model::plan::{MaxWait, Plan};
use svclab_planner::build::{PlanInput, StageInput, plan};
use svclab_planner::cluster::place;
use svclab_planner::cluster::{self, Cluster, ClusterInputs, Problem};
use svclab_planner::replay::{HardwareAddresses, ReplayReport, replace_node};
use svclab_scenario::Case;
use svclab_scenario::expectation::Row;
use svclab_scenario::lab::LabSpec;
use svclab_scenario::objects::Object;
use svclab_scenario::reference::DocumentRef;
use svclab_scenario::tree::PathSegment;

use super::select::{SelectedLab, is_embedded, rerun_name};
use super::summary::diagnostic_location;

pub use invalid_case::{InvalidCase, prepare_case};

/// Case that is ready to run.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Files that the case was read from.
    pub sources: Sources,
    /// Case of the lab document.
    pub case: Case,
    /// Cluster of the first stage.
    pub cluster: Cluster,
    /// Plan of the case, with all stages.
    pub plan: Plan,
    /// Stages after the first.
    pub later_stages: Vec<PreparedStage>,
    /// Replay reports of the nodes that dumps replace.
    pub replay_reports: Vec<ReplayReport>,
    /// Dumps of these nodes in the same order, each with whether lines that a kernel rejects are
    /// omitted.
    pub dumps: Vec<(Arc<NodeDump>, bool)>,
    /// Name of the case on the command line.
    pub cli_name: String,
    /// Warnings about the lab file.
    pub warnings: Vec<Warning>,
}

/// State of a case at a stage.
#[derive(Debug, Clone)]
pub struct PreparedStage {
    /// Cluster at the stage.
    pub cluster: Cluster,
    /// Plan, without probes, that builds this state directly.
    pub plan: Plan,
}

/// Options of the user for preparing cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrepareOptions {
    /// Maximum wait of probes that set none.
    pub max_wait: MaxWait,
    /// Path of the program that runs as kube-proxy on nodes with a kube-proxy. `None` for the
    /// program that the lab names.
    pub kube_proxy: Option<PathBuf>,
    /// Dumps that replace nodes, by node name, in addition to those that the lab names.
    pub dumps: BTreeMap<String, dumps::DumpOverride>,
    /// Link-layer addresses according to dumps that do not replace nodes.
    pub known_addresses: HardwareAddresses,
    /// Whether a lab's `dump` may be outside the lab's directory.
    pub allow_outside: bool,
}

impl From<MaxWait> for PrepareOptions {
    fn from(patience: MaxWait) -> Self {
        Self {
            max_wait: patience,
            kube_proxy: None,
            dumps: BTreeMap::new(),
            known_addresses: HardwareAddresses::default(),
            allow_outside: false,
        }
    }
}

impl From<Duration> for PrepareOptions {
    fn from(limit: Duration) -> Self {
        MaxWait::fixed(limit).into()
    }
}

/// Prepares a case.
///
/// # Errors
///
/// When the case is invalid. The diagnostics describe all problems that were found.
pub fn prepare(
    lab: &SelectedLab,
    case: &Case,
    options: impl Into<PrepareOptions>,
) -> Result<Prepared, Vec<Diagnostic>> {
    let wishes = options.into();
    let sources = &lab.scenario.sources;
    let to_diagnostics =
        |problems: Vec<Problem>| sources.redact(problems_to_diagnostics(case, &problems));
    planning_memory::check_planning_memory(case)
        .map_err(|problem| to_diagnostics(vec![*problem]))?;
    let mut clusters = Vec::with_capacity(case.steps.len() + 1);
    for (index, stage) in case.stages().enumerate() {
        let at_stage = |problem: Problem| problem.at_stage(index);
        let cluster = build_cluster(lab, &stage, &wishes)
            .map_err(|problems| to_diagnostics(problems.into_iter().map(at_stage).collect()))?;
        clusters.push(cluster);
    }
    let names = case.spec.steps.iter().map(|step| Some(step.name.as_str()));
    let names = std::iter::once(None).chain(names);
    let inputs = names.zip(&clusters).zip(case.spec.probes_by_stage());
    let inputs: Vec<StageInput<'_>> = inputs
        .map(|((step, cluster), probes)| StageInput {
            step,
            cluster,
            probes,
        })
        .collect();
    let plan_input = PlanInput {
        case: &case.id,
        stages: &inputs,
        row: case.expected(),
        row_index: case.row,
        max_wait: wishes.max_wait,
    };
    let (mut plan, plans) = plan(&plan_input).map_err(to_diagnostics)?;
    let directory = directory(lab);
    let dumps = dumps::read_dumps(directory.as_deref(), &case.spec, &wishes);
    let dumps = dumps.map_err(to_diagnostics)?;
    if !dumps.is_empty() && !case.steps.is_empty() {
        let problem = Problem::in_lab(
            place!["spec", "steps"],
            "a lab with a dump of a node cannot have steps: the changes of components to the dump \
             are not known"
                .to_owned(),
        );
        return Err(to_diagnostics(vec![problem]));
    }
    let mut known = HardwareAddresses::from_dumps(dumps.iter().map(|taken| &*taken.dump));
    known.extend(&wishes.known_addresses);
    let replay_reports = dumps.iter().map(|taken| {
        let mut account = replace_node(&mut plan, &taken.node, &taken.dump, &known);
        account.omitted.splice(0..0, taken.omitted.iter().cloned());
        account.unread.clone_from(&taken.gaps);
        account
    });
    let accounts = replay_reports.collect();
    let dumps = dumps
        .into_iter()
        .map(|taken| (Arc::new(taken.dump.into_owned()), taken.lenient));
    let later_clusters = clusters.split_off(1);
    let later = later_clusters.into_iter().zip(plans);
    let prepared = Prepared {
        sources: sources.clone(),
        case: case.clone(),
        cluster: clusters.swap_remove(0),
        plan,
        later_stages: later
            .map(|(cluster, plan)| PreparedStage { cluster, plan })
            .collect(),
        replay_reports: accounts,
        dumps: dumps.collect(),
        cli_name: case.id.replacen(&case.lab, &lab.cli_name, 1),
        warnings: lab
            .warnings
            .iter()
            .map(|warning| to_result_warning(lab, warning))
            .collect(),
    };
    prepared.judge().map(drop).map_err(to_diagnostics)?;
    Ok(prepared)
}

/// Converts a warning about a lab file to the form that results use.
fn to_result_warning(lab: &SelectedLab, warning: &Diagnostic) -> Warning {
    Warning {
        lab: lab.scenario.name().to_owned(),
        message: printable(&warning.message).into_owned(),
        location: diagnostic_location(&lab.scenario.sources, warning),
        help: (!warning.help.is_empty()).then(|| printable(&warning.help.join("; ")).into_owned()),
    }
}

/// Builds the cluster of a case at one stage.
fn build_cluster(
    lab: &SelectedLab,
    case: &Case,
    wishes: &PrepareOptions,
) -> Result<Cluster, Vec<Problem>> {
    let directory = directory(lab);
    let spec = with_programs(
        &case.spec,
        directory.as_deref(),
        wishes.kube_proxy.as_deref(),
    )?;
    let nodes = values(&case.objects.nodes);
    let pods = values(&case.objects.pods);
    let services = values(&case.objects.services);
    let slices = values(&case.objects.endpoint_slices);
    let service_cidrs = values(&case.objects.service_cidrs);
    let has_own_dump = spec.nodes.values().any(|node| node.dump.is_some());
    cluster::build(&ClusterInputs {
        spec: &spec,
        has_dumps: has_own_dump || !wishes.dumps.is_empty(),
        nodes: &nodes,
        pods: &pods,
        services: &services,
        slices: &slices,
        service_cidrs: &service_cidrs,
    })
}

/// Returns the directory of the lab file. `None` for an embedded lab.
fn directory(lab: &SelectedLab) -> Option<PathBuf> {
    let source = lab.scenario.sources.iter().next();
    match source {
        Some((_, source)) if is_embedded(source.name()) => None,
        Some((_, source)) => Some(source.directory()),
        None => Some(PathBuf::new()),
    }
}

/// Returns the error for an embedded lab that names a file.
fn no_directory(path: Vec<PathSegment>) -> Problem {
    let message = "an embedded lab has no directory, so it cannot name a file".to_owned();
    let help = "print the lab with `svclab labs show`, and write it to a file next to this file";
    Problem::at_path(path, message).with_help(help.to_owned())
}

/// Returns the lab's spec with absolute paths of the programs that run as kube-proxy.
/// `directory` is the lab's directory, `None` for an embedded lab.
fn with_programs<'s>(
    spec: &'s LabSpec,
    directory: Option<&Path>,
    override_path: Option<&Path>,
) -> Result<Cow<'s, LabSpec>, Vec<Problem>> {
    let mut spec = Cow::Borrowed(spec);
    let names: Vec<Option<String>> = std::iter::once(None)
        .chain(spec.nodes.keys().cloned().map(Some))
        .collect();
    let mut problems = Vec::new();
    for node in names {
        let proxy_spec = match &node {
            None => spec.kube_proxy.as_ref(),
            Some(node) => spec
                .nodes
                .get(node)
                .and_then(|node| node.kube_proxy.as_ref()),
        };
        let Some(proxy_spec) = proxy_spec else {
            continue;
        };
        let path_in_lab = match &node {
            None => place!["spec", "kubeProxy", "binary"].to_vec(),
            Some(node) => place!["spec", "nodes", node, "kubeProxy", "binary"].to_vec(),
        };
        let path = match (override_path, &proxy_spec.binary, directory) {
            (Some(wanted), ..) => wanted.to_owned(),
            (None, Some(binary_path), Some(directory)) => directory.join(binary_path),
            (None, Some(_), None) => {
                problems.push(no_directory(path_in_lab));
                continue;
            }
            (None, None, _) => continue,
        };
        let found = match binary::find_executable(&path) {
            Ok(found) => found,
            Err(error) => {
                let problem = Problem::at_path(path_in_lab, error.to_string());
                problems.push(problem.with_help(error.remedy().to_owned()));
                continue;
            }
        };
        let spec = spec.to_mut();
        let proxy = match &node {
            None => spec.kube_proxy.as_mut(),
            Some(node) => spec
                .nodes
                .get_mut(node)
                .and_then(|node| node.kube_proxy.as_mut()),
        };
        if let Some(proxy) = proxy {
            proxy.binary = Some(found);
        }
    }
    if problems.is_empty() {
        Ok(spec)
    } else {
        Err(problems)
    }
}

fn values<T: Clone>(objects: &[Object<T>]) -> Vec<T> {
    objects
        .iter()
        .map(|object| (*object.value).clone())
        .collect()
}

impl Prepared {
    /// Sets the time that kube-proxies have to write their rules. `None` keeps the plan's time.
    #[must_use]
    pub fn with_sync_timeout(mut self, timeout: Option<Duration>) -> Self {
        if let Some(timeout) = timeout {
            for proxy in &mut self.plan.kube_proxies {
                proxy.sync_timeout = timeout;
            }
        }
        self
    }

    /// Returns the judge of the case's expectations.
    ///
    /// # Errors
    ///
    /// When an expectation names something that does not exist; not after [`prepare`].
    pub fn judge(&self) -> Result<Judge<'_>, Vec<Problem>> {
        Judge::new(self.subject(self.case.expected()))
    }

    /// Returns the case as it is judged by `row`.
    #[must_use]
    pub fn subject<'p>(&'p self, row: &'p Row) -> JudgedCase<'p> {
        JudgedCase {
            plan: &self.plan,
            stages: self.stages().collect(),
            spec: &self.case.spec,
            row,
            row_index: self.case.row,
            replaced_nodes: self.replaced_nodes().collect(),
        }
    }

    /// Returns the names of the nodes that dumps replace.
    pub fn replaced_nodes(&self) -> impl Iterator<Item = &str> {
        let reports = self.replay_reports.iter();
        reports.map(|report| report.node.as_str())
    }
}

impl Prepared {
    /// Returns the location of the case's expectation row in the lab file.
    #[must_use]
    pub fn expectation_location(&self) -> Option<FileLine> {
        self.location_of(&place!["spec", "expect", self.case.row])
    }

    /// Returns the name that selects the case again in a new command.
    #[must_use]
    pub fn rerun_name(&self) -> String {
        let rest = self.case.id.strip_prefix(&self.case.lab);
        format!("{}{}", self.cli_lab_name(), rest.unwrap_or_default())
    }

    /// Returns the name of the lab on the command line.
    pub(in crate::run) fn cli_lab_name(&self) -> String {
        let file = self.sources.iter().next();
        let file = file.map_or(Cow::default(), |(_, source)| source.path());
        let rest = self.case.id.strip_prefix(&self.case.lab);
        let lab = self.cli_name.strip_suffix(rest.unwrap_or_default());
        rerun_name(lab.unwrap_or(&self.cli_name), &file)
    }

    /// Returns the location of a path in the lab document. `None` if the document does not contain
    /// the path.
    #[must_use]
    pub fn location_of(&self, path: &[PathSegment]) -> Option<FileLine> {
        FileLine::from_span(&self.sources, self.case.span(&DocumentRef::Lab, path)?)
    }

    /// Returns the unsettled outcome of each claim that the case would test, for a case without a
    /// verdict.
    #[must_use]
    pub fn unsettled_claims(&self) -> Vec<ClaimOutcome> {
        self.case
            .expected()
            .claims
            .iter()
            .map(|claim| ClaimOutcome {
                id: claim.id.clone(),
                verdict: ClaimVerdict::Unsettled,
                part: claim.part.clone(),
                differences: Vec::new(),
            })
            .collect()
    }
}

/// Converts problems to diagnostics with their source locations.
#[must_use]
pub fn problems_to_diagnostics(case: &Case, problems: &[Problem]) -> Vec<Diagnostic> {
    problems
        .iter()
        .map(|problem| {
            let stage = case.stages().nth(problem.stage);
            let stage_case = stage.as_deref().unwrap_or(case);
            let diagnostic =
                Diagnostic::error(&problem.message).with_optional_help(problem.help.clone());
            let (document, path) = (&problem.location.document, &problem.location.path);
            let span = if problem.is_key {
                stage_case.key_span(document, path)
            } else {
                stage_case.span(document, path)
            };
            let diagnostic = match span {
                Some(span) => diagnostic.with_position(span, "here"),
                None => diagnostic.with_help(format!("in {}", problem.location)),
            };
            let step = problem.stage.checked_sub(1);
            let step = step.and_then(|step| case.steps.get(step).zip(Some(step)));
            let Some((step, at)) = step else {
                return diagnostic;
            };
            let name = place!["spec", "steps", at, "name"];
            match case.span(&DocumentRef::Lab, &name) {
                Some(span) if diagnostic.primary.is_some() => {
                    diagnostic.with_related(span, format!("after the step `{}`", step.name))
                }
                _ => diagnostic
                    .with_help(format!("the problem exists after the step `{}`", step.name)),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::select_labs;

    #[test]
    fn location_of_line_start_is_that_line() {
        let directory = tempfile::tempdir().unwrap();
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/run/fields_tests/base.yaml");
        let text = std::fs::read_to_string(lab).unwrap();
        let file = directory.path().join("fields.yaml");
        std::fs::write(&file, format!("# A comment.\n# Another one.\n{text}")).unwrap();
        let names = [file.display().to_string()];
        let lab = select_labs(&names, directory.path()).unwrap().remove(0);
        let case = &lab.scenario.cases()[0];
        let prepared = prepare(&lab, case, Duration::from_secs(1)).unwrap();
        let comments = text
            .lines()
            .take_while(|line| line.starts_with('#'))
            .count();
        let first_line = u32::try_from(2 + comments + 1).unwrap();
        let location = prepared.location_of(&[]).unwrap();
        assert_eq!(location.line, first_line, "{location}");
    }
}
