//! All labs in guests, with everything watched: every packet is accounted for, and
//! verdicts are what they are when nobody watches.

use std::time::Duration;

use super::accounts_of::account;
use super::cases::cases;
use super::guests::{block_on, guest};

/// How many cases stand in a guest at once: as many as `svclab run` has there.
const AT_ONCE: usize = 2;

/// From how many connections on a case waits longer than cases do: watching them all
/// takes a guest its time.
const MANY: u32 = 100;

/// How long it waits then.
const PATIENCE: Duration = Duration::from_secs(15);

fn none_is_unknown(series: &str) {
    let mut all = cases(&[]);
    for case in &mut all {
        let connections: u32 = case.plan.probes.iter().map(|each| each.connections).sum();
        if connections > MANY {
            for probe in &mut case.plan.probes {
                probe.patience = PATIENCE;
            }
        }
    }
    block_on(async {
        let agent = guest(series).await.start().await.expect("a guest");
        let account = account(&agent, all, AT_ONCE).await;
        assert_eq!(account.unknown, Vec::<String>::new());
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
