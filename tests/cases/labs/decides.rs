//! Tests that every rule that an explanation names decides: without the rule in an otherwise equal
//! plan, the connection has another fate. `svclab why` confirms causes in the same way.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::{Failed, Trial};
use svclab_judge::{Cause, Fact, KeptSourceReason, RuleReference};
use svclab_model::evidence::Evidence;
use svclab_model::plan::{EvidenceRequest, Iptables, Plan};
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables::script::{IptablesScript, Table};
use svclab_ruleset::iptables::{IptablesRules, Rule};
use svclab_runner::run::Prepared;
use svclab_test_support::ordinary_or_full;

use super::guests;

/// An ordinary run tests one of this many cases; the full run tests all.
const CASE_STEP: usize = 6;

/// Fate of the failing connections of a probe: the facts about their packets, without what differs
/// between connections.
type Fate = BTreeSet<String>;

/// Returns one trial for each case with probes that the lab expects to fail.
pub fn trials(cases: &[Prepared]) -> Vec<Trial> {
    let failing = cases.iter().filter(|prepared| has_failing_probes(prepared));
    let tested = failing.step_by(ordinary_or_full(CASE_STEP, 1));
    tested
        .map(|prepared| {
            let prepared = prepared.clone();
            let name = format!("decides/{}", prepared.case.id);
            Trial::test(name, move || check_case(&prepared))
        })
        .collect()
}

fn has_failing_probes(prepared: &Prepared) -> bool {
    let expected = prepared.case.expected().expected.probes.values();
    expected
        .flat_map(svclab_scenario::expectation::ProbeExpectation::verdicts)
        .any(|(verdict, count)| {
            let is_failure = !["connected", "answered"].contains(&verdict);
            is_failure && count.is_some_and(|count| !count.contains(0))
        })
}

/// Asserts for each rule that explains a failing connection that the connection has another fate
/// without the rule.
fn check_case(prepared: &Prepared) -> Result<(), Failed> {
    let mut watched = prepared.clone();
    watched.plan.truncate_stages(1);
    watched.plan.evidence = EvidenceRequest::everything(&watched.plan);
    let before = explain(&watched)?;
    let mut checked = BTreeSet::new();
    for (probe, facts) in &before {
        for (namespace, rule) in facts.iter().flat_map(deciding_rules) {
            let is_new = checked.insert(format!("{probe} {namespace} {rule:?}"));
            let mut changed = watched.clone();
            if !is_new || !remove_rule(&mut changed.plan, namespace, rule) {
                continue;
            }
            let after = explain(&changed)?;
            let fate = |facts: &BTreeMap<String, Vec<Fact>>| -> Fate {
                facts
                    .get(probe)
                    .into_iter()
                    .flatten()
                    .filter_map(render_fate)
                    .collect()
            };
            if fate(&after).is_superset(&fate(&before)) {
                let text = format!("{probe}: without {rule:?} of {namespace}: {after:#?}");
                return Err(text.into());
            }
        }
    }
    Ok(())
}

/// Runs a case and returns the facts about the failing connections of each probe.
fn explain(prepared: &Prepared) -> Result<BTreeMap<String, Vec<Fact>>, Failed> {
    let evidence: Evidence = guests::run(prepared)?;
    let mut facts: BTreeMap<String, Vec<Fact>> = BTreeMap::new();
    let journeys = prepared.journeys(&evidence);
    for (journeys, explainer) in journeys.iter().zip(prepared.explainers(&evidence, [])) {
        for journey in journeys.iter().filter(|own| !own.verdict.is_success()) {
            let own = facts.entry(journey.probe.clone()).or_default();
            own.extend(explainer.conclude(journey));
        }
    }
    Ok(facts)
}

/// Returns the rules that a fact names as the reason, with their namespace.
fn deciding_rules(fact: &Fact) -> Vec<(&str, &RuleReference)> {
    match fact {
        Fact::Lost {
            namespace,
            cause: Cause::Rule { rule, .. },
            ..
        } => vec![(namespace, rule)],
        Fact::KeptSource {
            namespace,
            reason: KeptSourceReason::Returned { rules },
            ..
        } => rules.iter().map(|rule| (&**namespace, rule)).collect(),
        _ => Vec::new(),
    }
}

/// Renders the fate that a fact states. `None` for facts that only explain the fate.
fn render_fate(fact: &Fact) -> Option<String> {
    match fact {
        Fact::Lost {
            packet,
            namespace,
            cause,
            ..
        } => {
            let cause = match cause {
                Cause::Rule { rule, .. } => {
                    format!("{} {} {:?}", rule.table, rule.chain, rule.rule)
                }
                Cause::Kernel { reason, .. } => reason.clone(),
                Cause::Counter { counter, .. } => counter.clone(),
                Cause::NotReceived { interface, .. } => format!("{interface:?}"),
                Cause::Waiting { .. } | Cause::Unknown { .. } => String::new(),
            };
            Some(format!("{packet:?} lost in {namespace}: {cause}"))
        }
        Fact::Rejected {
            packet,
            namespace,
            rejection,
            ..
        } => Some(format!("{packet:?} rejected in {namespace}: {rejection:?}")),
        Fact::Misdelivered {
            packet, namespace, ..
        } => Some(format!("{packet:?} misdelivered to {namespace}")),
        Fact::UnexpectedAddresses {
            packet,
            namespace,
            bypassed,
            ..
        } => Some(format!("{packet:?} at {namespace}, past {bypassed:?}")),
        Fact::NoReply => Some("no reply".to_owned()),
        _ => None,
    }
}

/// Removes a rule of iptables from a plan. Returns whether the plan has the rule.
fn remove_rule(plan: &mut Plan, namespace: &str, rule: &RuleReference) -> bool {
    let mut namespaces = plan.namespaces.iter_mut();
    let Some(namespace) = namespaces.find(|own| own.name == namespace) else {
        return false;
    };
    let inputs = namespace
        .iptables
        .iter_mut()
        .chain(&mut namespace.other_iptables);
    let mut inputs = inputs.filter(|input| input.backend == rule.backend);
    inputs.any(|input| remove_from_input(input, rule).unwrap_or(false))
}

fn remove_from_input(input: &mut Iptables, reference: &RuleReference) -> Option<bool> {
    let wanted = Rule::from_words(reference.rule.as_ref()?.as_str()).ok()?;
    let wanted = wanted.canonical_text();
    let table = Table::from_name(&reference.table)?;
    let mut rules = IptablesRules::from_script(input.v4.state().ok()?).ok()?;
    let tables = rules.tables.iter_mut().filter(|own| own.table == table);
    let chains = tables.flat_map(|table| &mut table.chains);
    let mut is_removed = false;
    for chain in chains.filter(|chain| chain.name == reference.chain) {
        let count = chain.rules.len();
        chain.rules.retain(|rule| rule.canonical_text() != wanted);
        is_removed |= chain.rules.len() != count;
    }
    input.v4 = Input::new(IptablesScript::from(&rules));
    Some(is_removed)
}
