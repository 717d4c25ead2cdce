//! Tests the drop evidence of this host's kernel, with and without the required privileges, while
//! other processes also have packets dropped.

use std::ffi::CString;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use futures_util::future::join_all;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, setns, unshare};
use serial_test::file_serial;
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};
use svclab_model::evidence::{DropEvidence, StageEvidence, Verdict};
use svclab_model::plan::{Backend, Plan};
use svclab_runner::kernel::{Agent, enter};
use svclab_test_support::evidence::{dropped, read_case, single_stage, traced};
use svclab_test_support::programs::copy_programs;
use svclab_test_support::{block_on, can_trace_drops};

use super::inside::{self, Inside};
use super::new_host;

/// Target of the flood, on which no socket listens.
const FLOODED: &str = "127.0.0.1:9";

/// More packets than the drop buffer has space for.
const FLOOD: u64 = 20_000;

/// Asserts that the evidence states why drops are not traced, and the remedy.
fn assert_drops_uncertain(drops: &DropEvidence) {
    let DropEvidence::Uncertain(reason) = drops else {
        panic!("{drops:?}");
    };
    insta::allow_duplicates! {
    insta::assert_snapshot!(reason, @"the kernel does not let svclab trace dropped packets: Operation not permitted; run svclab as root of the host, or with two capabilities (`setcap cap_bpf,cap_perfmon+ep` on its file), or in a guest (`--kernel 6.12`)");
    }
}

async fn probe(agent: &Agent, plan: Plan) -> StageEvidence {
    let mut session = agent.build(plan).await.expect("a lab");
    single_stage(session.probe().await.expect("evidence"))
}

/// Runs both kinds of drops in parallel, in one agent and in two.
fn check_parallel_drops(backend: Backend) {
    let evidence: Vec<StageEvidence> = block_on(async {
        let (first, second) = (new_host().start().await, new_host().start().await);
        let (one, two) = (first.expect("an agent"), second.expect("an agent"));
        let labs = [
            probe(&one, dropped::drop_plan(backend, 1, false)),
            probe(&one, dropped::drop_plan(backend, 1, true)),
            probe(&two, dropped::drop_plan(backend, 2, false)),
            probe(&two, dropped::drop_plan(backend, 3, true)),
        ];
        join_all(labs).await
    });
    for (evidence, (times, short)) in
        evidence
            .iter()
            .zip([(1, false), (1, true), (2, false), (3, true)])
    {
        if can_trace_drops() {
            dropped::check_drops(evidence, times, short);
        } else {
            assert_drops_uncertain(&evidence.drops);
        }
    }
}

#[test]
#[file_serial(drops)]
fn drops_parallel_labs_nft_match_counters() {
    check_parallel_drops(Backend::Nft);
}

#[test]
#[file_serial(drops)]
fn drops_parallel_labs_legacy_match_counters() {
    check_parallel_drops(Backend::Legacy);
}

/// Enters a new network namespace and has packets dropped there.
fn flood_other_namespace() {
    unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    assert!(up.expect("ip starts").success());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..FLOOD {
        let sent = socket.send_to(b"nobody's business", FLOODED);
        sent.expect("the packet can be sent");
    }
    let counters = fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let mut lines = counters
        .lines()
        .filter_map(|line| line.strip_prefix("Udp: "));
    let (names, numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
    let mut counted = names.split(' ').zip(numbers.split(' '));
    let unheard = counted.find(|(name, _)| *name == "NoPorts");
    assert_eq!(unheard.expect("the counter").1, FLOOD.to_string());
}

/// Sends packets from the client's namespace that the router drops before its rules, because the
/// checksum of the IP header is wrong.
fn flood_router(client: &File) {
    setns(client, CloneFlags::CLONE_NEWNET).expect("root has the privilege");
    let mut frame = [0_u8; 60];
    frame[..6].copy_from_slice(&[0x0a, 0x58, 0xc5, 0xf6, 0xca, 0xfd]);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..18].copy_from_slice(&[0x45, 0, 0, 46]);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&[10, 0, 1, 2]);
    frame[30..34].copy_from_slice(&[10, 0, 2, 2]);
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).expect("root has the privilege");
    let mut to = SockAddrStorage::zeroed();
    // SAFETY: the storage has space for this address type, and zero bytes are a valid value.
    let link = unsafe { to.view_as::<libc::sockaddr_ll>() };
    link.sll_family = u16::try_from(libc::AF_PACKET).expect("the number fits");
    let index = if_nametoindex("eth0").expect("the interface");
    link.sll_ifindex = i32::try_from(index).expect("the number fits");
    let length = u32::try_from(size_of::<libc::sockaddr_ll>()).expect("the number fits");
    // SAFETY: the address has that family and length.
    let to = unsafe { SockAddr::new(to, length) };
    for _ in 0..FLOOD {
        socket.send_to(&frame, &to).expect("the packet can be sent");
    }
}

/// Returns the evidence of a traced router, with a function that runs in another thread at the same
/// time. The function gets the client's namespace. Returns `None` where drops cannot be traced.
fn evidence_while(work: impl FnOnce(&File) + Send + 'static) -> Option<StageEvidence> {
    let evidence = block_on(async {
        let agent = new_host().start().await.expect("an agent");
        if !can_trace_drops() {
            return probe(&agent, traced::router_plan(Backend::Nft)).await;
        }
        let mut plan = inside::plan(Backend::Nft);
        plan.evidence.counters = vec!["router".to_owned()];
        let mut session = agent.build(plan).await.expect("a lab");
        let inside = Inside::new(&session);
        let enter = enter::enter_command(&session, "host/client")
            .expect("the agent is a process of this machine");
        let client = enter
            .split(' ')
            .find_map(|word| word.strip_prefix("--net="));
        let client = File::open(client.expect("a path")).expect("a namespace");
        let outer_thread = thread::spawn(move || {
            inside.await_trace();
            let work_thread = thread::spawn(move || work(&client));
            work_thread.join().expect("the thread ends");
            inside.let_through(Backend::Nft);
        });
        let evidence = single_stage(session.probe().await.expect("evidence"));
        outer_thread.join().expect("the thread ends");
        assert_eq!(evidence.attempts[0].verdict, Verdict::Connected);
        evidence
    });
    if can_trace_drops() {
        return Some(evidence);
    }
    assert_drops_uncertain(&evidence.drops);
    None
}

/// If drops of other namespaces were recorded and filtered later, the buffer would overflow.
#[test]
#[file_serial(drops)]
fn drops_of_other_namespaces_are_not_recorded() {
    let Some(evidence) = evidence_while(|_| flood_other_namespace()) else {
        return;
    };
    let DropEvidence::Watched {
        missed: lost,
        dropped,
    } = &evidence.drops
    else {
        panic!("{:?}", evidence.drops);
    };
    assert_eq!(*lost, 0);
    let mut reasons = dropped.iter().map(|each| each.reason.as_str());
    assert!(
        reasons.any(|reason| reason == "NETFILTER_DROP"),
        "{dropped:#?}"
    );
    // Neither the client nor the pod is traced.
    let elsewhere = dropped.iter().find(|each| each.namespace != "router");
    assert_eq!(elsewhere, None);
}

#[test]
fn drops_beyond_buffer_are_counted() {
    let Some(evidence) = evidence_while(flood_router) else {
        return;
    };
    let DropEvidence::Watched {
        missed: lost,
        dropped,
    } = &evidence.drops
    else {
        panic!("{:?}", evidence.drops);
    };
    let recorded = dropped.iter().filter(|each| each.reason == "IP_CSUM");
    let seen = u64::try_from(recorded.count()).expect("a number");
    assert!(seen > 0 && *lost > 0, "{seen} {lost}");
    // Every drop is either recorded or counted as lost.
    let counted = evidence.counters["router"]["IpExtInCsumErrors"];
    assert!(seen + lost >= u64::try_from(counted).expect("a number"));
}

/// Returns the evidence of a case that svclab runs, started through this command.
fn run_case(prefix: &[&str]) -> StageEvidence {
    run_case_after(prefix, |_| {})
}

/// Returns the same after `prepare` has changed the program's file.
fn run_case_after(prefix: &[&str], prepare: impl FnOnce(&Path)) -> StageEvidence {
    let directory = tempfile::tempdir().expect("a directory");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), open).expect("permissions");
    let program = copy_programs(directory.path());
    prepare(&program);
    let lab = directory.path().join("canal-stale-rule.yaml");
    let from = svclab_test_support::root().join("topologies/canal-stale-rule.yaml");
    let text = fs::read_to_string(from).expect("the lab");
    // The kernel retransmits no SYN within the wait of the command below. A timer would send it, and
    // a hardened kernel may run no BPF program in the context of a process that a timer interrupts.
    let (retransmitted, once) = ("grows: \">=2\"", "grows: 1");
    assert!(text.contains(retransmitted));
    fs::write(&lab, text.replace(retransmitted, once)).expect("a copy");
    let case = "stale=present,rpFilter=1,underlay=passes";
    let output = Command::new("env")
        .args(prefix)
        .arg(program)
        .args(["run", "--kernel=host", "--max-wait=300ms", "--report"])
        .arg(directory.path().join("report"))
        .arg(format!("{}/{case}", lab.display()))
        .current_dir("/")
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let case = directory.path().join("report/canal-stale-rule").join(case);
    let document = read_case(&case).expect("evidence");
    serde_json::from_value(document["evidence"]["stages"][0].clone()).expect("evidence")
}

#[test]
fn drops_without_capabilities_are_uncertain() {
    let unprivileged: &[&str] = if nix::unistd::geteuid().is_root() {
        &AS_ORDINARY_USER
    } else {
        &[]
    };
    assert_drops_uncertain(&run_case(unprivileged).drops);
    // Root of a user namespace only.
    let namespace_root = ["unshare", "--user", "--map-root-user"];
    assert_drops_uncertain(&run_case(&[unprivileged, &namespace_root].concat()).drops);
}

/// Command prefix that runs as an ordinary user.
const AS_ORDINARY_USER: [&str; 4] = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"];

/// Asserts that the drops were traced with both capabilities.
fn assert_drops_traced(evidence: &StageEvidence) {
    let DropEvidence::Watched { missed: 0, dropped } = &evidence.drops else {
        panic!("{:?}", evidence.drops);
    };
    let filtered = dropped.iter().filter(|each| each.reason == "IP_RPFILTER");
    let counted = evidence.counters["node-2"]["TcpExtIPReversePathFilter"];
    assert_eq!(i64::try_from(filtered.count()), Ok(counted), "{dropped:#?}");
    assert!(counted > 0);
}

#[test]
#[file_serial(drops)]
fn drops_two_process_capabilities_are_traced() {
    if !can_trace_drops() {
        // These capabilities cannot be granted either.
        return assert_drops_uncertain(&run_case(&[]).drops);
    }
    let capable = ["--inh-caps=+bpf,+perfmon", "--ambient-caps=+bpf,+perfmon"];
    assert_drops_traced(&run_case(&[&AS_ORDINARY_USER[..], &capable].concat()));
}

#[test]
#[file_serial(drops)]
fn drops_two_file_capabilities_are_traced() {
    if !can_trace_drops() {
        // The file cannot get these capabilities either.
        return assert_drops_uncertain(&run_case(&[]).drops);
    }
    assert_drops_traced(&run_case_after(&AS_ORDINARY_USER, |program| {
        // The value that `setcap cap_bpf,cap_perfmon+ep` writes (Linux v6.12,
        // `include/uapi/linux/capability.h`, `struct vfs_cap_data`): revision 2, effective. The
        // permitted capabilities below and above 32 follow.
        let words: [u32; 5] = [0x0200_0001, 0, 0, 1 << (39 - 32) | 1 << (38 - 32), 0];
        let value = words.map(u32::to_le_bytes).concat();
        let path = CString::new(program.as_os_str().as_bytes()).expect("a path");
        // SAFETY: both texts end in a zero byte, and the value has the stated length.
        let set = unsafe {
            libc::setxattr(
                path.as_ptr(),
                c"security.capability".as_ptr(),
                value.as_ptr().cast(),
                value.len(),
                0,
            )
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }));
}
