//! Checks that `svclab bisect` finds planted culprits among a thousand harmless differences, by
//! packets only.

use std::collections::BTreeMap;

use svclab_experiment::bisect::{Bisection, Pair, Task, Unexamined, find, parallel_labs};
use svclab_runner::kernel::Host;
use svclab_test_support::planted::{
    Culprit, Planted, Random, generate_pair, lab, with_forward_rules,
};
use svclab_test_support::programs::agent;
use svclab_test_support::{block_on, ordinary_or_full};

fn find_culprits(planted: &Planted) -> Bisection {
    let task = Task {
        unexamined: Unexamined::default(),
        good: planted.good.clone(),
        bad: planted.bad.clone(),
        good_name: "good".to_owned(),
        bad_name: "bad".to_owned(),
        base: None,
        probe: None,
        draws: BTreeMap::new(),
        assumed: Vec::new(),
    };
    block_on(async {
        let agent = Host::with_agent(agent()).start().await.expect("an agent");
        let found = find(&task, &agent, parallel_labs(&task, u64::MAX), &mut |_| {}).await;
        found.unwrap_or_else(|error| panic!("{error}"))
    })
}

/// Returns the sorted texts of differences.
fn difference_texts(differences: &[Vec<svclab_experiment::bisect::Difference>]) -> Vec<String> {
    let flattened = differences.iter().flatten();
    let mut texts: Vec<String> = flattened
        .map(|difference| {
            difference
                .bad
                .clone()
                .or_else(|| difference.good.clone())
                .unwrap_or_default()
        })
        .collect();
    texts.sort();
    texts
}

fn check_culprit(culprit: Culprit, seed: u64) {
    let mut random = Random::new(seed);
    let mut planted = generate_pair(&lab(), culprit, &mut random);
    let pair = Pair::new(&planted.good, &planted.bad).expect("a pair");
    let harmless = pair.len() - culprit.size();
    assert!(harmless >= 1000, "{harmless} harmless differences");
    let found = find_culprits(&planted);
    planted.culprits.sort();
    let context = || format!("{culprit:?}, seed {seed}: {found:#?}");
    assert_eq!(
        difference_texts(&found.finding.breaks),
        planted.culprits,
        "{}",
        context()
    );
    // Of two culprits that act only together, removing either fixes the symptom.
    let cures = difference_texts(&found.finding.fixes);
    assert_eq!(cures.len(), 1, "{}", context());
    assert!(planted.culprits.contains(&cures[0]), "{}", context());
    if culprit.size() == 1 {
        let log = usize::try_from(pair.len().ilog2()).expect("the number fits");
        assert!(
            found.trials.len() <= 3 * log,
            "{} trials: {}",
            found.trials.len(),
            context()
        );
    }
    assert!(found.error_per_million <= 1000, "{}", context());
}

/// Defines one test for each kind of culprit, so that the kinds run in parallel.
macro_rules! planted {
    ($($name:ident: $culprit:ident,)*) => {
        $(#[test]
        fn $name() {
            let first = Culprit::$culprit as u64 * 1000;
            for seed in first..first + ordinary_or_full(1, 10) {
                check_culprit(Culprit::$culprit, seed);
            }
        })*
    };
}

planted! {
    bisect_surplus_rule_among_1000_differences_is_found: Rule,
    bisect_missing_rule_among_1000_differences_is_found: LostRule,
    bisect_set_entry_among_1000_differences_is_found: Entry,
    bisect_route_among_1000_differences_is_found: Route,
    bisect_sysctl_among_1000_differences_is_found: Sysctl,
    bisect_address_among_1000_differences_is_found: Address,
    bisect_mark_and_drop_rule_are_found: MarkAndDrop,
    bisect_set_entry_and_its_rule_are_found: EntryAndRule,
    bisect_jump_and_rule_in_its_chain_are_found: JumpAndRule,
}

/// Earlier trials must not affect a trial: their packets would match the rule that checks for
/// remembered addresses.
#[test]
fn bisect_rule_that_remembers_addresses_is_found() {
    let to_web = "-d 10.244.2.10/32 -p tcp -m tcp --dport 8080";
    let check = format!("{to_web} -m recent --rcheck --name SEEN --rsource -j ACCEPT");
    let remember = format!("{to_web} -m recent --set --name SEEN --rsource -j ACCEPT");
    let drop = format!("{to_web} -j DROP");
    let lab = lab();
    let planted = Planted {
        good: with_forward_rules(&lab, &[&check, &remember, &drop]),
        bad: with_forward_rules(&lab, &[&drop]),
        culprits: Vec::new(),
    };
    let found = find_culprits(&planted);
    let culprits = [
        difference_texts(&found.finding.breaks),
        difference_texts(&found.finding.fixes),
    ];
    let is_culprit = |texts: &Vec<String>| texts.len() == 1 && texts[0].contains("--set");
    assert!(culprits.iter().all(is_culprit), "{found:#?}");
}
