//! Inverts expectations, one at a time, and judges evidence that satisfied the originals. Each
//! inverted expectation must fail, and the failure must name it.

use std::time::Duration;

use libtest_mimic::Failed;
use svclab_judge::{Judge, Judgement};
use svclab_model::evidence::Evidence;
use svclab_report::results::CheckDocument;
use svclab_runner::run::Prepared;
use svclab_scenario::count::Count;
use svclab_scenario::expectation::{Expected, ProbeExpectation, Row, SourcePort};
use svclab_scenario::wire::WireExpectation;

/// A count that no evidence reaches.
const UNREACHABLE_COUNT: u32 = 1_000_000;

/// A row with one inverted expectation, and the name that the failure must contain.
struct Flip {
    row: Row,
    failing_name: String,
}

/// Inverts every expectation of a case in turn.
pub fn check_every_expectation(prepared: &Prepared, evidence: &Evidence) -> Result<(), Failed> {
    let flips = all_flips(prepared.case.expected(), prepared);
    if flips.is_empty() {
        return Err("the case has no expectations".into());
    }
    for flip in flips {
        let judge =
            Judge::new(prepared.subject(&flip.row)).map_err(|problems| format!("{problems:?}"))?;
        let judgement = judge.judge(evidence);
        if judgement.holds() {
            return Err(format!(
                "the inverted expectation is still met: {}\n{:#?}",
                flip.failing_name, flip.row.expected
            )
            .into());
        }
        if !has_failure(&judgement, &flip.failing_name) {
            return Err(format!(
                "the failure does not mention {}: {judgement:#?}",
                flip.failing_name
            )
            .into());
        }
    }
    Ok(())
}

/// Whether the failures include the inverted expectation, with expected and observed values.
fn has_failure(judgement: &Judgement, name: &str) -> bool {
    let probes = judgement.probes().filter(|probe| !probe.holds);
    let checks = judgement.checks().filter(|check| !check.holds());
    let steps = judgement.steps().filter(|step| !step.holds());
    let steps = steps.map(|step| (step.name.clone(), step.within.is_some()));
    let failures: Vec<(String, bool)> = probes
        .map(|probe| (probe.name.clone(), probe.expected.is_some()))
        .chain(checks.map(CheckDocument::from).map(|check| {
            (
                check.target,
                !check.expected.is_empty() && !check.observed.is_empty(),
            )
        }))
        .chain(steps)
        .collect();
    failures.iter().any(|(on, both)| on == name && *both)
}

/// Function that inverts an expectation, given the name that the failure must contain.
type Invert<'a> = dyn FnMut(&str, &dyn Fn(&mut Expected)) + 'a;

fn all_flips(row: &Row, prepared: &Prepared) -> Vec<Flip> {
    let mut flips = Vec::new();
    let mut flip = |speaks_of: &str, change: &dyn Fn(&mut Expected)| {
        let mut row = row.clone();
        change(&mut row.expected);
        flips.push(Flip {
            row,
            failing_name: speaks_of.to_owned(),
        });
    };
    for (name, probe) in &row.expected.probes {
        flip_probe(name, probe, &mut flip);
    }
    for (index, wire) in row.expected.wire.iter().enumerate() {
        flip_wire(index, wire, &mut flip);
    }
    flip_counters_and_rules(&row.expected, &mut flip);
    flip_kernel_state(&row.expected, &mut flip);
    for name in row.expected.steps.keys() {
        flip(name, &|expected| {
            let step = expected.steps.get_mut(name).expect("the step exists");
            step.within = Duration::ZERO;
        });
    }
    assert!(
        prepared
            .case
            .spec
            .all_probes()
            .all(|(name, _)| row.expected.probes.contains_key(name)),
        "a probe without expectations"
    );
    flips
}

fn flip_probe(name: &str, probe: &ProbeExpectation, flip: &mut Invert<'_>) {
    let mut on_probe = |change: &dyn Fn(&mut ProbeExpectation)| {
        flip(name, &|expected| {
            change(expected.probes.get_mut(name).expect("the probe exists"));
        });
    };
    for verdict in 0..probe.verdicts().len() {
        if probe.verdicts()[verdict].1.is_some() {
            on_probe(&|probe| *verdicts(probe)[verdict] = Some(Count::exactly(UNREACHABLE_COUNT)));
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
        let inverted_port = match port {
            SourcePort::Kept => SourcePort::Changed,
            SourcePort::Changed => SourcePort::Kept,
        };
        on_probe(&|probe| probe.source_port = Some(inverted_port));
    }
}

fn flip_wire(index: usize, wire: &WireExpectation, flip: &mut Invert<'_>) {
    let expected_none = wire.count.contains(0);
    let inverted = if expected_none {
        Count::at_least(1)
    } else {
        Count::exactly(0)
    };
    flip(&wire.on.to_string(), &|expected| {
        expected.wire[index].count = inverted;
    });
    if wire.mss.is_some() && !expected_none {
        flip(&wire.on.to_string(), &|expected| {
            expected.wire[index].mss = Some(1);
        });
    }
    if wire.window.is_some() && !expected_none {
        flip(&wire.on.to_string(), &|expected| {
            expected.wire[index].window = Some(1);
        });
    }
    if wire.resent.is_some() {
        flip(&wire.on.to_string(), &|expected| {
            expected.wire[index].resent = Some(vec![Duration::from_millis(100)]);
        });
    }
}

fn flip_counters_and_rules(row: &Expected, flip: &mut Invert<'_>) {
    for at in 0..row.counters.len() {
        flip(&row.counters[at].on, &|expected| {
            expected.counters[at].grows = Count::exactly(UNREACHABLE_COUNT);
        });
    }
    for at in 0..row.rules.len() {
        flip(&row.rules[at].on, &|expected| {
            expected.rules[at].hits = Count::exactly(UNREACHABLE_COUNT);
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

fn flip_kernel_state(row: &Expected, flip: &mut Invert<'_>) {
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
