//! Tests which timeouts are settled. A settled timeout is proven, so that a longer wait gives the
//! same verdict; other timeouts must not be settled.

mod native;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use svclab_model::evidence::{Attempt, Verdict};
use svclab_model::plan::{Backend, Iptables, Plan, Protocol, Sysctl};
use svclab_runner::kernel::Host;
use tokio::runtime::Builder;

/// Wait for probes without settled timeouts, with three retransmissions of a SYN.
const PATIENCE: Duration = Duration::from_secs(8);

/// Time in which a provable timeout is proven on any machine, even if busy.
const LONG: Duration = Duration::from_mins(1);

/// A SYN is retransmitted after 1 s; later replies do not answer the first SYN.
const AGAIN: Duration = Duration::from_millis(900);

/// Enough connections for both results of a random choice to occur.
const MANY: u32 = 32;

/// DNAT rules for a service: to one of two ports at random, and to a single port.
const EITHER: &str = "-A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -m statistic --mode random \
                      --probability 0.5 -j DNAT --to-destination 10.0.2.2:8080\n\
                      -A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT --to-destination \
                      10.0.2.2:9999\n";
const ONE: &str = "-A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT --to-destination \
                   10.0.2.2:9999\n";

/// A client, a router, and a server with two ports.
struct Lab {
    backend: Backend,
    /// Rules of the router's `nat` and `filter` tables, and of the server's `filter` table.
    nat: &'static str,
    router: &'static str,
    server: &'static str,
    setting: Option<(&'static str, &'static str)>,
    protocol: Protocol,
    connections: u32,
    /// nftables tables of the router and of the server, in place of these rules.
    tables: Option<[String; 2]>,
}

impl Lab {
    const fn of(backend: Backend, nat: &'static str) -> Self {
        Self {
            backend,
            nat,
            router: "",
            server: "",
            setting: None,
            protocol: Protocol::Tcp,
            connections: MANY,
            tables: None,
        }
    }

    /// Creates a lab with nftables tables.
    fn native(router: String, server: &str) -> Self {
        Self {
            tables: Some([router, server.to_owned()]),
            ..Self::of(Backend::Nft, "")
        }
    }

    fn plan(&self, settle: bool, patience: Duration) -> Plan {
        let mut plan: Plan =
            serde_json::from_str(include_str!("../plans/small.json")).expect("a plan");
        for namespace in &mut plan.namespaces {
            namespace.ipset.clear();
            let (nat, filter) = match namespace.name.as_str() {
                "router" => (self.nat, self.router),
                "pod/default/web" => ("", self.server),
                _ => continue,
            };
            if let Some([router, server]) = &self.tables {
                namespace.iptables = None;
                let of_router = namespace.name == "router";
                namespace
                    .nft
                    .clone_from(if of_router { router } else { server });
            } else {
                namespace.iptables = Some(Iptables {
                    backend: self.backend,
                    v4: format!("*nat\n{nat}COMMIT\n*filter\n{filter}COMMIT\n"),
                    v6: String::new(),
                });
            }
            if let Some((key, value)) = self.setting.filter(|_| namespace.name == "router") {
                namespace.sysctls.push(Sysctl {
                    key: key.to_owned(),
                    value: value.to_owned(),
                    link: None,
                    optional: false,
                });
            }
        }
        plan.probes.retain(|probe| probe.name == "service");
        let probe = &mut plan.probes[0];
        probe.protocol = self.protocol;
        if self.protocol == Protocol::Udp {
            probe.to.address = "10.0.2.2".parse().expect("an address");
            probe.to.port = 8080;
        }
        (probe.connections, probe.patience, probe.settle) = (self.connections, patience, settle);
        plan
    }

    fn run(&self, settle: bool, patience: Duration) -> Vec<Attempt> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let host = Host::with_agent(PathBuf::from(env!("CARGO_BIN_EXE_svclab-agent")));
            let agent = host.start().await.expect("an agent");
            let mut session = agent
                .build(self.plan(settle, patience))
                .await
                .expect("a lab");
            let evidence = session.probe().await.expect("evidence");
            // The agent records the proof internally, without adding it to the requested evidence.
            assert!(evidence.met.is_empty() && evidence.connections.is_empty());
            let unasked = |packet: &svclab_model::evidence::Packet| packet.namespace != "router";
            assert!(!evidence.packets.iter().any(unasked));
            evidence.attempts
        })
    }

    /// Asserts that every timeout is settled, and that a long wait gives the same set of verdicts.
    /// No retransmission may connect.
    fn is_settled(&self, wanted: &[Verdict]) {
        let attempts = self.run(true, LONG);
        assert_eq!(verdicts(&attempts), wanted, "{attempts:#?}");
        for attempt in &attempts {
            let is_timeout = attempt.verdict == Verdict::Timeout;
            assert_eq!(attempt.settled, is_timeout, "{attempt:#?}");
        }
        let late = self.run(false, PATIENCE);
        assert_eq!(verdicts(&late), wanted, "{late:#?}");
        let saved = |one: &&Attempt| one.verdict == Verdict::Connected && one.took > AGAIN;
        assert_eq!(late.iter().find(saved), None);
        assert!(!late.iter().any(|attempt| attempt.settled));
    }

    /// Asserts that no timeout is settled.
    fn is_waited_for(&self) -> Vec<Attempt> {
        let attempts = self.run(true, PATIENCE);
        let settled = attempts.iter().find(|attempt| attempt.settled);
        assert_eq!(settled, None);
        attempts
    }
}

/// Returns the distinct verdicts in order.
fn verdicts(attempts: &[Attempt]) -> Vec<Verdict> {
    let mut all: Vec<Verdict> = attempts.iter().map(|attempt| attempt.verdict).collect();
    all.sort();
    all.dedup();
    all
}

/// Trials that run with both iptables backends.
type Tried = (&'static str, fn(Backend));
const TRIALS: [Tried; 11] = [
    (
        "what is dropped where it was chosen is waited for",
        what_is_dropped_where_it_was_chosen_is_waited_for,
    ),
    (
        "what is dropped behind where it was chosen is settled",
        what_is_dropped_behind_where_it_was_chosen_is_settled,
    ),
    (
        "what had no choice is settled where it is dropped",
        what_had_no_choice_is_settled_where_it_is_dropped,
    ),
    (
        "an answer that is dropped is settled",
        an_answer_that_is_dropped_is_settled,
    ),
    (
        "a policy settles as a rule does",
        a_policy_settles_as_a_rule_does,
    ),
    (
        "what a coin drops is waited for",
        what_a_coin_drops_is_waited_for,
    ),
    (
        "what came by a coin is waited for",
        what_came_by_a_coin_is_waited_for,
    ),
    (
        "what is soon forgotten is waited for",
        what_is_soon_forgotten_is_waited_for,
    ),
    (
        "what is refused without a word is waited for",
        what_is_refused_without_a_word_is_waited_for,
    ),
    (
        "a datagram that is refused without a word is waited for",
        a_datagram_that_is_refused_without_a_word_is_waited_for,
    ),
    (
        "a datagram that is dropped is settled",
        a_datagram_that_is_dropped_is_settled,
    ),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The trials mostly wait.
    arguments.test_threads.get_or_insert(2 * TRIALS.len());
    let trials = [Backend::Nft, Backend::Legacy].map(|backend| {
        TRIALS.map(|(name, trial)| {
            let name = format!("{} {name}", backend.word());
            Trial::test(name, move || {
                trial(backend);
                Ok(())
            })
        })
    });
    let native = native::TRIALS.map(|(name, trial)| {
        Trial::test(format!("tables: {name}"), move || {
            trial();
            Ok(())
        })
    });
    let trials = trials.into_iter().flatten().chain(native).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

// The router drops the packet before conntrack confirms the entry, so a random choice decides the
// next SYN again.
fn what_is_dropped_where_it_was_chosen_is_waited_for(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -p tcp --dport 9999 -j DROP\n",
        ..Lab::of(backend, EITHER)
    };
    let attempts = lab.is_waited_for();
    let saved = |one: &Attempt| one.verdict == Verdict::Connected && one.took > AGAIN;
    assert!(attempts.iter().any(saved), "{attempts:#?}");
}

// The router's conntrack entry with the choice is confirmed.
fn what_is_dropped_behind_where_it_was_chosen_is_settled(backend: Backend) {
    let lab = Lab {
        server: "-A INPUT -p tcp --dport 9999 -j DROP\n",
        ..Lab::of(backend, EITHER)
    };
    lab.is_settled(&[Verdict::Connected, Verdict::Timeout]);
}

fn what_had_no_choice_is_settled_where_it_is_dropped(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -p tcp --dport 9999 -j DROP\n",
        ..Lab::of(backend, ONE)
    };
    lab.is_settled(&[Verdict::Timeout]);
}

fn an_answer_that_is_dropped_is_settled(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -s 10.0.2.2/32 -p tcp --sport 9999 -j DROP\n",
        ..Lab::of(backend, EITHER)
    };
    lab.is_settled(&[Verdict::Connected, Verdict::Timeout]);
}

fn a_policy_settles_as_a_rule_does(backend: Backend) {
    let lab = Lab {
        router: ":FORWARD DROP [0:0]\n",
        ..Lab::of(backend, ONE)
    };
    lab.is_settled(&[Verdict::Timeout]);
}

fn what_a_coin_drops_is_waited_for(backend: Backend) {
    let coin = "-A FORWARD -p tcp --syn -m statistic --mode random --probability 0.5 -j DROP\n";
    let lab = Lab {
        router: coin,
        ..Lab::of(backend, ONE)
    };
    let attempts = lab.is_waited_for();
    let saved = |one: &Attempt| one.verdict == Verdict::Connected && one.took > AGAIN;
    assert!(attempts.iter().any(saved), "{attempts:#?}");
}

// A chain without a matching rule produces no trace event.
fn what_came_by_a_coin_is_waited_for(backend: Backend) {
    let coin = ":COIN - [0:0]\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n\
                -A FORWARD -j COIN\n-A FORWARD -p tcp --dport 9999 -j DROP\n\
                -A COIN -p tcp --syn -m statistic --mode random --probability 0.3 -j ACCEPT\n";
    let lab = Lab {
        router: coin,
        ..Lab::of(backend, ONE)
    };
    let attempts = lab.is_waited_for();
    let saved = |one: &Attempt| one.verdict == Verdict::Connected && one.took > AGAIN;
    assert!(attempts.iter().any(saved), "{attempts:#?}");
}

// The conntrack entry with the choice expires before the retransmission.
fn what_is_soon_forgotten_is_waited_for(backend: Backend) {
    let lab = Lab {
        server: "-A INPUT -p tcp --dport 9999 -j DROP\n",
        setting: Some(("net.netfilter.nf_conntrack_tcp_timeout_syn_sent", "1")),
        ..Lab::of(backend, EITHER)
    };
    lab.is_waited_for();
}

// The kernel limits ICMP errors per second: the next SYN may get an error.
fn what_is_refused_without_a_word_is_waited_for(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -p tcp --dport 9999 -j REJECT\n-A OUTPUT -p icmp -j DROP\n",
        ..Lab::of(backend, ONE)
    };
    lab.is_waited_for();
}

// The ICMP error may arrive late.
fn a_datagram_that_is_refused_without_a_word_is_waited_for(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -p udp --dport 8080 -j REJECT\n-A OUTPUT -p icmp -j DROP\n",
        protocol: Protocol::Udp,
        ..Lab::of(backend, "")
    };
    lab.is_waited_for();
}

// A datagram is sent once, so the random choice does not matter.
fn a_datagram_that_is_dropped_is_settled(backend: Backend) {
    let coin =
        "-A FORWARD -p udp --dport 8080 -m statistic --mode random --probability 0.5 -j DROP\n";
    let lab = Lab {
        router: coin,
        protocol: Protocol::Udp,
        ..Lab::of(backend, "")
    };
    let attempts = lab.run(true, PATIENCE);
    assert_eq!(verdicts(&attempts), [Verdict::Answered, Verdict::Timeout]);
    for attempt in &attempts {
        assert_eq!(
            attempt.settled,
            attempt.verdict == Verdict::Timeout,
            "{attempt:#?}"
        );
    }
}
