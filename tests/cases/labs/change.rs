//! Tests changes of a running lab into another case: the result equals a new lab of that case, and
//! its probes give the same verdicts.

use std::collections::BTreeMap;

use libtest_mimic::{Failed, Trial};
use svclab_model::evidence::{Evidence, LinkState};
use svclab_model::plan::{Delta, EvidenceRequest, Plan, Stage};
use svclab_ruleset::nft;
use svclab_ruleset::nft::Table;
use svclab_runner::kernel::{KernelError, Session};
use svclab_runner::run::Prepared;
use svclab_test_support::ordinary_or_full;

use super::guests;

/// An ordinary run tries one of this many cases on the host; the full run tries all.
const HOST_CASE_STEP: usize = 3;

/// An ordinary run tries one of this many cases in guests, which are slower.
const GUEST_CASE_STEP: usize = 8;

/// Returns one trial for each case. The trial changes the previous case of the lab into this one,
/// or checks the error if no change is possible.
pub fn trials(cases: &[Prepared]) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut checked = 0;
    for (index, (from, to)) in cases.iter().zip(cases.iter().cycle().skip(1)).enumerate() {
        let ordinary = if guests::needs_guest(&to.plan) {
            GUEST_CASE_STEP
        } else {
            HOST_CASE_STEP
        };
        let every = ordinary_or_full(ordinary, 1);
        if from.case.lab != to.case.lab || index % every != 0 {
            continue;
        }
        if to.plan.stages.len() > 1 {
            trials.extend(steps(to));
            continue;
        }
        match svclab_planner::delta::diff(&from.plan, &to.plan) {
            Ok(delta) => {
                checked += 1;
                let (from, to) = (from.plan.clone(), to.clone());
                let name = format!("change/into {}", to.case.id);
                trials.push(Trial::test(name, move || check_change(&from, &to, &delta)));
            }
            Err(rebuild) => {
                let name = format!("change/into {}: rebuilt, because {rebuild}", to.case.id);
                let known = [
                    "the list of interfaces of",
                    "the list of namespaces changes",
                    "creation parameters of",
                ];
                let expected = known.iter().any(|why| name.contains(why));
                trials.push(Trial::test(name, move || {
                    if expected {
                        Ok(())
                    } else {
                        Err("a delta should exist".into())
                    }
                }));
            }
        }
    }
    assert!(checked > 10, "only {checked} cases are reached by a delta");
    trials
}

/// Returns one trial for each step of a case. A lab after the step must equal a lab that is built
/// in the state after the step.
fn steps(prepared: &Prepared) -> Vec<Trial> {
    let bare = |plan: &Plan| Plan {
        stages: vec![Stage::default()],
        evidence: EvidenceRequest::default(),
        ..plan.clone()
    };
    let states: Vec<Plan> = prepared.stages().map(|stage| bare(stage.plan)).collect();
    let mut trials = Vec::new();
    for (pair, step) in states.windows(2).zip(prepared.plan.steps()) {
        let (from, to) = (pair[0].clone(), pair[1].clone());
        let delta = step.delta.clone();
        let name = format!("change/{} at step {}", prepared.case.id, step.name);
        trials.push(Trial::test(name, move || {
            let (changed, built) = guests::with_agent_for(&to, async |agent| {
                let mut standing = agent.build_changeable(with_state_evidence(&from)).await?;
                let wanted = with_state_evidence(&to);
                let delta = Delta {
                    evidence: Some(wanted.evidence.clone()),
                    ..delta
                };
                standing.change(delta).await?;
                standing.reset_connections().await?;
                let (changed, _) = read_state(&mut standing, &to).await?;
                drop(standing);
                let mut fresh = agent.build(wanted).await?;
                let (built, _) = read_state(&mut fresh, &to).await?;
                Ok((changed, built))
            })?;
            if changed == built {
                Ok(())
            } else {
                Err(differences(&changed, &built).into())
            }
        }));
    }
    trials
}

/// All state that can be read back from a lab.
#[derive(Debug, PartialEq)]
struct State {
    /// Chains with their rules, without counters, by namespace and IP version.
    rules: BTreeMap<(String, u8), BTreeMap<String, Vec<String>>>,
    /// Sets with their members, by namespace.
    sets: BTreeMap<String, Vec<String>>,
    /// Tables of nftables itself, with sorted entries, by namespace and name.
    tables: BTreeMap<(String, String), Table>,
    ipvs: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
    /// Lines of each file or command, by namespace and query.
    texts: BTreeMap<(String, &'static str), Vec<String>>,
}

/// Queries that run in each namespace on the host, which has the programs.
const QUERIES: [(&str, &[&str]); 4] = [
    ("addresses", &["ip", "-o", "address"]),
    ("routes", &["ip", "route", "show", "table", "all"]),
    ("neighbours", &["ip", "neighbour"]),
    (
        "settings",
        &[
            "grep",
            "-r",
            "",
            "/proc/sys/net/ipv4/conf",
            "/proc/sys/net/ipv4/ip_forward",
        ],
    ),
];

fn check_change(from: &Plan, to: &Prepared, delta: &Delta) -> Result<(), Failed> {
    let (changed, built) = guests::with_agent_for(&to.plan, async |agent| {
        let mut session = agent.build_changeable(with_state_evidence(from)).await?;
        // The probes leave conntrack entries and counters behind, which must not matter.
        session.probe().await?;
        let mut delta = delta.clone();
        let wanted = with_state_evidence(&to.plan);
        delta.evidence = Some(wanted.evidence.clone());
        session.change(delta).await?;
        session.reset_connections().await?;
        let changed = read_state(&mut session, &to.plan).await?;
        drop(session);
        let mut new_session = agent.build(wanted).await?;
        let built = read_state(&mut new_session, &to.plan).await?;
        Ok((changed, built))
    })?;
    if changed.0 != built.0 {
        return Err(differences(&changed.0, &built.0).into());
    }
    let judge = to.judge().map_err(|problems| format!("{problems:?}"))?;
    let judgement = judge.judge(&changed.1);
    if judgement.holds() {
        Ok(())
    } else {
        Err(format!("{judgement:#?}").into())
    }
}

/// Adds full state evidence to the plan.
fn with_state_evidence(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    let names: Vec<String> = plan.namespaces.iter().map(|ns| ns.name.clone()).collect();
    plan.evidence.rules.clone_from(&names);
    plan.evidence.sets.clone_from(&names);
    plan.evidence.ipvs.clone_from(&names);
    plan.evidence.links = names;
    plan
}

async fn read_state(session: &mut Session, plan: &Plan) -> Result<(State, Evidence), KernelError> {
    let mut texts = BTreeMap::new();
    if !guests::needs_guest(plan) {
        for namespace in &plan.namespaces {
            for (query, command) in QUERIES {
                let finished = session
                    .run(&namespace.name, command[0], &command[1..], "")
                    .await?;
                let mut lines: Vec<String> =
                    finished.stdout.lines().map(without_varying_words).collect();
                assert!(
                    !lines.is_empty() || query == "neighbours",
                    "{query}: {finished:?}"
                );
                lines.sort();
                texts.insert((namespace.name.clone(), query), lines);
            }
        }
    }
    let evidence = session.probe().await?;
    let seen = &evidence.stages[0];
    let rules = seen.rules.iter().map(|saved| {
        let key = (saved.namespace.clone(), saved.ip_version);
        (key, parse_chains(&saved.text))
    });
    let held = &seen.kernel_state;
    let state = State {
        rules: rules.collect(),
        sets: held
            .iter()
            .map(|(name, held)| (name.clone(), sorted_sets(&held.sets)))
            .collect(),
        tables: held
            .iter()
            .flat_map(|(name, held)| nftables_tables(name, &held.nft))
            .collect(),
        ipvs: held
            .iter()
            .map(|(name, held)| {
                (
                    name.clone(),
                    sorted_virtual_servers(&format!("{:?}", held.ipvs)),
                )
            })
            .collect(),
        links: held
            .iter()
            .map(|(name, held)| (name.clone(), links(&held.links)))
            .collect(),
        texts,
    };
    Ok((state, evidence))
}

/// Removes time-dependent words: the kernel reports a missing carrier with a delay.
fn without_varying_words(line: &str) -> String {
    line.split_whitespace()
        .filter(|word| !["REACHABLE", "STALE", "DELAY", "PERMANENT", "linkdown"].contains(word))
        .collect::<Vec<_>>()
        .join(" ")
}

fn parse_chains(saved: &str) -> BTreeMap<String, Vec<String>> {
    let mut chains: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut table = "";
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(declared) = line.strip_prefix(':') {
            let mut words = declared.split_whitespace();
            let name = words.next().expect("a chain has a name");
            let policy = words.next().expect("a chain has a policy");
            chains
                .entry(format!("{table} {name} {policy}"))
                .or_default();
        } else if let Some((_, rule)) = line.split_once("] -A ") {
            let (chain, rule) = rule.split_once(' ').expect("a rule has a chain");
            let mut found = chains.iter_mut();
            let key = format!("{table} {chain} ");
            let found = found.find(|(name, _)| name.starts_with(&key));
            found.expect("chains are declared").1.push(rule.to_owned());
        }
    }
    // An emptied table is printed; a table that never had rules is not.
    chains.retain(|name, rules| !name.ends_with(" ACCEPT") || !rules.is_empty());
    chains
}

fn sorted_sets(saved: &str) -> Vec<String> {
    let mut lines: Vec<String> = saved
        .lines()
        .map(|line| line.split(" initval ").next().unwrap_or(line).to_owned())
        .collect();
    lines.sort();
    lines
}

/// Returns the tables of nftables itself, which no iptables manages.
fn nftables_tables(namespace: &str, listed: &str) -> Vec<((String, String), Table)> {
    let listed_tables = nft::tables(listed).filter(|(name, _)| name.ends_with(" kube-proxy"));
    listed_tables
        .map(|(name, text)| {
            let mut ruleset = nft::parse(text).expect("nft lists what can be read");
            let mut table = ruleset.tables.remove(0);
            // Elements have hash order, and their line numbers depend on it.
            for set in &mut table.sets {
                set.line = 0;
                set.elements
                    .sort_by(|first, second| first.key.cmp(&second.key));
                set.elements.iter_mut().for_each(|element| element.line = 0);
            }
            table.line = 0;
            // Only chains with a hook are called in the order in which they were created.
            table
                .sets
                .sort_by(|first, second| first.name.cmp(&second.name));
            table.chains.sort_by_cached_key(|chain| {
                let regular = chain.hook.is_none().then(|| chain.name.clone());
                (regular.is_some(), regular)
            });
            for chain in &mut table.chains {
                chain.line = 0;
                chain.rules.iter_mut().for_each(|rule| rule.line = 0);
            }
            ((namespace.to_owned(), name.to_owned()), table)
        })
        .collect()
}

/// Sorts the virtual servers, whose order has no meaning.
fn sorted_virtual_servers(text: &str) -> String {
    let mut pieces: Vec<&str> = text.split("VirtualServer").collect();
    pieces.sort_unstable();
    pieces.concat().replace("}, ", "}").replace("}]", "}")
}

fn links(links: &[LinkState]) -> String {
    format!("{links:#?}")
}

fn differences(changed: &State, built: &State) -> String {
    let (changed, built) = (format!("{changed:#?}"), format!("{built:#?}"));
    let lines = similar::TextDiff::from_lines(&changed, &built);
    let diff = lines.unified_diff();
    format!("changed and built differ:\n{diff}")
}
