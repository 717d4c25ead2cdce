//! Every case twice: with what is compared, and with what it is compared against.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::side::{Program, Side};
use crate::plan::{Patience, Plan, Watch};
use crate::rules::kube_proxy::{KubeProxy, Mode, Version};
use crate::run::{Chosen, Prepared, Wishes, prepare};
use crate::scenario::expectation::Expected;
use crate::scenario::lab::LabSpec;
use crate::scenario::{Case, Diagnostic};
use crate::verify::NotCompared;

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
    /// Those left out.
    pub not_compared: Vec<NotCompared>,
}

/// Prepares the chosen cases with both sides; those of other modes than `modes` are
/// none of its business, if any is given. Versions that cases speak of give way to the
/// sides', and of cases that are the same then, the first is compared.
#[must_use]
pub fn pairs(labs: &[Chosen], against: &Side, new: &Program, modes: &[Mode]) -> Pairs {
    let mut found = Pairs::default();
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut seen = HashSet::new();
    let new = Side::Program(new.clone());
    for lab in labs {
        for case in lab.cases.iter().map(|at| &lab.scenario.cases()[*at]) {
            let mut not = |because: String| {
                reasons.entry(because).or_default().push(case.id.clone());
            };
            let run: Vec<Mode> = proxies(&case.spec).map(|proxy| proxy.mode).collect();
            if run.is_empty() {
                not("no node has a kube-proxy".to_owned());
                continue;
            }
            if !modes.is_empty() && !run.iter().all(|mode| modes.contains(mode)) {
                continue;
            }
            let both =
                with(lab, case, against).and_then(|against| Ok((against, with(lab, case, &new)?)));
            match both {
                Ok((against, new)) => {
                    if seen.insert(essence(&against.plan)) {
                        found.pairs.push(Pair { against, new });
                    }
                }
                Err(because) => not(because),
            }
        }
    }
    found.not_compared = reasons
        .into_iter()
        .map(|(because, cases)| NotCompared { cases, because })
        .collect();
    found
}

fn proxies(spec: &LabSpec) -> impl Iterator<Item = &KubeProxy> {
    let own = spec
        .nodes
        .values()
        .filter_map(|node| node.kube_proxy.as_ref());
    spec.kube_proxy.iter().chain(own)
}

/// A case with one side on its nodes; its rules are read back.
fn with(lab: &Chosen, case: &Case, side: &Side) -> Result<Prepared, String> {
    let mut case = case.clone();
    // What it is before its steps is compared.
    case.steps.clear();
    let spec = Arc::make_mut(&mut case.spec);
    spec.steps.clear();
    let own = spec.nodes.values_mut();
    let own = own.filter_map(|node| node.kube_proxy.as_mut());
    for proxy in spec.kube_proxy.iter_mut().chain(own) {
        as_of(proxy, side.version());
    }
    // Of what is expected only the probes' verdicts matter: they say what is waited for.
    if let Some(row) = spec.expect.get_mut(case.row) {
        row.expected = Expected {
            probes: std::mem::take(&mut row.expected.probes),
            ..Expected::default()
        };
        row.claims.clear();
    }
    let wishes = Wishes {
        kube_proxy: side.path().map(ToOwned::to_owned),
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
        ..Watch::default()
    };
    Ok(prepared)
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
