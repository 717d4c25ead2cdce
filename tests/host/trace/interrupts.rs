//! Tests the drop evidence while interrupts drop packets during the tracing of other drops.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serial_test::file_serial;
use svclab_test_support::can_trace_drops;
use svclab_test_support::evidence::dropped;
use tempfile::TempDir;

use super::probe_plan;

/// Has the kernel drop messages in this thread until `ended` has no sender.
fn drop_messages(ended: &Receiver<()>) {
    while ended.try_recv() == Err(TryRecvError::Empty) {
        let (sender, receiver) = UnixDatagram::pair().expect("a pair of sockets");
        // The queue of a socket holds at least ten messages. Closing the socket drops them.
        for _ in 0..10 {
            sender.send(b"unread").expect("the queue has space");
        }
        drop(receiver);
    }
}

/// Drops of IPv4 packets that the kernel itself writes to tracefs, with the interrupted thread.
///
/// A kernel that is hardened against BPF may run no program while a thread of process 1 runs, which
/// no counter shows. Its own trace events have these drops.
struct KernelTrace {
    mounted: TempDir,
    instance: PathBuf,
    /// Threads of process 1 at the start.
    threads: BTreeSet<String>,
}

/// Inode of the first PID namespace (Linux v6.12, `include/linux/proc_ns.h`, `PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

fn threads_of_first_process() -> BTreeSet<String> {
    let threads = fs::read_dir("/proc/1/task").expect("the threads of process 1");
    let threads = threads.map(|each| each.expect("a thread").file_name());
    threads.filter_map(|each| each.into_string().ok()).collect()
}

impl KernelTrace {
    /// `None` where tracefs cannot be mounted, or has other numbers of threads than this process.
    fn start() -> Option<Self> {
        let namespace = fs::metadata("/proc/self/ns/pid").expect("a namespace");
        if namespace.ino() != FIRST_PID_NAMESPACE {
            return None;
        }
        let mounted = tempfile::tempdir().expect("a directory");
        let (no_source, no_options) = (None::<&str>, None::<&str>);
        mount(
            no_source,
            mounted.path(),
            Some("tracefs"),
            MsFlags::empty(),
            no_options,
        )
        .ok()?;
        let name = format!("instances/svclab-test-{}", process::id());
        let instance = mounted.path().join(name);
        fs::create_dir(&instance).expect("an instance");
        let event = instance.join("events/skb/kfree_skb");
        // 0x0800 is IPv4 (ETH_P_IP).
        fs::write(event.join("filter"), "protocol == 0x0800").expect("a filter");
        fs::write(event.join("enable"), "1").expect("the event");
        Some(Self {
            mounted,
            instance,
            threads: threads_of_first_process(),
        })
    }

    /// Returns the number of drops by rules that interrupted process 1.
    fn count_in_first_process(&self) -> u64 {
        let threads = &self.threads | &threads_of_first_process();
        let events = fs::read_to_string(self.instance.join("trace")).expect("the events");
        // `name-thread [processor] …: kfree_skb: …`; the name may contain all other characters.
        let by_rules = events
            .lines()
            .filter(|line| line.ends_with("NETFILTER_DROP"));
        let interrupted = by_rules.filter_map(|line| {
            let (name, _) = line.split_once(" [")?;
            Some(name.rsplit_once('-')?.1.trim())
        });
        let of_first = interrupted.filter(|thread| threads.contains(*thread));
        u64::try_from(of_first.count()).expect("a number")
    }
}

impl Drop for KernelTrace {
    fn drop(&mut self) {
        // A mount that remains does not change the result of a test, but its directory does remain.
        let _ = fs::remove_dir(&self.instance);
        let _ = umount2(self.mounted.path(), MntFlags::MNT_DETACH);
    }
}

/// A timer of the kernel sends each SYN again. If the timer interrupts the tracing of another drop,
/// the drop of that SYN is recorded by the second copy of the program or counted as missed.
///
/// The count is an upper bound for all namespaces, so tests that expect 0 do not run meanwhile.
#[test]
#[file_serial(drops)]
fn drops_that_interrupt_other_drops_are_not_lost() {
    if !can_trace_drops() {
        return;
    }
    let processors = thread::available_parallelism().expect("a number").get();
    let (ends, threads): (Vec<Sender<()>>, Vec<JoinHandle<()>>) = (0..processors)
        .map(|_| {
            let (end, ended) = channel();
            (end, thread::spawn(move || drop_messages(&ended)))
        })
        .unzip();
    let trace = KernelTrace::start();
    let evidence = probe_plan(dropped::retransmission_plan());
    drop(ends);
    for each in threads {
        each.join().expect("the thread ends");
    }
    let hidden = trace.map_or(0, |trace| trace.count_in_first_process());
    dropped::check_retransmissions(&evidence, hidden);
}
