//! Every case twice: with what is compared, and with what it is compared against.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::draws::proxies;
use super::side::Side;
use crate::verify::{Failed, NotCompared, SideOf};
use svclab_diagnostic::Diagnostic;
use svclab_model::plan::{Patience, Plan, Watch};
use svclab_rules::kube_proxy::{KubeProxy, Mode, Version};
use svclab_runner::run::{Chosen, Prepared, Wishes, prepare, prepare_or_tell};
use svclab_scenario::Case;
use svclab_scenario::expectation::Expected;
use svclab_scenario::lab::{LabSpec, Probe};

/// A case with both.
#[derive(Debug, Clone)]
pub struct Pair {
    /// With what is compared against.
    pub against: Prepared,
    /// With what is compared.
    pub new: Prepared,
}

/// All that is compared, and what is not.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// The cases, each with both.
    pub pairs: Vec<Pair>,
    /// Those that the sides cannot run, and those whose steps they cannot make.
    pub not_compared: Vec<NotCompared>,
    /// Those that are wrong whatever runs on their nodes.
    pub failed: Vec<Failed>,
}

/// Prepares the chosen cases with both sides; those of other modes than `modes` are
/// none of its business, if any is given. Versions that cases speak of give way to the
/// sides', and of cases that are the same then, the first is compared. Where one of the
/// sides cannot make a step, what comes before it is compared. A case that cannot be run
/// as its lab says has failed.
#[must_use]
pub fn pairs(
    labs: &[Chosen],
    against: &Side,
    new: &Side,
    modes: &[Mode],
    allow_outside: bool,
) -> Pairs {
    let mut found = Pairs::default();
    let mut reasons: BTreeMap<(String, Option<String>), Vec<String>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for lab in labs {
        for case in lab.cases.iter().map(|at| &lab.scenario.cases()[*at]) {
            let mut not = |because: String, from_step: Option<String>| {
                let cases = reasons.entry((because, from_step)).or_default();
                cases.push(case.id.clone());
            };
            let run: Vec<Mode> = proxies(&case.spec).map(|proxy| proxy.mode).collect();
            if run.is_empty() {
                not("no node has a kube-proxy".to_owned(), None);
                continue;
            }
            if !modes.is_empty() && !run.iter().all(|mode| modes.contains(mode)) {
                continue;
            }
            let (pair, wrong) = longest(lab, case, [against, new], allow_outside);
            if let Some((because, from_step)) = wrong {
                match as_written(lab, case, [against, new], allow_outside) {
                    None => not(because, from_step),
                    Some(failed) => found.failed.push(failed),
                }
            }
            let pair = pair.filter(|pair| seen.insert(essence(&pair.against.plan)));
            found.pairs.extend(pair);
        }
    }
    found.not_compared = reasons
        .into_iter()
        .map(|((because, from_step), cases)| NotCompared {
            cases,
            from_step,
            because,
        })
        .collect();
    found
}

/// Why something is not compared, and from which step on.
type Wrong = (String, Option<String>);

/// What is wrong with a case as its lab says it, with the rules that svclab generates and
/// with each program; `None` where it can be run with one of those.
fn as_written(lab: &Chosen, case: &Case, sides: [&Side; 2], allow_outside: bool) -> Option<Failed> {
    let prepared = |kube_proxy: Option<&Path>| {
        let wishes = Wishes {
            kube_proxy: kube_proxy.map(ToOwned::to_owned),
            allow_outside,
            ..Wishes::from(Patience::SETTLED)
        };
        prepare_or_tell(lab, case, wishes).err()
    };
    let wrong = prepared(None)?;
    for path in sides.into_iter().filter_map(Side::path) {
        prepared(Some(path))?;
    }
    Some(Failed {
        case: case.id.clone(),
        side: SideOf::New,
        error: wrong.result.error?,
    })
}

/// A case with both sides and as many of its steps as both can make.
fn longest(
    lab: &Chosen,
    case: &Case,
    sides: [&Side; 2],
    allow_outside: bool,
) -> (Option<Pair>, Option<Wrong>) {
    let mut wrong = None;
    for steps in (0..=case.steps.len()).rev() {
        let [against, new] = sides.map(|side| with(lab, case, side, steps, allow_outside));
        let both = against.and_then(|against| Ok((against, new?)));
        match both {
            Ok((against, new)) => return (Some(Pair { against, new }), wrong),
            Err(because) => {
                let last = steps.checked_sub(1).and_then(|last| case.steps.get(last));
                wrong = Some((because, last.map(|step| step.name.clone())));
            }
        }
    }
    (None, wrong)
}

/// A case up to one of its steps, with one side on its nodes; its rules are read back.
fn with(
    lab: &Chosen,
    case: &Case,
    side: &Side,
    steps: usize,
    allow_outside: bool,
) -> Result<Prepared, String> {
    let mut case = case.clone();
    case.steps.truncate(steps);
    for step in &mut case.steps {
        let spec = Arc::make_mut(&mut step.spec);
        spec.steps.truncate(steps);
        run_by(spec, side.version());
    }
    let spec = Arc::make_mut(&mut case.spec);
    spec.steps.truncate(steps);
    run_by(spec, side.version());
    // What is of other steps may speak of what there is only then.
    let is_open = |probe: &Probe| {
        let across = probe.across.as_ref();
        across.is_none_or(|across| spec.steps.iter().any(|step| step.name == *across))
    };
    let known: HashSet<String> = spec
        .all_probes()
        .filter(|(_, probe)| is_open(probe))
        .map(|(name, _)| name.clone())
        .collect();
    // Of what is expected only the probes' verdicts matter: they say what is waited for.
    if let Some(row) = spec.expect.get_mut(case.row) {
        row.expected = Expected {
            probes: std::mem::take(&mut row.expected.probes),
            ..Expected::default()
        };
        row.expected.probes.retain(|name, _| known.contains(name));
        row.claims.clear();
    }
    let wishes = Wishes {
        kube_proxy: side.path().map(ToOwned::to_owned),
        allow_outside,
        ..Wishes::from(Patience::SETTLED)
    };
    let mut prepared = prepare(lab, &case, wishes).map_err(|wrong| first(&wrong))?;
    let nodes = prepared.cluster.nodes.iter();
    let proxied = nodes.filter(|node| node.kube_proxy.is_some());
    let names: Vec<String> = proxied.map(|node| node.name.clone()).collect();
    prepared.plan.watch = Watch {
        rules: names.clone(),
        sets: names.clone(),
        ipvs: names,
        // Where there are steps, all: when traffic moves is told.
        ..std::mem::take(&mut prepared.plan.watch)
    };
    Ok(prepared)
}

/// Has a version on all nodes.
fn run_by(spec: &mut LabSpec, version: Version) {
    let own = spec.nodes.values_mut();
    let own = own.filter_map(|node| node.kube_proxy.as_mut());
    for proxy in spec.kube_proxy.iter_mut().chain(own) {
        as_of(proxy, version);
    }
}

/// A lab's own program gives way, too, and what it is told besides. What a program finds
/// out of the node's iptables is so for both.
fn as_of(proxy: &mut KubeProxy, version: Version) {
    proxy.version = version;
    proxy.random_fully = true;
    proxy.binary = None;
    proxy.args = Vec::new();
}

fn first(wrong: &[Diagnostic]) -> String {
    wrong
        .iter()
        .map(|diagnostic| diagnostic.message.clone())
        .next()
        .unwrap_or_default()
}

impl Pair {
    /// What comes before the steps.
    #[must_use]
    pub(super) fn without_steps(&self) -> Self {
        let without = |prepared: &Prepared| {
            let mut prepared = prepared.clone();
            prepared.plan.steps.clear();
            prepared.steps.clear();
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

/// What is built and tried, whatever it is called and whatever is expected.
fn essence(plan: &Plan) -> String {
    let plan = Plan {
        case: String::new(),
        watch: Watch::default(),
        ..plan.clone()
    };
    // A plan is plain data, which can be written; what could not would be one of a kind.
    serde_json::to_string(&plan).unwrap_or_else(|error| error.to_string())
}
