//! What this host's kernel drops of a lab's packets, for who may ask and for who may
//! not, while others on the machine drop theirs.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;

use futures_util::future::join_all;
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use svclab::evidence::{Drops, Evidence, Verdict};
use svclab::kernel::Agent;
use svclab::plan::{Backend, Plan};

use super::inside::{self, Inside};
use super::rights::may_ask;
use super::{block_on, copied, dropped, host, traced};

/// Where a flood goes: nobody is there.
const FLOODED: &str = "127.0.0.1:9";

/// More than what is written down has room for.
const FLOOD: u64 = 40_000;

/// Somebody who may not ask is told so, and what would change it.
fn is_told_why(drops: &Drops) {
    let Drops::Uncertain(why) = drops else {
        panic!("{drops:?}");
    };
    insta::allow_duplicates! {
    insta::assert_snapshot!(why, @"the kernel does not let svclab trace what it drops: Operation not permitted; run svclab as root of the machine itself, or with CAP_BPF and CAP_PERFMON, or in a guest (`--kernel 6.12`)");
    }
}

async fn probe(agent: &Agent, plan: Plan) -> Evidence {
    let mut session = agent.build(plan).await.expect("a lab");
    session.probe().await.expect("evidence")
}

/// Both kinds of dying packets, at the same time: in one agent and in two.
fn several_at_once(backend: Backend) {
    let evidence: Vec<Evidence> = block_on(async {
        let (one, two) = (host().start().await, host().start().await);
        let (one, two) = (one.expect("an agent"), two.expect("an agent"));
        let labs = [
            probe(&one, dropped::plan(backend, 1, false)),
            probe(&one, dropped::plan(backend, 1, true)),
            probe(&two, dropped::plan(backend, 2, false)),
            probe(&two, dropped::plan(backend, 3, true)),
        ];
        join_all(labs).await
    });
    for (evidence, (times, short)) in
        evidence
            .iter()
            .zip([(1, false), (1, true), (2, false), (3, true)])
    {
        if may_ask() {
            dropped::check(evidence, times, short);
        } else {
            is_told_why(&evidence.drops);
        }
    }
}

#[test]
fn each_lab_s_drops_are_its_own_and_as_many_as_are_counted_nft() {
    several_at_once(Backend::Nft);
}

#[test]
fn each_lab_s_drops_are_its_own_and_as_many_as_are_counted_legacy() {
    several_at_once(Backend::Legacy);
}

/// Somebody's network namespace, in which many packets are dropped; returns how many
/// the kernel counted there.
fn flood() -> u64 {
    let doing = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.expect("ip starts").success());
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for _ in 0..FLOOD {
            socket
                .send_to(b"nobody's business", FLOODED)
                .expect("it is sent");
        }
        let counters = fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
        let mut lines = counters
            .lines()
            .filter_map(|line| line.strip_prefix("Udp: "));
        let (names, numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
        let mut counted = names.split(' ').zip(numbers.split(' '));
        let (_, number) = counted.find(|(name, _)| *name == "NoPorts").expect("it");
        number.parse().expect("a number")
    });
    doing.join().expect("a flood")
}

/// Were they written down and left out afterwards, they would find no room.
#[test]
fn what_others_drop_is_not_looked_at() {
    if !may_ask() {
        // Who may not ask cannot look at others either, and is told so.
        let evidence = block_on(async {
            let agent = host().start().await.expect("an agent");
            probe(&agent, traced::plan(Backend::Nft)).await
        });
        return is_told_why(&evidence.drops);
    }
    let evidence = block_on(async {
        let agent = host().start().await.expect("an agent");
        let mut session = agent
            .build(inside::plan(Backend::Nft))
            .await
            .expect("a lab");
        let inside = Inside::of(&session);
        let flooding = thread::spawn(move || {
            inside.await_trace();
            let counted = flood();
            inside.let_through(Backend::Nft);
            counted
        });
        let evidence = session.probe().await.expect("evidence");
        assert_eq!(flooding.join().expect("a flood"), FLOOD);
        evidence
    });
    assert_eq!(evidence.attempts[0].verdict, Verdict::Connected);
    let Drops::Watched { lost, dropped } = &evidence.drops else {
        panic!("{:?}", evidence.drops);
    };
    assert_eq!(*lost, 0);
    let blocked = dropped
        .iter()
        .filter(|each| each.reason == "NETFILTER_DROP");
    assert!(blocked.count() > 0, "{dropped:#?}");
    // The client and the pod are not watched.
    let elsewhere = dropped.iter().find(|each| each.namespace != "router");
    assert_eq!(elsewhere, None);
}

/// The evidence of a case that svclab runs, started by these words.
fn run(by: &[&str]) -> Evidence {
    let directory = tempfile::tempdir().expect("a directory");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), open).expect("permissions");
    let program = copied::copied(directory.path());
    let lab = directory.path().join("canal-stale-rule.yaml");
    let from = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/topologies/canal-stale-rule.yaml"
    );
    fs::copy(from, &lab).expect("a copy");
    let case = "stale=present,rpFilter=1,underlay=passes";
    let output = Command::new("env")
        .args(by)
        .arg(program)
        .args(["run", "--kernel=host", "--report"])
        .arg(directory.path().join("report"))
        .arg(format!("{}/{case}", lab.display()))
        .current_dir("/")
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let case = format!("report/canal-stale-rule/{case}/evidence.json");
    let document = fs::read(directory.path().join(case)).expect("evidence");
    let document: Value = serde_json::from_slice(&document).expect("JSON");
    serde_json::from_value(document["evidence"].clone()).expect("evidence")
}

#[test]
fn who_may_not_ask_is_told_so() {
    let nobody: &[&str] = if nix::unistd::geteuid().is_root() {
        &["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
    } else {
        &[]
    };
    is_told_why(&run(nobody).drops);
    // Root of a user namespace only.
    let root_there = ["unshare", "--user", "--map-root-user"];
    is_told_why(&run(&[nobody, &root_there].concat()).drops);
}

#[test]
fn two_capabilities_are_enough_to_ask() {
    if !may_ask() {
        // They cannot be given either.
        return is_told_why(&run(&[]).drops);
    }
    let evidence = run(&[
        "setpriv",
        "--reuid=1000",
        "--regid=1000",
        "--clear-groups",
        "--inh-caps=+bpf,+perfmon",
        "--ambient-caps=+bpf,+perfmon",
    ]);
    let Drops::Watched { lost: 0, dropped } = &evidence.drops else {
        panic!("{:?}", evidence.drops);
    };
    let filtered = dropped.iter().filter(|each| each.reason == "IP_RPFILTER");
    let counted = evidence.counters["node-2"]["TcpExtIPReversePathFilter"];
    assert_eq!(i64::try_from(filtered.count()), Ok(counted), "{dropped:#?}");
    assert!(counted > 0);
}
