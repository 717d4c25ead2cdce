use proptest::prelude::*;

use super::*;
use crate::comparison::simulated::{Random, probabilities, tally};
use crate::statistics::LOOKS;

/// Compares a flow as a verification does: draws until the flow is alike or differs.
fn compare_flow(
    first: u32,
    mut draws: Draws,
    threshold: Threshold,
    mut run: impl FnMut(u32) -> [Tally; 2],
) -> bool {
    let mut connections = first;
    draws.add(run(connections));
    for looks in LOOKS.windows(2) {
        if draws.likeness(threshold) != Likeness::Unsure {
            break;
        }
        let runs = match draws.unit() {
            DrawUnit::Connection => 1,
            DrawUnit::Run => looks[1] - looks[0],
        };
        if draws.unit() == DrawUnit::Connection {
            connections = (connections * 4).min(4096);
        }
        for _ in 0..runs {
            draws.add(run(connections));
        }
    }
    matches!(draws.likeness(threshold), Likeness::Changed(_))
}

/// Returns how many of `verifications` verifications of `flows` flows report a difference.
fn alarms(
    first: u32,
    verifications: u32,
    flows: usize,
    threshold: Threshold,
    new: impl Fn() -> Draws,
    mut run: impl FnMut(u32) -> [Tally; 2],
) -> u32 {
    let verified = (0..verifications)
        .filter(|_| (0..flows).any(|_| compare_flow(first, new(), threshold, &mut run)));
    u32::try_from(verified.count()).unwrap()
}

/// Returns the threshold of a verification that gives a false alarm in 1 of 20.
fn low_threshold(flows: usize) -> Threshold {
    Threshold::divide(0.05, flows * LOOKS.len())
}

/// Whether the number of alarms is below the 0.9999 quantile for a rate of 1 in 20.
fn is_rare(alarms: u32, total: u32) -> bool {
    let expected = 0.05 * f64::from(total);
    f64::from(alarms) < expected + 3.8 * (expected * 0.95).sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_sides_alarm_no_more_often_than_stated(seed: u64, endpoints in 2..5_u32) {
        let mut random = Random(seed);
        let shares = probabilities(endpoints, 0);
        let new = || Draws::new(DrawUnit::Connection, true);
        let alarms = alarms(16, 2_000, 3, low_threshold(3), new, |connections| {
            [random.run(connections, &shares), random.run(connections, &shares)]
        });
        prop_assert!(is_rare(alarms, 2_000), "{alarms}");
    }

    #[test]
    fn equal_affinity_alarms_no_more_often_than_stated(seed: u64, endpoints in 2..5_u32) {
        let mut random = Random(seed);
        let shares = probabilities(endpoints, 0);
        let both = |random: &mut Random| {
            [random.run_with_affinity(16, &shares), random.run_with_affinity(16, &shares)]
        };
        let by_run = alarms(16, 2_000, 3, low_threshold(3), || Draws::new(DrawUnit::Run, true), |_| both(&mut random));
        prop_assert!(is_rare(by_run, 2_000), "{by_run}");
        // If connections of one client counted as draws, most verifications would alarm.
        let new = || Draws::new(DrawUnit::Connection, false);
        let by_connection = alarms(16, 200, 3, low_threshold(3), new, |_| both(&mut random));
        prop_assert!(by_connection > 100, "{by_connection}");
    }

    /// Uses the threshold of a real verification, with 1,000 flows.
    #[test]
    fn equal_sides_are_silent(seed: u64, endpoints in 2..5_u32) {
        let mut random = Random(seed);
        let shares = probabilities(endpoints, 0);
        let threshold = Threshold::for_flows(1_000);
        let new = || Draws::new(DrawUnit::Connection, true);
        let found = alarms(16, 1_000, 1, threshold, new, |connections| {
            [random.run(connections, &shares), random.run(connections, &shares)]
        });
        prop_assert_eq!(found, 0);
        let new = || Draws::new(DrawUnit::Run, true);
        let found = alarms(16, 1_000, 1, threshold, new, |_| {
            [random.run_with_affinity(16, &shares), random.run_with_affinity(16, &shares)]
        });
        prop_assert_eq!(found, 0);
    }

    #[test]
    fn lost_affinity_is_always_found(seed: u64, endpoints in 2..5_u32) {
        let mut random = Random(seed);
        let shares = probabilities(endpoints, 0);
        let new = || Draws::new(DrawUnit::Run, true);
        let found = alarms(16, 200, 1, Threshold::for_flows(1_000), new, |_| {
            [random.run_with_affinity(16, &shares), random.run(16, &shares)]
        });
        prop_assert_eq!(found, 200);
    }

    #[test]
    fn missing_endpoint_is_always_found(seed: u64, endpoints in 2..5_u32) {
        let mut random = Random(seed);
        let (all, fewer) = (probabilities(endpoints + 1, 0), probabilities(endpoints, 0));
        let new = || Draws::new(DrawUnit::Connection, true);
        let found = alarms(128, 100, 1, Threshold::for_flows(1_000), new, |connections| {
            [random.run(connections, &all), random.run(connections, &fewer)]
        });
        prop_assert_eq!(found, 100);
    }
}

/// Counts of a round robin vary less than those of independent draws.
#[test]
fn round_robin_with_another_phase_is_alike() {
    for endpoints in 2..5 {
        for phase in 0..endpoints {
            let run = |connections: u32, phase: usize| {
                tally((0..connections).map(|at| (usize::try_from(at).unwrap() + phase) % endpoints))
            };
            let changed = compare_flow(
                16,
                Draws::new(DrawUnit::Connection, true),
                low_threshold(1),
                |connections| [run(connections + 1, 0), run(connections + 1, phase)],
            );
            assert!(!changed, "{endpoints} {phase}");
        }
    }
}

#[test]
fn difference_in_every_connection_is_found() {
    let always = |endpoint: usize, connections: u32| tally((0..connections).map(|_| endpoint));
    let both = |connections| [always(0, connections), always(1, connections)];
    let threshold = Threshold::for_flows(1_000);
    for (unit, has_choice) in [
        (DrawUnit::Connection, false),
        (DrawUnit::Connection, true),
        (DrawUnit::Run, true),
    ] {
        assert!(
            compare_flow(16, Draws::new(unit, has_choice), threshold, both),
            "{unit:?}"
        );
    }
}

#[test]
fn difference_of_single_run_with_choice_is_not_confirmed() {
    let threshold = Threshold::for_flows(1);
    let both = || [tally([0; 64]), tally([1; 64])];
    let mut known = Draws::new(DrawUnit::Connection, false);
    known.add(both());
    assert!(matches!(known.likeness(threshold), Likeness::Changed(_)));
    let mut chosen = Draws::new(DrawUnit::Connection, true);
    for _ in 1..MIN_CONFIRMING_RUNS {
        chosen.add(both());
        assert_eq!(chosen.likeness(threshold), Likeness::Unsure);
    }
    chosen.add(both());
    assert!(matches!(chosen.likeness(threshold), Likeness::Changed(_)));
}

#[test]
fn step_with_another_result_once_is_no_difference() {
    let changed = || tally((0..16).map(|_| 1));
    let mut draws = Draws::new(DrawUnit::Run, true);
    draws.add([tally((0..16).map(|at| at % 2)), changed()]);
    assert_eq!(draws.likeness(Threshold::for_flows(1)), Likeness::Unsure);
    for _ in 1..8 {
        draws.add([changed(), changed()]);
    }
    assert_eq!(draws.likeness(Threshold::for_flows(1)), Likeness::Same);
}
