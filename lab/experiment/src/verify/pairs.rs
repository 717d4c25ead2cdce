//! Prepares every case twice: for the reference side and for the new side.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::document::{FailedCase, NotCompared, SideName};
use super::side::Side;
use crate::kube_proxies;
use svclab_diagnostic::Diagnostic;
use svclab_model::plan::{EvidenceRequest, MaxWait, Plan};
use svclab_rules::kube_proxy::{Mode, Version};
use svclab_runner::run::{PrepareOptions, Prepared, SelectedLab, prepare, prepare_case};
use svclab_scenario::Case;
use svclab_scenario::expectation::Expected;
use svclab_scenario::lab::{LabSpec, Probe};

/// Case prepared for both sides.
#[derive(Debug, Clone)]
pub struct CasePair {
    /// Case with the reference side.
    pub against: Prepared,
    /// Case with the new side.
    pub new: Prepared,
}

/// Cases to compare, and those that cannot be compared.
#[derive(Debug, Clone, Default)]
pub struct PreparedPairs {
    /// Cases prepared for both sides.
    pub pairs: Vec<CasePair>,
    /// Cases that a side cannot run, and cases with steps that a side cannot make.
    pub not_compared: Vec<NotCompared>,
    /// Cases that cannot run with any side.
    pub failed: Vec<FailedCase>,
}

/// Prepares the selected cases for both sides.
///
/// If `modes` is not empty, cases with other modes are ignored. The versions of the sides replace
/// those of the cases. Only the first of cases that become equal is compared. If a side cannot make
/// a step, the stages before the step are compared. A case that cannot run as written has failed.
#[must_use]
pub fn prepare_pairs(
    labs: &[SelectedLab],
    against: &Side,
    new: &Side,
    modes: &[Mode],
    allow_outside: bool,
) -> PreparedPairs {
    let mut found = PreparedPairs::default();
    let mut reasons: BTreeMap<SkipReason, Vec<String>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for lab in labs {
        for case in lab.cases.iter().map(|index| &lab.scenario.cases()[*index]) {
            let mut skip = |reason: SkipReason| {
                reasons.entry(reason).or_default().push(case.id.clone());
            };
            let run_modes: Vec<Mode> = kube_proxies(&case.spec).map(|proxy| proxy.mode).collect();
            if run_modes.is_empty() {
                skip(("no node has a kube-proxy".to_owned(), None));
                continue;
            }
            if !modes.is_empty() && !run_modes.iter().all(|mode| modes.contains(mode)) {
                continue;
            }
            let preparer = Preparer {
                lab,
                case,
                sides: [against, new],
                allow_outside,
            };
            let (pair, reason) = preparer.prepare_longest();
            if let Some(reason) = reason {
                match preparer.error_as_written() {
                    None => skip(reason),
                    Some(failed) => found.failed.push(failed),
                }
            }
            // Generated rules do not depend on everything that a program reads.
            let keys =
                |pair: &CasePair| [&pair.against, &pair.new].map(|side| comparison_key(&side.plan));
            let pair = pair.filter(|pair| seen.insert(keys(pair)));
            found.pairs.extend(pair);
        }
    }
    let not_compared = reasons
        .into_iter()
        .map(|((reason, from_step), cases)| NotCompared {
            cases,
            from_step,
            reason,
        });
    found.not_compared = not_compared.collect();
    found
}

/// Reason why something is not compared, and the first step that the reason applies to.
type SkipReason = (String, Option<String>);

struct Preparer<'a> {
    lab: &'a SelectedLab,
    case: &'a Case,
    sides: [&'a Side; 2],
    allow_outside: bool,
}

impl Preparer<'_> {
    fn options(&self, program: Option<&Path>) -> PrepareOptions {
        PrepareOptions {
            kube_proxy: program.map(ToOwned::to_owned),
            allow_outside: self.allow_outside,
            ..PrepareOptions::from(MaxWait::SETTLED)
        }
    }

    /// Returns the error of the case as written, with generated rules and with each program.
    /// Returns `None` if the case can run with any of them.
    fn error_as_written(&self) -> Option<FailedCase> {
        let prepare = |program| prepare_case(self.lab, self.case, self.options(program)).err();
        let wrong = prepare(None)?;
        for path in self.sides.into_iter().filter_map(Side::path) {
            prepare(Some(path))?;
        }
        Some(FailedCase {
            case: self.case.id.clone(),
            side: SideName::New,
            error: wrong.result.error?,
        })
    }

    /// Prepares the case for both sides, with as many of its steps as both can make.
    fn prepare_longest(&self) -> (Option<CasePair>, Option<SkipReason>) {
        let mut wrong = None;
        for steps in (0..=self.case.steps.len()).rev() {
            let [against, new] = self.sides.map(|side| self.prepare_side(side, steps));
            match against.and_then(|against| Ok((against, new?))) {
                Ok((against, new)) => return (Some(CasePair { against, new }), wrong),
                Err(reason) => {
                    let last = steps
                        .checked_sub(1)
                        .and_then(|last| self.case.steps.get(last));
                    wrong = Some((reason, last.map(|step| step.name.clone())));
                }
            }
        }
        (None, wrong)
    }

    /// Prepares the first `steps` steps of the case for one side; the rules are read back.
    fn prepare_side(&self, side: &Side, steps: usize) -> Result<Prepared, String> {
        let mut case = self.case.clone();
        case.steps.truncate(steps);
        let step_specs = case.steps.iter_mut().map(|step| &mut step.spec);
        for spec in step_specs.chain([&mut case.spec]) {
            let spec = Arc::make_mut(spec);
            spec.steps.truncate(steps);
            set_version(spec, side.version());
        }
        let spec = Arc::make_mut(&mut case.spec);
        // Probes of other steps may refer to objects that exist only then.
        let is_open = |probe: &Probe| {
            let across = probe.across.as_ref();
            across.is_none_or(|across| spec.steps.iter().any(|step| step.name == *across))
        };
        let known = spec.all_probes().filter(|(_, probe)| is_open(probe));
        let known: HashSet<String> = known.map(|(name, _)| name.clone()).collect();
        // Only the expected verdicts of probes matter, because they determine the maximum wait.
        if let Some(row) = spec.expect.get_mut(case.row) {
            row.expected = Expected {
                probes: std::mem::take(&mut row.expected.probes),
                ..Expected::default()
            };
            row.expected.probes.retain(|name, _| known.contains(name));
            row.claims.clear();
        }
        let prepared = prepare(self.lab, &case, self.options(side.path()));
        let mut prepared = prepared.map_err(|wrong| first_message(&wrong))?;
        let nodes = prepared.cluster.nodes.iter();
        let proxied = nodes.filter(|node| node.kube_proxy.is_some());
        let names: Vec<String> = proxied.map(|node| node.name.clone()).collect();
        prepared.plan.evidence = EvidenceRequest {
            rules: names.clone(),
            sets: names.clone(),
            ipvs: names,
            // Cases with steps request all evidence, because the time of traffic shifts is
            // reported.
            ..std::mem::take(&mut prepared.plan.evidence)
        };
        Ok(prepared)
    }
}

/// Sets the kube-proxy version on all nodes, and removes programs of the lab and their arguments.
/// `random_fully` depends on the node's iptables, so that it is the same for both sides.
fn set_version(spec: &mut LabSpec, version: Version) {
    let node_proxies = spec.nodes.values_mut();
    let node_proxies = node_proxies.filter_map(|node| node.kube_proxy.as_mut());
    for proxy in spec.kube_proxy.iter_mut().chain(node_proxies) {
        proxy.version = version;
        proxy.random_fully = true;
        proxy.binary = None;
        proxy.args = Vec::new();
    }
}

fn first_message(diagnostics: &[Diagnostic]) -> String {
    let first = diagnostics.first();
    first.map_or_else(String::new, |first| first.message.clone())
}

impl CasePair {
    /// Returns the case without its steps.
    pub(super) fn without_steps(&self) -> Self {
        let without = |prepared: &Prepared| {
            let mut prepared = prepared.clone();
            prepared.plan.truncate_stages(1);
            prepared.later_stages.clear();
            prepared.case.steps.clear();
            Arc::make_mut(&mut prepared.case.spec).steps.clear();
            prepared
        };
        Self {
            against: without(&self.against),
            new: without(&self.new),
        }
    }
}

/// Returns the text of a plan without its name and evidence request, for comparison.
fn comparison_key(plan: &Plan) -> String {
    let plan = Plan {
        case: String::new(),
        evidence: EvidenceRequest::default(),
        ..plan.clone()
    };
    // A plan is plain data. If it could not be serialized, no other plan would be equal.
    serde_json::to_string(&plan).unwrap_or_else(|error| error.to_string())
}
