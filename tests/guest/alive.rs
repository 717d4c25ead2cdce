//! Tests running guests: kernel, programs, clock, random numbers, isolation, and how they end.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use svclab_model::plan::{Namespace, Plan};
use svclab_runner::kernel::guest::Deadlines;
use svclab_runner::kernel::{Agent, KernelError};

use super::cases::case;
use super::command::installed;
use super::guests::{block_on, guest};
use super::processes::{Held, is_qemu};
use super::support::{QUICK, SERIES};

/// Starts a guest. Returns its agent, and QEMU's PID and pidfd.
async fn with_qemu(series: &str) -> (Agent, Pid, Held) {
    with_qemu_and(series, Deadlines::default()).await
}

/// Starts a guest with these deadlines.
async fn with_qemu_and(series: &str, deadlines: Deadlines) -> (Agent, Pid, Held) {
    let guest = guest(series).await.with_deadlines(deadlines);
    let agent = guest.start().await.expect("a guest");
    let process = agent.process().and_then(|id| i32::try_from(id).ok());
    let process = process.expect("a guest is a process");
    assert!(is_qemu(process));
    (agent, Pid::from_raw(process), Held::new(process))
}

#[test]
fn a_guest_is_another_kernel_with_this_machine_s_programs() {
    block_on(async {
        for series in SERIES {
            let guest = guest(series).await;
            let agent = guest.start().await.expect("a guest");
            let surroundings = agent.surroundings();
            assert_eq!(surroundings.kernel, guest.release());
            assert!(surroundings.kernel.starts_with(&format!("{series}.")));
            let tools: Vec<&str> = surroundings.tools.keys().map(String::as_str).collect();
            assert_eq!(
                tools,
                [
                    "ipset",
                    "iptables-legacy-restore",
                    "iptables-nft-restore",
                    "nft"
                ]
            );
        }
    });
}

#[test]
fn many_labs_stand_in_one_guest_one_after_another_and_at_once() {
    block_on(async {
        let agent = guest("6.12").await.start().await.expect("a guest");
        let prepared = case(QUICK);
        for _ in 0..2 {
            let (first, second) = tokio::join!(
                agent.build(prepared.plan.clone()),
                agent.build(prepared.plan.clone())
            );
            for session in [first, second] {
                let evidence = session.expect("a lab").probe().await.expect("evidence");
                assert!(
                    prepared
                        .judge()
                        .expect("the case can be judged")
                        .judge(&evidence)
                        .holds()
                );
            }
        }
    });
}

#[test]
fn a_guest_s_clock_is_this_machine_s() {
    block_on(async {
        let agent = guest("6.1").await.start().await.expect("a guest");
        let mut session = agent.build(case(QUICK).plan).await.expect("a lab");
        let now = || {
            #[expect(
                clippy::disallowed_methods,
                reason = "the time of day is what is compared"
            )]
            let now = SystemTime::now();
            now.duration_since(UNIX_EPOCH).expect("the clock runs")
        };
        let before = now();
        let evidence = session.probe().await.expect("evidence");
        let after = now();
        // After its start, the guest's clock runs on its own ticks.
        let slack = Duration::from_millis(500);
        assert!(!evidence.packets.is_empty());
        for packet in &evidence.packets {
            let time = Duration::from_nanos(packet.time);
            assert!(
                time + slack > before && time < after + slack,
                "{before:?} {time:?} {after:?}"
            );
        }
    });
}

#[test]
fn program_cannot_set_the_guest_s_clock() {
    block_on(async {
        let guest = guest("6.12").await.with_programs([installed("date")]);
        let agent = guest.start().await.expect("a guest");
        let mut session = agent.build(case(QUICK).plan).await.expect("a lab");
        let set = session.run("node-1", "date", &["--set", "@0"], "").await;
        let set = set.expect("it starts");
        assert!(!set.success, "{}", set.stdout);
        assert!(
            set.stderr.contains("Operation not permitted"),
            "{}",
            set.stderr
        );
    });
}

#[test]
fn clones_of_one_snapshot_choose_different_endpoints() {
    // Each connection goes to one of two pods, by a random number.
    let prepared =
        case("local-ingress/policy=Cluster,clusterCIDR=none,version=v1.24,mode=iptables");
    for series in SERIES {
        let chosen = block_on(async {
            let guest = guest(series).await;
            let mut plan = prepared.plan.clone();
            plan.probes.retain(|probe| probe.name == "podToClusterIP");
            let clones = (0..3).map(|_| async {
                let agent = guest.start().await.expect("a guest");
                let mut session = agent.build(plan.clone()).await.expect("a lab");
                let evidence = session.probe().await.expect("evidence");
                let endpoints = evidence
                    .attempts
                    .into_iter()
                    .map(|attempt| attempt.endpoint);
                endpoints.collect::<Vec<_>>()
            });
            futures_util::future::join_all(clones).await
        });
        for sequence in &chosen {
            assert_eq!(sequence.len(), 32);
        }
        assert_ne!(chosen[0], chosen[1], "{series}");
        assert_ne!(chosen[1], chosen[2], "{series}");
        assert_ne!(chosen[0], chosen[2], "{series}");
    }
}

#[test]
fn a_killed_guest_is_lost_and_that_is_told() {
    block_on(async {
        let (agent, qemu, held) = with_qemu("6.12").await;
        let mut session = agent.build(case(QUICK).plan).await.expect("a lab");
        kill(qemu, Signal::SIGKILL).expect("it runs");
        let error = session.probe().await.unwrap_err();
        let KernelError::Lost(lost) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(lost.how, "QEMU was ended by signal 9");
        assert!(agent.is_lost());
        held.gone().await;
    });
}

#[test]
fn a_guest_that_says_nothing_is_given_up() {
    // Longer than a running guest is silent, also on a busy machine.
    let deadlines = Deadlines {
        silence: Duration::from_secs(10),
        ..Deadlines::default()
    };
    block_on(async {
        let (agent, qemu, held) = with_qemu_and("6.12", deadlines).await;
        let mut session = agent.build(case(QUICK).plan).await.expect("a lab");
        kill(qemu, Signal::SIGSTOP).expect("it runs");
        let error = session.probe().await.unwrap_err();
        let KernelError::Lost(lost) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(lost.how, "it has not said anything for 10 s");
        // QEMU is killed although it is stopped.
        drop((session, agent));
        held.gone().await;
    });
}

#[test]
fn a_guest_that_nobody_needs_any_more_ends() {
    block_on(async {
        let (agent, _, held) = with_qemu("6.12").await;
        let session = agent.build(case(QUICK).plan).await.expect("a lab");
        drop((session, agent));
        held.gone().await;
    });
}

#[test]
fn a_guest_that_runs_out_of_memory_says_so() {
    block_on(async {
        let agent = guest("6.12").await.start().await.expect("a guest");
        let namespaces = (0..4000).map(|number| Namespace {
            name: format!("node-{number}"),
            ..Namespace::default()
        });
        let plan = Plan {
            namespaces: namespaces.collect(),
            ..Plan::default()
        };
        let error = agent.build(plan).await.expect_err("4000 do not fit");
        let KernelError::Lost(lost) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(lost.how, "the guest ran out of memory");
        assert_eq!(lost.step.as_deref(), Some("make its namespaces"));
    });
}

#[test]
fn a_guest_has_no_way_out() {
    block_on(async {
        let guest = guest("6.12").await;
        let agent = guest
            .with_programs([installed("cat")])
            .start()
            .await
            .expect("a guest");
        let plan = Plan {
            namespaces: vec![Namespace {
                name: "node-1".to_owned(),
                ..Namespace::default()
            }],
            ..Plan::default()
        };
        let mut session = agent.build(plan).await.expect("a lab");
        let mut read = async |file: &str| {
            let finished = session.run("node-1", "cat", &[file], "").await;
            let finished = finished.expect("it starts");
            assert!(finished.success, "{}", finished.stderr);
            finished.stdout
        };
        // PCI bridges, and the serial port of the agent: no network card, no disk, no file system
        // of the host.
        let devices = read("/proc/bus/pci/devices").await;
        let mut devices: Vec<&str> = devices
            .lines()
            .filter_map(|line| line.split('\t').nth(1))
            .collect();
        devices.sort_unstable();
        assert_eq!(devices, ["1af41003", "80862918", "808629c0"]);
        let disks = read("/proc/partitions").await;
        assert_eq!(disks.lines().filter(|line| line.contains("vd")).count(), 0);
        assert_eq!(disks.lines().filter(|line| line.contains("sd")).count(), 0);
        let mounts = read("/proc/mounts").await;
        let mut kinds: Vec<&str> = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(2))
            .collect();
        kinds.sort_unstable();
        // A second `proc` belongs to the program's PID namespace, and device files hide the lists
        // of keys.
        kinds.dedup();
        assert_eq!(kinds, ["devpts", "devtmpfs", "proc", "rootfs", "sysfs"]);
    });
}

#[test]
fn a_program_below_tmp_is_where_it_is_on_this_machine() {
    // The path is constant, because a guest's snapshot depends on the paths of its programs.
    let directory = std::env::temp_dir().join("svclab-guest-tests");
    std::fs::create_dir_all(&directory).expect("a directory");
    let program = directory.join("date");
    let own = tempfile::NamedTempFile::new_in(&directory).expect("a file");
    std::fs::copy(installed("date"), own.path()).expect("a copy");
    own.persist(&program).expect("it is put in its place");
    block_on(async {
        let guest = guest("6.12").await.with_programs([program.clone()]);
        let agent = guest.start().await.expect("a guest");
        let mut session = agent.build(case(QUICK).plan).await.expect("a lab");
        let program = program.display().to_string();
        let finished = session.run("node-1", &program, &["+%s"], "").await;
        assert!(finished.expect("it starts").success);
    });
}
