//! What others see of it: nothing in what rules are read back with, and nothing at
//! all when probes are over.

use svclab_model::evidence::Verdict;
use svclab_model::evidence::met::At;
use svclab_model::plan::Backend;

use super::inside::{self, Inside};
use super::with_agent;

/// Everything that rules are read back with. Who asks for legacy tables makes them.
const NFT: [&str; 3] = [
    "iptables-nft-save",
    "ip6tables-nft-save",
    "iptables-nft -t nat -S",
];
const LEGACY: [&str; 3] = [
    "iptables-legacy-save -t nat",
    "iptables-legacy-save -t filter",
    "ip6tables-legacy-save -t filter",
];

const LOGGERS: &str = "cat /proc/sys/net/netfilter/nf_log/2 /proc/sys/net/netfilter/nf_log/10";

impl Inside {
    fn all(&self, backend: Backend) -> Vec<String> {
        let legacy = LEGACY.iter().filter(|_| backend == Backend::Legacy);
        let all = legacy.chain(&NFT);
        all.map(|command| self.said(command)).collect()
    }

    /// Looks at everything once packets are traced, then lets the probe through.
    fn look(&self, backend: Backend) -> (Vec<String>, String) {
        self.await_trace();
        let (all, loggers) = (self.all(backend), self.said(LOGGERS));
        // It has been there all the while.
        assert!(self.is_traced());
        self.let_through(backend);
        (all, loggers)
    }
}

fn nobody_sees(backend: Backend) {
    let evidence = with_agent(async |agent| {
        let mut session = agent.build(inside::plan(backend)).await.expect("a lab");
        let inside = Inside::of(&session);
        let before = (inside.all(backend), inside.said(LOGGERS));
        assert!(!inside.is_traced());
        let looking = std::thread::spawn(move || (inside.look(backend), inside));
        let evidence = session.probe().await.expect("evidence");
        let (during, inside) = looking.join().expect("it looked");
        assert_eq!(during.0, before.0);
        assert!(!inside.is_traced());
        assert_eq!(during.1, "nfnetlink_log\nnfnetlink_log\n");
        assert_eq!(inside.said(LOGGERS), before.1);
        evidence
    });
    assert_eq!(evidence.attempts[0].verdict, Verdict::Connected);
    // The rule that is gone is told by the line it had.
    let dropped = evidence.met.iter().filter(|met| {
        (met.table.as_str(), met.chain.as_str(), met.at) == ("filter", "FORWARD", At::Rule(2))
    });
    assert!(dropped.count() > 0, "{:#?}", evidence.met);
}

#[test]
fn nobody_sees_how_iptables_nft_is_traced() {
    nobody_sees(Backend::Nft);
}

#[test]
fn nobody_sees_how_iptables_legacy_is_traced() {
    nobody_sees(Backend::Legacy);
}
