//! All labs in guests, with everything watched: every packet is accounted for, and
//! verdicts are what they are when nobody watches.

use std::time::Duration;

use svclab_runner::run::Prepared;

use super::accounts_of::account;
use super::cases::cases;
use super::guests::{block_on, guest};

/// How many cases stand in a guest at once: as many as `svclab run` has there.
const AT_ONCE: usize = 2;

/// From how many connections on a case waits longer than cases do, and stands alone:
/// watching them all takes a guest its time, and what another lab waits for, too.
const MANY: u32 = 100;

/// How long it waits then.
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
