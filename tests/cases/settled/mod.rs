//! Tests which timeouts are settled. A settled timeout is proven, so that a longer wait gives the
//! same verdict; other timeouts must not be settled.

mod drops;
mod native;

use std::time::Duration;

use libtest_mimic::Trial;
use svclab_model::evidence::{Attempt, Verdict};
use svclab_model::plan::{
    Backend, CommandLimits, Iptables, NodeCommand, Plan, ProbeProtocol, Sysctl,
};
use svclab_ruleset::input::Input;
use svclab_runner::kernel::Host;
use svclab_test_support::evidence::single_stage;
use svclab_test_support::programs::agent;
use svclab_test_support::{block_on, small_plan};

/// Wait for probes without settled timeouts, with three retransmissions of a SYN.
const MAX_WAIT: Duration = Duration::from_secs(8);

/// Time in which a provable timeout is proven on any machine, even if busy.
const MAX_PROOF_TIME: Duration = Duration::from_mins(1);

/// A SYN is retransmitted after 1 s; later replies do not answer the first SYN.
const RETRANSMISSION_TIME: Duration = Duration::from_millis(900);

/// Enough connections for both results of a random choice to occur.
const MANY_CONNECTIONS: u32 = 32;

/// DNAT rules for a service: to one of two ports at random, and to a single port.
const DNAT_RANDOM: &str = "-A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -m statistic --mode random \
                      --probability 0.5 -j DNAT --to-destination 10.0.2.2:8080\n\
                      -A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT --to-destination \
                      10.0.2.2:9999\n";
const DNAT_SINGLE: &str = "-A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT --to-destination \
                   10.0.2.2:9999\n";
const DNAT_TO_ANSWERING_PORT: &str = "-A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT \
                                      --to-destination 10.0.2.2:8080\n";

/// A client, a router, and a server with two ports.
struct Lab {
    backend: Backend,
    /// Rules of the router's `nat` and `filter` tables, and of the server's `filter` table.
    nat: &'static str,
    router: &'static str,
    server: &'static str,
    setting: Option<(&'static str, &'static str)>,
    /// Input of `ipset restore`, and a command, on the router.
    sets: &'static str,
    command: &'static [&'static str],
    protocol: ProbeProtocol,
    connections: u32,
    /// nftables tables of the router and of the server, in place of these rules.
    tables: Option<[String; 2]>,
}

impl Lab {
    const fn new(backend: Backend, nat: &'static str) -> Self {
        Self {
            backend,
            nat,
            router: "",
            server: "",
            setting: None,
            sets: "",
            command: &[],
            protocol: ProbeProtocol::Tcp,
            connections: MANY_CONNECTIONS,
            tables: None,
        }
    }

    /// Creates a lab with nftables tables.
    fn with_tables(router: String, server: &str) -> Self {
        Self {
            tables: Some([router, server.to_owned()]),
            ..Self::new(Backend::Nft, "")
        }
    }

    fn plan(&self, settle: bool, patience: Duration) -> Plan {
        let mut plan = small_plan();
        for namespace in &mut plan.namespaces {
            namespace.ipset = Input::default();
            let (nat, filter) = match namespace.name.as_str() {
                "router" => (self.nat, self.router),
                "pod/default/web" => ("", self.server),
                _ => continue,
            };
            if let Some([router, server]) = &self.tables {
                namespace.iptables = None;
                let of_router = namespace.name == "router";
                let tables = if of_router { router } else { server };
                namespace.nft = Input::from_text(tables.as_str());
            } else {
                namespace.iptables = Some(Iptables {
                    backend: self.backend,
                    v4: Input::from_text(format!("*nat\n{nat}COMMIT\n*filter\n{filter}COMMIT\n")),
                    v6: Input::default(),
                });
            }
            if namespace.name == "router" {
                namespace.ipset = Input::from_text(self.sets);
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
        if !self.command.is_empty() {
            plan.commands.push(NodeCommand {
                namespace: "router".to_owned(),
                command: self.command.iter().map(|word| (*word).to_owned()).collect(),
                input: String::new(),
                limits: CommandLimits::default(),
            });
        }
        plan.stages[0]
            .probes
            .retain(|probe| probe.name == "service");
        let probe = &mut plan.stages[0].probes[0];
        probe.protocol = self.protocol;
        if self.protocol == ProbeProtocol::Udp {
            probe.target.address = "10.0.2.2".parse().expect("an address");
            probe.target.port = 8080;
        }
        (probe.connections, probe.max_wait, probe.settle) = (self.connections, patience, settle);
        plan
    }

    fn run(&self, settle: bool, patience: Duration) -> Vec<Attempt> {
        block_on(async {
            let agent = Host::with_agent(agent()).start().await.expect("an agent");
            let mut session = agent
                .build(self.plan(settle, patience))
                .await
                .expect("a lab");
            let evidence = single_stage(session.probe().await.expect("evidence"));
            // The agent records the proof internally, without adding it to the requested evidence.
            assert!(evidence.trace.is_empty() && evidence.conntrack.is_empty());
            let is_unrequested =
                |packet: &svclab_model::evidence::Packet| packet.namespace != "router";
            assert!(!evidence.packets.iter().any(is_unrequested));
            evidence.attempts
        })
    }

    /// Asserts that every timeout is settled, and that a long wait gives the same set of verdicts.
    /// No retransmission may connect.
    fn assert_settled(&self, wanted: &[Verdict]) {
        let attempts = self.run(true, MAX_PROOF_TIME);
        assert_eq!(distinct_verdicts(&attempts), wanted, "{attempts:#?}");
        for attempt in &attempts {
            let is_timeout = attempt.verdict == Verdict::Timeout;
            assert_eq!(attempt.settled, is_timeout, "{attempt:#?}");
        }
        let late = self.run(false, MAX_WAIT);
        assert_eq!(distinct_verdicts(&late), wanted, "{late:#?}");
        let is_retransmission_success = |candidate: &&Attempt| {
            candidate.verdict == Verdict::Connected && candidate.duration > RETRANSMISSION_TIME
        };
        assert_eq!(late.iter().find(is_retransmission_success), None);
        assert!(!late.iter().any(|attempt| attempt.settled));
    }

    /// Asserts that no timeout is settled.
    fn assert_not_settled(&self) -> Vec<Attempt> {
        let attempts = self.run(true, MAX_WAIT);
        let settled = attempts.iter().find(|attempt| attempt.settled);
        assert_eq!(settled, None);
        attempts
    }
}

/// Returns the distinct verdicts in order.
fn distinct_verdicts(attempts: &[Attempt]) -> Vec<Verdict> {
    let mut values: Vec<Verdict> = attempts.iter().map(|attempt| attempt.verdict).collect();
    values.sort();
    values.dedup();
    values
}

/// Trials that run with both iptables backends.
type NamedTrial = (&'static str, fn(Backend));
const TRIALS: [NamedTrial; 16] = [
    (
        "drop before confirmation is not settled",
        dropped_before_confirmation_is_not_settled,
    ),
    (
        "drop after confirmation is settled",
        dropped_after_confirmation_is_settled,
    ),
    (
        "drop without a random choice is settled",
        dropped_without_random_choice_is_settled,
    ),
    ("dropped reply is settled", dropped_reply_is_settled),
    (
        "drop by chain policy is settled",
        dropped_by_policy_is_settled,
    ),
    (
        "random drop is not settled",
        dropped_at_random_is_not_settled,
    ),
    (
        "drop after a random chain is not settled",
        dropped_after_random_chain_is_not_settled,
    ),
    (
        "drop with an expiring entry is not settled",
        dropped_with_expiring_entry_is_not_settled,
    ),
    (
        "drop by a set entry is settled",
        dropped_by_set_entry_is_settled,
    ),
    (
        "drop by an expiring set entry is not settled",
        dropped_by_expiring_set_entry_is_not_settled,
    ),
    (
        "drop by the counter of a set entry is not settled",
        dropped_by_set_counter_is_not_settled,
    ),
    (
        "drop with a running command is not settled",
        dropped_with_running_command_is_not_settled,
    ),
    (
        "drop with an expiring address is not settled",
        dropped_with_expiring_address_is_not_settled,
    ),
    (
        "reject without ICMP is not settled",
        rejected_without_icmp_is_not_settled,
    ),
    (
        "datagram reject without ICMP is not settled",
        datagram_rejected_without_icmp_is_not_settled,
    ),
    (
        "random datagram drop is settled",
        datagram_dropped_at_random_is_settled,
    ),
];

pub fn trials() -> Vec<Trial> {
    let trials = [Backend::Nft, Backend::Legacy].map(|backend| {
        TRIALS.map(|(name, trial)| {
            let name = format!("{} {name}", backend.name());
            Trial::test(name, move || {
                trial(backend);
                Ok(())
            })
        })
    });
    let others = [("tables", &native::TRIALS[..]), ("kernel", &drops::TRIALS)];
    let others = others.into_iter().flat_map(|(kind, trials)| {
        trials.iter().map(move |(name, trial)| {
            Trial::test(format!("{kind}: {name}"), move || {
                trial();
                Ok(())
            })
        })
    });
    trials.into_iter().flatten().chain(others).collect()
}

// The router drops the packet before conntrack confirms the entry, so a random choice decides the
// next SYN again.
fn dropped_before_confirmation_is_not_settled(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -p tcp --dport 9999 -j DROP\n",
        ..Lab::new(backend, DNAT_RANDOM)
    };
    let attempts = lab.assert_not_settled();
    let is_retransmission_success = |candidate: &Attempt| {
        candidate.verdict == Verdict::Connected && candidate.duration > RETRANSMISSION_TIME
    };
    assert!(
        attempts.iter().any(is_retransmission_success),
        "{attempts:#?}"
    );
}

// The router's conntrack entry with the choice is confirmed.
fn dropped_after_confirmation_is_settled(backend: Backend) {
    let lab = Lab {
        server: "-A INPUT -p tcp --dport 9999 -j DROP\n",
        ..Lab::new(backend, DNAT_RANDOM)
    };
    lab.assert_settled(&[Verdict::Connected, Verdict::Timeout]);
}

fn dropped_without_random_choice_is_settled(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -p tcp --dport 9999 -j DROP\n",
        ..Lab::new(backend, DNAT_SINGLE)
    };
    lab.assert_settled(&[Verdict::Timeout]);
}

fn dropped_reply_is_settled(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -s 10.0.2.2/32 -p tcp --sport 9999 -j DROP\n",
        ..Lab::new(backend, DNAT_RANDOM)
    };
    lab.assert_settled(&[Verdict::Connected, Verdict::Timeout]);
}

fn dropped_by_policy_is_settled(backend: Backend) {
    let lab = Lab {
        router: ":FORWARD DROP [0:0]\n",
        ..Lab::new(backend, DNAT_SINGLE)
    };
    lab.assert_settled(&[Verdict::Timeout]);
}

fn dropped_at_random_is_not_settled(backend: Backend) {
    let coin = "-A FORWARD -p tcp --syn -m statistic --mode random --probability 0.5 -j DROP\n";
    let lab = Lab {
        router: coin,
        ..Lab::new(backend, DNAT_SINGLE)
    };
    let attempts = lab.assert_not_settled();
    let saved = |candidate: &Attempt| {
        candidate.verdict == Verdict::Connected && candidate.duration > RETRANSMISSION_TIME
    };
    assert!(attempts.iter().any(saved), "{attempts:#?}");
}

// A chain without a matching rule produces no trace event.
fn dropped_after_random_chain_is_not_settled(backend: Backend) {
    let coin = ":COIN - [0:0]\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n\
                -A FORWARD -j COIN\n-A FORWARD -p tcp --dport 9999 -j DROP\n\
                -A COIN -p tcp --syn -m statistic --mode random --probability 0.3 -j ACCEPT\n";
    let lab = Lab {
        router: coin,
        ..Lab::new(backend, DNAT_SINGLE)
    };
    let attempts = lab.assert_not_settled();
    let saved = |candidate: &Attempt| {
        candidate.verdict == Verdict::Connected && candidate.duration > RETRANSMISSION_TIME
    };
    assert!(attempts.iter().any(saved), "{attempts:#?}");
}

// The conntrack entry with the choice expires before the retransmission.
fn dropped_with_expiring_entry_is_not_settled(backend: Backend) {
    let lab = Lab {
        server: "-A INPUT -p tcp --dport 9999 -j DROP\n",
        setting: Some(("net.netfilter.nf_conntrack_tcp_timeout_syn_sent", "1")),
        ..Lab::new(backend, DNAT_RANDOM)
    };
    lab.assert_not_settled();
}

const DROP_CLIENTS_OF_SET: &str = "-A FORWARD -m set --match-set clients src -j DROP\n";

fn dropped_by_set_entry_is_settled(backend: Backend) {
    let lab = Lab {
        router: DROP_CLIENTS_OF_SET,
        sets: "create clients hash:ip family inet\nadd clients 10.0.1.2\n",
        ..Lab::new(backend, DNAT_SINGLE)
    };
    lab.assert_settled(&[Verdict::Timeout]);
}

fn dropped_by_expiring_set_entry_is_not_settled(backend: Backend) {
    let lab = Lab {
        router: DROP_CLIENTS_OF_SET,
        sets: "create clients hash:ip family inet timeout 0\nadd clients 10.0.1.2 timeout 2\n",
        ..Lab::new(backend, DNAT_TO_ANSWERING_PORT)
    };
    assert_retransmission_connects(&lab);
}

// The second SYN exceeds the counter of the entry.
fn dropped_by_set_counter_is_not_settled(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -p tcp --syn -m set --match-set clients src --packets-gt 1 -j ACCEPT\n\
                 -A FORWARD -p tcp --syn -j DROP\n",
        sets: "create clients hash:ip family inet counters\nadd clients 10.0.1.2\n",
        connections: 1,
        ..Lab::new(backend, DNAT_TO_ANSWERING_PORT)
    };
    assert_retransmission_connects(&lab);
}

// The command left a process running that changes the rules.
fn dropped_with_running_command_is_not_settled(backend: Backend) {
    let command: &[&str] = match backend {
        Backend::Nft => &["sh", "-c", "(sleep 1; iptables-nft -F FORWARD) >&- 2>&- &"],
        Backend::Legacy => &[
            "sh",
            "-c",
            "(sleep 1; iptables-legacy -F FORWARD) >&- 2>&- &",
        ],
    };
    let lab = Lab {
        router: "-A FORWARD -p tcp --syn -j DROP\n",
        command,
        ..Lab::new(backend, DNAT_TO_ANSWERING_PORT)
    };
    assert_retransmission_connects(&lab);
}

// The address of the server is the router's own until it expires.
fn dropped_with_expiring_address_is_not_settled(backend: Backend) {
    let lab = Lab {
        router: "-A INPUT -d 10.0.2.2/32 -j DROP\n",
        command: &[
            "ip",
            "address",
            "add",
            "10.0.2.2/32",
            "dev",
            "lo",
            "valid_lft",
            "2",
            "preferred_lft",
            "2",
        ],
        ..Lab::new(backend, DNAT_TO_ANSWERING_PORT)
    };
    assert_retransmission_connects(&lab);
}

/// Asserts that the SYN is dropped, and that a retransmission connects.
fn assert_retransmission_connects(lab: &Lab) {
    let is_late = |attempt: &Attempt| {
        attempt.verdict == Verdict::Connected && attempt.duration > RETRANSMISSION_TIME
    };
    let attempts = lab.assert_not_settled();
    assert!(attempts.iter().any(is_late), "{attempts:#?}");
}

// The kernel limits ICMP errors per second: the next SYN may get an error.
fn rejected_without_icmp_is_not_settled(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -p tcp --dport 9999 -j REJECT\n-A OUTPUT -p icmp -j DROP\n",
        ..Lab::new(backend, DNAT_SINGLE)
    };
    lab.assert_not_settled();
}

// The ICMP error may arrive late.
fn datagram_rejected_without_icmp_is_not_settled(backend: Backend) {
    let lab = Lab {
        router: "-A FORWARD -p udp --dport 8080 -j REJECT\n-A OUTPUT -p icmp -j DROP\n",
        protocol: ProbeProtocol::Udp,
        ..Lab::new(backend, "")
    };
    lab.assert_not_settled();
}

// A datagram is sent once, so the random choice does not matter.
fn datagram_dropped_at_random_is_settled(backend: Backend) {
    let coin =
        "-A FORWARD -p udp --dport 8080 -m statistic --mode random --probability 0.5 -j DROP\n";
    let lab = Lab {
        router: coin,
        protocol: ProbeProtocol::Udp,
        ..Lab::new(backend, "")
    };
    let attempts = lab.run(true, MAX_WAIT);
    assert_eq!(
        distinct_verdicts(&attempts),
        [Verdict::Answered, Verdict::Timeout]
    );
    for attempt in &attempts {
        assert_eq!(
            attempt.settled,
            attempt.verdict == Verdict::Timeout,
            "{attempt:#?}"
        );
    }
}
