//! All labs that this host's kernel can run without IPVS, with everything watched: every
//! packet is accounted for, and verdicts are what they are when nobody watches.

use super::accounts::account;
use super::cases::cases;
use super::with_agent;

/// How many stand at once.
const AT_ONCE: usize = 8;

#[test]
fn every_packet_is_accounted_for_and_watching_changes_no_verdict() {
    let mut here = cases(&[]);
    here.retain(|case| !case.plan.namespaces.iter().any(|space| space.uses_ipvs()));
    assert!(here.len() > 30, "{}", here.len());
    with_agent(async |agent| {
        let account = account(&agent, here, AT_ONCE).await;
        // What neither rules nor counters nor answers tell.
        assert_eq!(account.unknown, Vec::<String>::new());
    });
}
