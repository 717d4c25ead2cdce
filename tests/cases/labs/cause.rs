//! Tests that every timeout has a single cause: with the cause undone in an otherwise equal plan,
//! the probe connects.

use libtest_mimic::{Failed, Trial};
use svclab_model::evidence::Verdict;
use svclab_model::plan::{Namespace, Plan, VirtualServer};
use svclab_ruleset::input::Input;
use svclab_ruleset::iptables;
use svclab_ruleset::nft::Table;
use svclab_runner::kernel::{Agent, KernelError};
use svclab_runner::run::Prepared;
use svclab_test_support::causes::{Undo, find_cause};
use svclab_test_support::ordinary_or_full;

use super::guests;

/// An ordinary run tries one of this many causes in guests, which are slower; the full run tries
/// all.
const GUEST_TRIAL_STEP: usize = 4;

/// Returns one trial for each cause of each case, and a trial that every probe with a timeout has a
/// cause.
pub fn trials(cases: &[Prepared]) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut probes_without_cause = Vec::new();
    let every_of_a_guest = ordinary_or_full(GUEST_TRIAL_STEP, 1);
    let mut considered = 0;
    for prepared in cases {
        for probe in timed_out_probes(prepared) {
            let cause = find_cause(&prepared.case.id, &probe);
            let remedies = cause.map_or(&[][..], |cause| cause.remedies);
            if remedies.is_empty() {
                probes_without_cause.push(format!("{}: {probe}", prepared.case.id));
            }
            for remedy in remedies {
                considered += 1;
                if guests::needs_guest(&prepared.plan) && considered % every_of_a_guest != 0 {
                    continue;
                }
                let (prepared, probe) = (prepared.clone(), probe.clone());
                let name = format!("cause/{}: {probe}: {}", prepared.case.id, describe(remedy));
                trials.push(Trial::test(name, move || {
                    check_cause(&prepared, &probe, remedy)
                }));
            }
        }
    }
    trials.push(Trial::test("cause/every timeout", move || {
        if probes_without_cause.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "these probes have no cause:\n{}",
                probes_without_cause.join("\n")
            )
            .into())
        }
    }));
    trials
}

/// Returns the probes for which a case expects timeouts. Excludes probes after steps: there the
/// step is the cause, and the lab states the result of the same probe before.
fn timed_out_probes(prepared: &Prepared) -> Vec<String> {
    let probes = &prepared.case.expected().expected.probes;
    probes
        .iter()
        .filter(|(name, _)| prepared.case.spec.probes.contains_key(*name))
        .filter(|(_, expected)| expected.timeout.is_some_and(|count| !count.contains(0)))
        .map(|(name, _)| name.clone())
        .collect()
}

fn describe(remedy: &[Undo]) -> String {
    let changes: Vec<String> = remedy.iter().map(|undo| undo.describe()).collect();
    changes.join("; ")
}

/// Applies the change to a plan.
fn apply(undo: Undo, plan: &mut Plan) -> Result<(), Failed> {
    match undo {
        Undo::WithSysctl {
            namespaces,
            key,
            value,
        } => {
            for name in namespaces {
                let setting = find_namespace(plan, name)?
                    .sysctls
                    .iter_mut()
                    .find(|setting| setting.key == key && setting.value != value)
                    .ok_or(format!("{name} has no {key} other than {value}"))?;
                value.clone_into(&mut setting.value);
            }
            Ok(())
        }
        Undo::WithoutLine { namespace, line } => {
            replace_line(find_namespace(plan, namespace)?, line, None)
        }
        Undo::WithLine {
            namespace,
            table,
            line,
        } => append_line(find_namespace(plan, namespace)?, table, line),
        Undo::WithoutEntry {
            namespace,
            set,
            key,
        } => change_kube_proxy_table(find_namespace(plan, namespace)?, |table| {
            let mut sets = table.sets.iter_mut();
            let Some(set) = sets.find(|known| known.name == set) else {
                return false;
            };
            let before = set.elements.len();
            set.elements.retain(|element| element.key != key);
            set.elements.len() + 1 == before
        }),
        Undo::WithRule {
            namespace,
            chain,
            rule,
        } => change_kube_proxy_table(find_namespace(plan, namespace)?, |table| {
            let mut chains = table.chains.iter_mut();
            let found = chains.find(|known| known.name == chain);
            found.map(|chain| chain.push_rule(rule)).is_some()
        }),
        Undo::WithoutBackend { namespace, to } => {
            let servers = &mut find_namespace(plan, namespace)?.ipvs;
            let count = |servers: &[VirtualServer]| -> usize {
                servers.iter().map(|server| server.servers.len()).sum()
            };
            let before = count(servers);
            for server in servers.iter_mut() {
                server.servers.retain(|real| real.address.to_string() != to);
            }
            if count(servers) == before {
                return Err(format!("{namespace} has no backend {to}").into());
            }
            Ok(())
        }
        Undo::WithoutWords {
            namespace,
            line,
            words,
        } => replace_line(
            find_namespace(plan, namespace)?,
            line,
            Some(&line.replacen(words, "", 1)),
        ),
    }
}

/// Changes kube-proxy's own IPv4 table.
fn change_kube_proxy_table(
    namespace: &mut Namespace,
    change: impl FnOnce(&mut Table) -> bool,
) -> Result<(), Failed> {
    let mut ruleset = namespace.nft.state()?.clone();
    let table = ruleset
        .tables
        .first_mut()
        .ok_or("the namespace has no nftables table")?;
    if !change(table) {
        return Err(format!("nothing to change in\n{table}").into());
    }
    namespace.nft = ruleset.into();
    Ok(())
}

fn find_namespace<'a>(plan: &'a mut Plan, name: &str) -> Result<&'a mut Namespace, Failed> {
    let mut namespaces = plan.namespaces.iter_mut();
    let found = namespaces.find(|namespace| namespace.name == name);
    Ok(found.ok_or(format!("the plan has no {name}"))?)
}

/// Replaces or removes the only line that equals `line`.
fn replace_line(
    namespace: &mut Namespace,
    line: &str,
    replacement: Option<&str>,
) -> Result<(), Failed> {
    let rules = namespace.iptables.as_mut().map(|rules| &mut rules.v4);
    let rules = rules.ok_or("the namespace has no iptables rules")?;
    let lines = rules.text().lines();
    let (matching, rest): (Vec<&str>, Vec<&str>) = lines.partition(|rule| *rule == line);
    if matching.len() != 1 || replacement == Some(line) {
        return Err(format!(
            "{} lines are `{line}`:\n{}",
            matching.len(),
            rest.join("\n")
        )
        .into());
    }
    let lines = rules.text().lines();
    let lines = lines.filter_map(|own| if own == line { replacement } else { Some(own) });
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    *rules = Input::from_text(text);
    Ok(())
}

/// Appends a command to a table.
fn append_line(namespace: &mut Namespace, table: &str, line: &str) -> Result<(), Failed> {
    let rules = namespace.iptables.as_mut().map(|rules| &mut rules.v4);
    let rules = rules.ok_or("the namespace has no iptables rules")?;
    rules
        .edit(|script| script.add_line(&mut iptables::script::Table::from_name(table), line))??;
    Ok(())
}

/// Asserts that the probe times out in the original plan, and connects in the changed one.
fn check_cause(prepared: &Prepared, probe_name: &str, remedy: &[Undo]) -> Result<(), Failed> {
    let mut plan = prepared.plan.clone();
    plan.stages[0]
        .probes
        .retain(|probe| probe.name == probe_name);
    let mut changed = plan.clone();
    for undo in remedy {
        apply(*undo, &mut changed)?;
    }
    let (original, undone) = guests::with_agent_for(&prepared.plan, async |agent| {
        futures_util::future::try_join(verdicts(&agent, plan), verdicts(&agent, changed)).await
    })?;
    let expected = &prepared.case.expected().expected.probes[probe_name];
    let timeouts = original
        .iter()
        .filter(|verdict| **verdict == Verdict::Timeout)
        .count();
    let timeouts = u32::try_from(timeouts)?;
    if !expected
        .timeout
        .is_some_and(|count| count.contains(timeouts))
        || timeouts == 0
    {
        return Err(format!("unchanged case: {original:?}").into());
    }
    if undone.len() != original.len() || undone.iter().any(|v| *v != Verdict::Connected) {
        return Err(format!("with {}: {undone:?}", describe(remedy)).into());
    }
    Ok(())
}

async fn verdicts(agent: &Agent, plan: Plan) -> Result<Vec<Verdict>, KernelError> {
    let evidence = agent.build(plan).await?.probe().await?;
    Ok(evidence.attempts().map(|attempt| attempt.verdict).collect())
}
