//! Tests that a trace is invisible to other processes: not in listed rules, and nowhere after the
//! probes.

use svclab_model::evidence::Verdict;
use svclab_model::evidence::trace::TracePoint;
use svclab_model::plan::Backend;
use svclab_test_support::evidence::single_stage;

use super::inside::{self, Inside};
use super::with_agent;

/// Commands that list rules. Listing legacy tables creates them.
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
    fn list_all(&self, backend: Backend) -> Vec<String> {
        let legacy = LEGACY.iter().filter(|_| backend == Backend::Legacy);
        let commands = legacy.chain(&NFT);
        commands.map(|command| self.run(command)).collect()
    }

    /// Lists everything once packets are traced, then lets the probe through.
    fn list_and_let_through(&self, backend: Backend) -> (Vec<String>, String) {
        self.await_trace();
        let (rules, loggers) = (self.list_all(backend), self.run(LOGGERS));
        // The trace is still active.
        assert!(self.is_traced());
        self.let_through(backend);
        (rules, loggers)
    }
}

fn assert_trace_invisible(backend: Backend) {
    let evidence = with_agent(async |agent| {
        let mut session = agent.build(inside::plan(backend)).await.expect("a lab");
        let inside = Inside::new(&session);
        let before = (inside.list_all(backend), inside.run(LOGGERS));
        assert!(!inside.is_traced());
        let looking = std::thread::spawn(move || (inside.list_and_let_through(backend), inside));
        let evidence = single_stage(session.probe().await.expect("evidence"));
        let (during, inside) = looking.join().expect("the thread ends");
        assert_eq!(during.0, before.0);
        assert!(!inside.is_traced());
        assert_eq!(during.1, "nfnetlink_log\nnfnetlink_log\n");
        assert_eq!(inside.run(LOGGERS), before.1);
        evidence
    });
    assert_eq!(evidence.attempts[0].verdict, Verdict::Connected);
    // The trace names the deleted rule by its former line.
    let dropped = evidence.trace.iter().filter(|met| {
        (met.table.as_str(), met.chain.as_str(), met.point)
            == ("filter", "FORWARD", TracePoint::Rule(2))
    });
    assert!(dropped.count() > 0, "{:#?}", evidence.trace);
}

#[test]
fn trace_iptables_nft_is_invisible_to_others() {
    assert_trace_invisible(Backend::Nft);
}

#[test]
fn trace_iptables_legacy_is_invisible_to_others() {
    assert_trace_invisible(Backend::Legacy);
}
