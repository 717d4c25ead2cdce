use proptest::prelude::*;

use super::*;
use crate::comparison::simulated::{Random, probabilities};

fn pool(random: &mut Random, draws: u64, against: &[f64], new: &[f64]) -> SharePool {
    let draws = u32::try_from(draws).unwrap();
    let mut pool = SharePool::default();
    pool.add(&[random.run(draws, against), random.run(draws, new)]);
    pool
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    /// An example is 1/3 instead of 1/2.
    #[test]
    fn probability_of_one_endpoint_more_is_always_found(seed: u64, endpoints in 2..8_u32) {
        let mut random = Random(seed);
        let threshold = Threshold::for_shares(100);
        let (right, wrong) = (probabilities(endpoints, 0), probabilities(endpoints, 1));
        let size = SharePool::default().missing_draws(endpoints as usize, threshold);
        for _ in 0..25 {
            let found = pool(&mut random, size, &right, &wrong);
            prop_assert_eq!(found.missing_draws(endpoints as usize, threshold), 0);
            prop_assert!(found.difference(threshold).is_some(), "{:?}", found);
            let alike = pool(&mut random, size, &right, &right);
            prop_assert!(alike.difference(threshold).is_none(), "{:?}", alike);
        }
    }

    #[test]
    fn equal_shares_alarm_no_more_often_than_stated(seed: u64, endpoints in 2..5_u32) {
        let mut random = Random(seed);
        let shares = probabilities(endpoints, 0);
        let threshold = Threshold::divide(0.05, 1);
        let alarms = (0..1_000)
            .filter(|_| pool(&mut random, 300, &shares, &shares).difference(threshold).is_some());
        prop_assert!(alarms.count() < 50 + 27);
    }

    /// Flows of one pool may have different shares, as with only a local endpoint.
    #[test]
    fn unlike_flows_alarm_no_more_often_than_stated(seed: u64) {
        let mut random = Random(seed);
        let threshold = Threshold::divide(0.05, 1);
        let alarms = (0..1_000).filter(|_| {
            let mut pool = SharePool::default();
            for shares in [[0.5], [0.9], [0.0], [0.2]] {
                pool.add(&[random.run(50, &shares), random.run(50, &shares)]);
            }
            pool.difference(threshold).is_some()
        });
        prop_assert!(alarms.count() < 50 + 27);
    }
}
