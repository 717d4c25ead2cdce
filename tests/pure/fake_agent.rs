//! Checks that no case passes without evidence for its expectations. A fake agent returns arbitrary
//! evidence for cases of the shipped labs and of generated labs.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use svclab_model::plan::MaxWait;
use svclab_runner::results::CaseStatus;
use svclab_runner::run::{Prepared, prepare, select_labs};
use svclab_test_support::generated::choices::Choices;
use svclab_test_support::generated::fake_agent::{
    AgentBehavior, expect_only_probes, ideal_evidence, must_not_pass, run_case, run_with_choices,
};
use svclab_test_support::generated::valid_lab;
use svclab_test_support::topologies;
use tokio::runtime::{Builder, Runtime};

/// The first two cases and the last case of each shipped lab.
static CASES: LazyLock<Vec<Prepared>> = LazyLock::new(|| {
    let directory = topologies();
    let mut labs = select_labs(&[], &directory).expect("labs");
    let names = ["conformance".to_owned()];
    labs.extend(select_labs(&names, &directory).expect("labs"));
    let of_lab = |lab: &svclab_runner::run::SelectedLab| -> Vec<Prepared> {
        let cases = lab.scenario.cases();
        let some = cases.iter().take(2).chain(cases.last());
        some.filter_map(|case| prepare(lab, case, MaxWait::SETTLED).ok())
            .flat_map(|case| [expect_only_probes(&case), case])
            .collect()
    };
    labs.iter().flat_map(of_lab).collect()
});

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Ensures that the other tests do not pass only because no case ever passes.
#[test]
fn ideal_evidence_of_probes_passes() {
    let passes = CASES.iter().filter(|case| {
        let evidence = ideal_evidence(case);
        must_not_pass(case, &evidence).is_none()
            && runtime().block_on(run_case(case, &evidence, AgentBehavior::SendsEvidence))
                == CaseStatus::Pass
    });
    let passes = passes.count();
    assert!(passes >= 10, "{passes} of {}", CASES.len());
}

/// Removes, then duplicates, a connection: the case does not pass in either form.
#[test]
fn evidence_without_a_connection_does_not_pass() {
    let runtime = runtime();
    for case in CASES.iter() {
        let whole = ideal_evidence(case);
        for (stage, seen) in whole.stages.iter().enumerate() {
            let attempts = seen.attempts.len();
            for index in [0, attempts / 2, attempts.saturating_sub(1)] {
                if index >= attempts {
                    continue;
                }
                let mut less = whole.clone();
                less.stages[stage].attempts.remove(index);
                let mut more = whole.clone();
                let again = seen.attempts[index].clone();
                more.stages[stage].attempts.push(again);
                for spoilt in [less, more] {
                    let outcome =
                        runtime.block_on(run_case(case, &spoilt, AgentBehavior::SendsEvidence));
                    assert_eq!(outcome, CaseStatus::Error, "{} {index}", case.case.id);
                }
            }
        }
    }
}

/// Removes, duplicates and renames a stage: the case ends with an error each time.
#[test]
fn evidence_without_a_stage_does_not_pass() {
    let runtime = runtime();
    let stepped = CASES.iter().filter(|case| case.plan.stages.len() > 1);
    let mut tried = 0;
    for case in stepped {
        let whole = ideal_evidence(case);
        let (mut shortened, mut extended, mut renamed) = (whole.clone(), whole.clone(), whole);
        shortened.stages.pop();
        extended.stages.extend(extended.stages.last().cloned());
        renamed.stages[1]
            .step
            .as_mut()
            .expect("a step")
            .name
            .push('x');
        for spoilt in [shortened, extended, renamed] {
            let outcome = runtime.block_on(run_case(case, &spoilt, AgentBehavior::SendsEvidence));
            assert_eq!(outcome, CaseStatus::Error, "{}", case.case.id);
            tried += 1;
        }
    }
    assert!(tried > 0, "no lab has steps");
}

/// Ensures that generated labs contain cases that can pass.
#[test]
fn drawn_labs_pass_on_ideal_evidence_of_probes() {
    let runtime = runtime();
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let (mut kinds, mut passes) = ([0; 9], 0);
    for _ in 0..200 {
        let mut bytes = [0; 800];
        rng.fill_bytes(&mut bytes);
        let whole = valid_lab::draw(&mut Choices(&bytes));
        let expected = &whole.case.expected().expected;
        let has = [
            expected.probes.is_empty(),
            expected.wire.is_empty(),
            expected.counters.is_empty(),
            expected.rules.is_empty(),
            expected.chains.is_empty(),
            expected.sets.is_empty(),
            expected.ipvs.is_empty(),
            expected.links.is_empty(),
            expected.steps.is_empty(),
        ];
        for (count, empty) in kinds.iter_mut().zip(has) {
            *count += usize::from(!empty);
        }
        let case = expect_only_probes(&whole);
        let evidence = ideal_evidence(&case);
        if must_not_pass(&case, &evidence).is_none()
            && runtime.block_on(run_case(&case, &evidence, AgentBehavior::SendsEvidence))
                == CaseStatus::Pass
        {
            passes += 1;
        }
    }
    assert!(passes >= 50, "{passes} of 200 pass");
    assert!(
        kinds.iter().all(|&count| count >= 5),
        "{kinds:?} expectations of each kind"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn case_without_complete_evidence_does_not_pass(
        index in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let case = &CASES[index.index(CASES.len())];
        runtime().block_on(run_with_choices(case, &mut Choices(&bytes)));
    }

    #[test]
    fn drawn_lab_without_evidence_does_not_pass(
        bytes in prop::collection::vec(any::<u8>(), 0..1000),
        only_probes in any::<bool>(),
    ) {
        let mut choices = Choices(&bytes);
        let mut case = valid_lab::draw(&mut choices);
        if only_probes {
            case = expect_only_probes(&case);
        }
        runtime().block_on(run_with_choices(&case, &mut choices));
    }
}
