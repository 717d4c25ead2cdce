//! Inverts expectations, one at a time, and judges evidence that satisfied the originals. Each
//! inverted expectation must fail, and the failure must name it.

use std::time::Duration;

use libtest_mimic::Failed;
use svclab_judge::{Judge, Judgement};
use svclab_model::evidence::Evidence;
use svclab_runner::run::Prepared;
use svclab_scenario::count::Count;
use svclab_scenario::expectation::{Expected, ProbeExpectation, Row, SourcePort};
use svclab_scenario::wire::WireExpectation;

/// A count that no evidence reaches.
const NEVER: u32 = 1_000_000;

/// A row with one inverted expectation, and the name that the failure must contain.
struct Flip {
    row: Row,
    speaks_of: String,
}

/// Inverts every expectation of a case in turn.
pub fn every_expectation(prepared: &Prepared, evidence: &Evidence) -> Result<(), Failed> {
    let flips = flips(prepared.case.expected(), prepared);
    if flips.is_empty() {
        return Err("the case expects nothing".into());
    }
    for flip in flips {
        let judge =
            Judge::new(prepared.subject(&flip.row)).map_err(|problems| format!("{problems:?}"))?;
        let judgement = judge.judge(evidence);
        if judgement.holds() {
            return Err(format!(
                "turned round, and still as expected: {}\n{:#?}",
                flip.speaks_of, flip.row.expected
            )
            .into());
        }
        if !names(&judgement, &flip.speaks_of) {
            return Err(format!(
                "the failure does not speak of {}: {judgement:#?}",
                flip.speaks_of
            )
            .into());
        }
    }
    Ok(())
}

/// Whether the failures include the inverted expectation, with expected and observed values.
fn names(judgement: &Judgement, what: &str) -> bool {
    let probes = judgement.probes.iter().filter(|probe| !probe.holds);
    let checks = judgement.checks().filter(|check| !check.holds);
    let steps = judgement.steps.iter().filter(|step| !step.holds);
    let steps = steps.map(|step| (step.name.clone(), step.expected.is_some()));
    let told: Vec<(String, bool)> = probes
        .map(|probe| (probe.name.clone(), probe.expected.is_some()))
        .chain(checks.map(|check| {
            (
                check.on.clone(),
                !check.expected.is_empty() && !check.observed.is_empty(),
            )
        }))
        .chain(steps)
        .collect();
    told.iter().any(|(on, both)| on == what && *both)
}

/// Function that inverts an expectation, given the name that the failure must contain.
type Turn<'a> = dyn FnMut(&str, &dyn Fn(&mut Expected)) + 'a;

fn flips(row: &Row, prepared: &Prepared) -> Vec<Flip> {
    let mut flips = Vec::new();
    let mut flip = |speaks_of: &str, change: &dyn Fn(&mut Expected)| {
        let mut row = row.clone();
        change(&mut row.expected);
        flips.push(Flip {
            row,
            speaks_of: speaks_of.to_owned(),
        });
    };
    for (name, probe) in &row.expected.probes {
        of_probe(name, probe, &mut flip);
    }
    for (at, wire) in row.expected.wire.iter().enumerate() {
        of_wire(at, wire, &mut flip);
    }
    of_rules(&row.expected, &mut flip);
    of_held(&row.expected, &mut flip);
    for name in row.expected.steps.keys() {
        flip(name, &|expected| {
            let step = expected.steps.get_mut(name).expect("the step is there");
            step.within = Duration::ZERO;
        });
    }
    assert!(
        prepared
            .case
            .spec
            .all_probes()
            .all(|(name, _)| row.expected.probes.contains_key(name)),
        "a probe of which nothing is expected"
    );
    flips
}

fn of_probe(name: &str, probe: &ProbeExpectation, flip: &mut Turn<'_>) {
    let mut on_probe = |change: &dyn Fn(&mut ProbeExpectation)| {
        flip(name, &|expected| {
            change(expected.probes.get_mut(name).expect("the probe is there"));
        });
    };
    for verdict in 0..probe.verdicts().len() {
        if probe.verdicts()[verdict].1.is_some() {
            on_probe(&|probe| *verdicts(probe)[verdict] = Some(Count::exactly(NEVER)));
        }
    }
    if probe.endpoints.is_some() {
        on_probe(&|probe| probe.endpoints = Some(Vec::new()));
    }
    if probe.sources().is_some() {
        // A documentation address, which no object has.
        on_probe(&|probe| {
            probe.seen_source = Some("192.0.2.254".to_owned());
            probe.seen_sources = None;
        });
    }
    if let Some(port) = probe.source_port {
        let other = match port {
            SourcePort::Kept => SourcePort::Changed,
            SourcePort::Changed => SourcePort::Kept,
        };
        on_probe(&|probe| probe.source_port = Some(other));
    }
}

fn of_wire(at: usize, wire: &WireExpectation, flip: &mut Turn<'_>) {
    let expected_none = wire.count.contains(0);
    let other = if expected_none {
        Count::at_least(1)
    } else {
        Count::exactly(0)
    };
    flip(&wire.on.to_string(), &|expected| {
        expected.wire[at].count = other;
    });
    if wire.mss.is_some() && !expected_none {
        flip(&wire.on.to_string(), &|expected| {
            expected.wire[at].mss = Some(1);
        });
    }
    if wire.window.is_some() && !expected_none {
        flip(&wire.on.to_string(), &|expected| {
            expected.wire[at].window = Some(1);
        });
    }
    if wire.resent.is_some() {
        flip(&wire.on.to_string(), &|expected| {
            expected.wire[at].resent = Some(vec![Duration::from_millis(100)]);
        });
    }
}

fn of_rules(row: &Expected, flip: &mut Turn<'_>) {
    for at in 0..row.counters.len() {
        flip(&row.counters[at].on, &|expected| {
            expected.counters[at].grows = Count::exactly(NEVER);
        });
    }
    for at in 0..row.rules.len() {
        flip(&row.rules[at].on, &|expected| {
            expected.rules[at].hits = Count::exactly(NEVER);
        });
    }
    for at in 0..row.chains.len() {
        let on = row.chains[at].on.clone();
        for rule in 0..row.chains[at].is.len() {
            flip(&on, &|expected| drop(expected.chains[at].is.remove(rule)));
        }
        flip(&on, &|expected| {
            expected.chains[at].is.push("-j ACCEPT".to_owned());
        });
    }
}

fn of_held(row: &Expected, flip: &mut Turn<'_>) {
    for at in 0..row.sets.len() {
        flip(&row.sets[at].on, &|expected| {
            "hash:mac".clone_into(&mut expected.sets[at].kind);
        });
        flip(&row.sets[at].on, &|expected| {
            expected.sets[at].members.push("192.0.2.254".to_owned());
        });
    }
    for at in 0..row.ipvs.len() {
        flip(&row.ipvs[at].on, &|expected| {
            let first = expected.ipvs[at].is.pop();
            if first.is_none() {
                expected.ipvs[at]
                    .is
                    .push("-A -t 192.0.2.254:1 -s rr".to_owned());
            }
        });
    }
    for at in 0..row.links.len() {
        flip(&row.links[at].on.to_string(), &|expected| {
            expected.links[at].flags.push("PROMISC".to_owned());
        });
        flip(&row.links[at].on.to_string(), &|expected| {
            expected.links[at].addresses.pop();
        });
    }
}

fn verdicts(probe: &mut ProbeExpectation) -> [&mut Option<Count>; 7] {
    let ProbeExpectation {
        connected,
        refused,
        unreachable,
        reset,
        silent,
        timeout,
        answered,
        ..
    } = probe;
    [
        connected,
        refused,
        unreachable,
        reset,
        silent,
        timeout,
        answered,
    ]
}
