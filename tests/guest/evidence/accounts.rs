//! Runs all labs in guests with full evidence. Every packet has a known end, and the verdicts equal
//! those without evidence.

use std::time::Duration;

use svclab_runner::run::Prepared;
use svclab_test_support::block_on;
use svclab_test_support::cases::prepare_cases;
use svclab_test_support::evidence::accounting::account_for_packets;
use svclab_test_support::guests::new_guest;

/// Number of parallel cases in a guest, the same as of `svclab run`.
const PARALLEL_CASES: usize = 2;

/// Cases with more connections than this wait longer and run alone: tracing all of them slows the
/// guest down, and other labs with it.
const MAX_CONNECTIONS_IN_PARALLEL: u32 = 100;

/// Wait of probes in such cases.
const LONG_WAIT: Duration = Duration::from_secs(15);

fn assert_all_ends_known(series: &str) {
    let (many, few): (Vec<Prepared>, Vec<Prepared>) =
        prepare_cases(&[]).into_iter().partition(|case| {
            let connections = case.plan.probes().map(|each| each.connections);
            connections.sum::<u32>() > MAX_CONNECTIONS_IN_PARALLEL
        });
    block_on(async {
        let agent = new_guest(series).await.start().await.expect("a guest");
        let mut accounts = account_for_packets(&agent, many, 1, Some(LONG_WAIT)).await;
        accounts.add(account_for_packets(&agent, few, PARALLEL_CASES, None).await);
        accounts.print(&agent.environment().kernel);
        let troubles = [accounts.wrong, accounts.unknown].concat();
        assert_eq!(troubles, Vec::<String>::new());
    });
}

#[test]
fn guest_6_1_full_evidence_knows_end_of_every_packet() {
    assert_all_ends_known("6.1");
}

#[test]
fn guest_6_12_full_evidence_knows_end_of_every_packet() {
    assert_all_ends_known("6.12");
}
