//! Stops the agent for longer than any of its timeouts. The verdicts must equal those of an agent
//! that is never stopped.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::libc::{SIGCONT, SIGSTOP};
use svclab_model::evidence::{StageEvidence, Verdict};
use svclab_model::plan::{
    Lifetime, Plan, Probe, ProbeProtocol, Server, ServerKind, Sysctl, Target,
};
use svclab_model::protocol::{Event, FailureKind, Request};
use svclab_ruleset::input::Input;
use svclab_test_support::evidence::single_stage;
use svclab_test_support::small_plan;

use super::attempts_of_probe;
use super::conversation::{Conversation, User};
use super::processes::Processes;

/// Time for which the agent is stopped; longer than the impatient probe waits and than the balancer
/// waits for a backend.
const STOPPED: Duration = Duration::from_millis(700);

/// Time that the balancer waits for a backend that drops packets.
const RETRY_AFTER: Duration = Duration::from_millis(600);

/// Pauses between two stops in milliseconds; different, so that each stop occurs at another phase.
const RUNS: [u64; 7] = [1, 17, 4, 29, 9, 2, 13];

fn probe(name: &str, to: &str, max_wait: Duration) -> Probe {
    let to: std::net::SocketAddr = to.parse().expect("an address and a port");
    Probe {
        name: name.to_owned(),
        namespace: "host/client".to_owned(),
        target: Target {
            address: to.ip(),
            port: to.port(),
        },
        protocol: ProbeProtocol::Tcp,
        connections: 1,
        concurrency: None,
        bind: None,
        source_port: None,
        bytes: None,
        datagrams: NonZeroU32::MIN,
        max_wait,
        settle: false,
        after: None,
        lifetime: Lifetime::Stage,
    }
}

fn insert_rule(plan: &mut Plan, table: &str, rule: &str) {
    let router = plan.namespaces.iter_mut().find(|ns| ns.name == "router");
    let rules = router.and_then(|ns| ns.iptables.as_mut()).expect("rules");
    let begin = format!("*{table}\n");
    let text = rules.v4.text();
    assert!(text.contains(&begin));
    rules.v4 = Input::from_text(text.replacen(&begin, &format!("{begin}{rule}\n"), 1));
}

/// Returns a plan with two L7 balancers whose first backend drops packets. A probe that waits for
/// less than [`RETRY_AFTER`] times out, and one that waits longer connects.
fn plan_with_balancers() -> Plan {
    plan_with_first_backend("10.0.2.2:9998", RETRY_AFTER)
}

/// Returns the same plan with another first backend and another wait of the balancers.
fn plan_with_first_backend(first: &str, retry_after: Duration) -> Plan {
    let mut plan = small_plan();
    insert_rule(&mut plan, "filter", "-A OUTPUT -p tcp --dport 9998 -j DROP");
    for (name, port, patience) in [("impatient", 7000, 300), ("patient", 7001, 5000)] {
        plan.servers.push(Server {
            namespace: "router".to_owned(),
            name: name.to_owned(),
            address: None,
            protocol: ProbeProtocol::Tcp,
            port,
            kind: ServerKind::L7Proxy {
                backends: [first, "10.0.2.2:8080"]
                    .map(|to| to.parse().expect("an address and a port"))
                    .to_vec(),
                retry_after,
            },
        });
        let to = format!("10.0.1.1:{port}");
        let patience = Duration::from_millis(patience);
        plan.stages[0].probes.push(probe(name, &to, patience));
    }
    plan
}

fn verdicts(evidence: &StageEvidence, probe: &str) -> Vec<Verdict> {
    let attempts = attempts_of_probe(evidence, probe);
    attempts.iter().map(|attempt| attempt.verdict).collect()
}

fn recv_evidence(agent: &mut Conversation) -> StageEvidence {
    match agent.recv_answer() {
        Event::Probed { lab: 1, evidence } => single_stage(*evidence),
        other => panic!("{other:?}"),
    }
}

/// Stops and continues the agent by turns until `over` is set.
fn stop_and_continue_until(processes: &Processes, over: &AtomicBool) {
    for run in RUNS.iter().cycle() {
        if over.load(Ordering::SeqCst) {
            return;
        }
        processes.signal_agent(SIGSTOP);
        thread::sleep(STOPPED);
        processes.signal_agent(SIGCONT);
        thread::sleep(Duration::from_millis(*run));
    }
}

#[test]
fn agent_stopped_repeatedly_gives_same_verdicts() {
    let mut agent = Conversation::start_ready(User::Same);
    agent.build(1, plan_with_balancers());
    let processes = agent.processes();
    let over = AtomicBool::new(false);
    agent.send(&Request::Probe { lab: 1 });
    agent.await_step("run its probes");
    let evidence = thread::scope(|scope| {
        scope.spawn(|| stop_and_continue_until(&processes, &over));
        let evidence = recv_evidence(&mut agent);
        over.store(true, Ordering::SeqCst);
        evidence
    });
    let expected = [
        ("service", vec![Verdict::Connected; 2]),
        ("blocked", vec![Verdict::Timeout]),
        ("datagram", vec![Verdict::Answered]),
        ("alive", vec![Verdict::Answered]),
        ("refused6", vec![Verdict::Refused]),
        ("tunnel", vec![Verdict::Connected]),
        ("closed", vec![Verdict::Refused]),
        ("impatient", vec![Verdict::Silent]),
        ("patient", vec![Verdict::Connected]),
    ];
    for (probe, expected) in expected {
        assert_eq!(verdicts(&evidence, probe), expected, "{probe}");
    }
    assert!(evidence.delay_ms >= 1000, "{}", evidence.delay_ms);
}

/// Runs a probe whose second SYN, sent after 1 s, passes the filter. The agent is stopped until the
/// reply to that SYN has arrived.
fn probe_second_syn(patience: Duration) -> Verdict {
    let mut plan = small_plan();
    let second = "-A FORWARD -p tcp --syn --dport 8080 -m statistic --mode nth --every 1000";
    // Each rule is inserted at the top, so the first one here matches last.
    insert_rule(
        &mut plan,
        "filter",
        "-A FORWARD -p tcp --syn --dport 8080 -j DROP",
    );
    insert_rule(
        &mut plan,
        "filter",
        &format!("{second} --packet 1 -j ACCEPT"),
    );
    let client = plan
        .namespaces
        .iter_mut()
        .find(|ns| ns.name == "host/client");
    client.expect("a client").sysctls.push(Sysctl {
        key: "net.ipv4.tcp_syn_linear_timeouts".to_owned(),
        value: "0".to_owned(),
        link: None,
        optional: true,
    });
    plan.stages[0].probes = vec![probe("call", "10.0.2.2:8080", patience)];
    let mut agent = Conversation::start_ready(User::Same);
    agent.build(1, plan);
    let processes = agent.processes();
    agent.send(&Request::Probe { lab: 1 });
    agent.await_step("run its probes");
    processes.signal_agent(SIGSTOP);
    thread::sleep(Duration::from_millis(1800));
    processes.signal_agent(SIGCONT);
    let evidence = recv_evidence(&mut agent);
    let [verdict] = verdicts(&evidence, "call")[..] else {
        panic!("{evidence:#?}");
    };
    verdict
}

#[test]
fn syn_resent_after_max_wait_agent_stopped_is_timeout() {
    assert_eq!(
        probe_second_syn(Duration::from_millis(500)),
        Verdict::Timeout
    );
}

#[test]
fn syn_resent_within_max_wait_agent_stopped_is_connected() {
    assert_eq!(
        probe_second_syn(Duration::from_millis(1500)),
        Verdict::Connected
    );
}

#[test]
fn backend_unresolved_agent_stopped_returns_failure() {
    let mut plan = plan_with_first_backend("10.0.2.99:8080", Duration::from_secs(10));
    plan.stages[0]
        .probes
        .retain(|probe| probe.name == "impatient");
    plan.stages[0].probes[0].max_wait = Duration::from_secs(8);
    let mut agent = Conversation::start_ready(User::Same);
    agent.build(1, plan);
    let processes = agent.processes();
    agent.send(&Request::Probe { lab: 1 });
    agent.await_step("run its probes");
    // Meanwhile the balancer accepts the connection, and its kernel starts to resolve the backend's
    // address, which fails after 3 s.
    thread::sleep(Duration::from_secs(1));
    processes.signal_agent(SIGSTOP);
    thread::sleep(Duration::from_secs(5));
    processes.signal_agent(SIGCONT);
    let Event::Failed { lab: 1, failure } = agent.recv_answer() else {
        panic!("the probe has a verdict");
    };
    assert_eq!(failure.kind, FailureKind::TooBusy);
    assert_eq!(
        failure.message,
        "this machine is too busy for a verdict on the probes: a load balancer was delayed while \
         the kernel ended its connection to a backend"
    );
}
