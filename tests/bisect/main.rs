//! Checks that `svclab bisect` finds planted culprits among a thousand harmless differences, by
//! packets only.

#[path = "../shared/full.rs"]
mod full;
#[expect(dead_code, reason = "a part of it is for benches")]
mod planted;

use std::path::PathBuf;

use svclab_experiment::bisect::{Bisection, Pair};
use svclab_experiment::run::bisect::{Task, find, side_by_side};
use svclab_runner::kernel::Host;

use full::ordinary_or_full;
use planted::{Culprit, Planted, Random, lab, pair};

/// Path of the agent.
const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

fn found(planted: &Planted) -> Bisection {
    let task = Task {
        good: planted.good.clone(),
        bad: planted.bad.clone(),
        good_name: "good".to_owned(),
        bad_name: "bad".to_owned(),
        over: None,
        probe: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let agent = Host::with_agent(PathBuf::from(AGENT))
            .start()
            .await
            .expect("an agent");
        let found = find(&task, &agent, side_by_side(&task, u64::MAX), &mut |_, _| {}).await;
        found.unwrap_or_else(|error| panic!("{error}"))
    })
}

/// Returns the sorted texts of differences.
fn named(differences: &[Vec<svclab_experiment::bisect::Difference>]) -> Vec<String> {
    let all = differences.iter().flatten();
    let mut texts: Vec<String> = all
        .map(|one| {
            one.bad
                .clone()
                .or_else(|| one.good.clone())
                .unwrap_or_default()
        })
        .collect();
    texts.sort();
    texts
}

fn check(culprit: Culprit, seed: u64) {
    let mut random = Random::new(seed);
    let mut planted = pair(&lab(), culprit, &mut random);
    let pair = Pair::of(&planted.good, &planted.bad).expect("a pair");
    let harmless = pair.len() - culprit.size();
    assert!(harmless >= 1000, "{harmless} harmless differences");
    let found = found(&planted);
    planted.culprits.sort();
    let told = || format!("{culprit:?}, seed {seed}: {found:#?}");
    assert_eq!(named(&found.breaks), planted.culprits, "{}", told());
    // Of two culprits that act only together, removing either fixes the symptom.
    let cures = named(&found.cures);
    assert_eq!(cures.len(), 1, "{}", told());
    assert!(planted.culprits.contains(&cures[0]), "{}", told());
    if culprit.size() == 1 {
        let log = usize::try_from(pair.len().ilog2()).expect("a small number");
        assert!(
            found.trials.len() <= 3 * log,
            "{} trials: {}",
            found.trials.len(),
            told()
        );
    }
    assert!(found.wrong_in_million <= 1000, "{}", told());
}

/// Defines one test for each kind of culprit, so that the kinds run in parallel.
macro_rules! planted {
    ($($name:ident: $culprit:ident,)*) => {
        $(#[test]
        fn $name() {
            let first = Culprit::$culprit as u64 * 1000;
            for seed in first..first + ordinary_or_full(1, 10) {
                check(Culprit::$culprit, seed);
            }
        })*
    };
}

planted! {
    a_rule_among_a_thousand_differences_is_found: Rule,
    a_rule_that_is_missing_is_found: LostRule,
    an_entry_of_a_set_is_found: Entry,
    a_route_is_found: Route,
    a_setting_is_found: Sysctl,
    an_address_is_found: Address,
    a_mark_and_what_drops_it_are_found: MarkAndDrop,
    an_entry_and_the_rule_that_names_its_set_are_found: EntryAndRule,
    a_jump_and_a_rule_behind_it_are_found: JumpAndRule,
}
