//! Runs all labs in guests with full evidence. Every packet has a known end, and the verdicts equal
//! those without evidence.

use std::time::Duration;

use svclab_runner::run::Prepared;

use super::accounts_of::account;
use super::cases::cases;
use super::guests::{block_on, guest};

/// Number of parallel cases in a guest, the same as of `svclab run`.
const AT_ONCE: usize = 2;

/// Cases with more connections than this wait longer and run alone: tracing all of them slows the
/// guest down, and other labs with it.
const MANY: u32 = 100;

/// Wait of probes in such cases.
const PATIENCE: Duration = Duration::from_secs(15);

fn none_is_unknown(series: &str) {
    let (many, few): (Vec<Prepared>, Vec<Prepared>) = cases(&[]).into_iter().partition(|case| {
        let connections = case.plan.probes.iter().map(|each| each.connections);
        connections.sum::<u32>() > MANY
    });
    block_on(async {
        let agent = guest(series).await.start().await.expect("a guest");
        let mut all = account(&agent, many, 1, Some(PATIENCE)).await;
        all.add(account(&agent, few, AT_ONCE, None).await);
        all.print(&agent.surroundings().kernel);
        let troubles = [all.wrong, all.unknown].concat();
        assert_eq!(troubles, Vec::<String>::new());
    });
}

#[test]
fn every_packet_is_accounted_for_in_an_older_guest() {
    none_is_unknown("6.1");
}

#[test]
fn every_packet_is_accounted_for_in_a_newer_guest() {
    none_is_unknown("6.12");
}
