//! Tests running guests: kernel, programs, clock, random numbers, isolation, and how they end.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use svclab_model::plan::{Namespace, Plan};
use svclab_runner::kernel::guest::Deadlines;
use svclab_runner::kernel::{Agent, KernelError};
use svclab_test_support::block_on;
use svclab_test_support::cases::prepare_case;
use svclab_test_support::evidence::single_stage;
use svclab_test_support::guests::new_guest;
use svclab_test_support::processes::{HeldProcess, is_qemu};

use super::command::installed;
use super::support::{QUICK, SERIES};

/// Starts a guest. Returns its agent, and QEMU's PID and pidfd.
async fn start_guest(series: &str) -> (Agent, Pid, HeldProcess) {
    start_guest_with_deadlines(series, Deadlines::default()).await
}

/// Starts a guest with these deadlines.
async fn start_guest_with_deadlines(
    series: &str,
    deadlines: Deadlines,
) -> (Agent, Pid, HeldProcess) {
    let guest = new_guest(series).await.with_deadlines(deadlines);
    let agent = guest.start().await.expect("a guest");
    let process = agent.process().and_then(|id| i32::try_from(id).ok());
    let process = process.expect("a guest is a process");
    assert!(is_qemu(process));
    (agent, Pid::from_raw(process), HeldProcess::new(process))
}

#[test]
fn guest_runs_own_kernel_with_host_programs() {
    block_on(async {
        for series in SERIES {
            let guest = new_guest(series).await;
            let agent = guest.start().await.expect("a guest");
            let surroundings = agent.environment();
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
fn guest_runs_labs_in_sequence_and_parallel() {
    block_on(async {
        let agent = new_guest("6.12").await.start().await.expect("a guest");
        let prepared = prepare_case(QUICK);
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
fn guest_clock_matches_host_clock() {
    block_on(async {
        let agent = new_guest("6.1").await.start().await.expect("a guest");
        let mut session = agent.build(prepare_case(QUICK).plan).await.expect("a lab");
        let now = || {
            #[expect(clippy::disallowed_methods, reason = "compares the time of day")]
            let now = SystemTime::now();
            now.duration_since(UNIX_EPOCH)
                .expect("the time is after 1970")
        };
        let before = now();
        let evidence = single_stage(session.probe().await.expect("evidence"));
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
fn program_in_guest_setting_clock_is_refused() {
    block_on(async {
        let guest = new_guest("6.12").await.with_programs([installed("date")]);
        let agent = guest.start().await.expect("a guest");
        let mut session = agent.build(prepare_case(QUICK).plan).await.expect("a lab");
        let set = session.run("node-1", "date", &["--set", "@0"], "").await;
        let set = set.expect("the program starts");
        assert!(!set.success, "{}", set.stdout);
        assert!(
            set.stderr.contains("Operation not permitted"),
            "{}",
            set.stderr
        );
    });
}

#[test]
fn guests_of_same_snapshot_choose_different_endpoints() {
    // Each connection goes to one of two pods, by a random number.
    let prepared =
        prepare_case("local-ingress/policy=Cluster,clusterCIDR=none,version=v1.24,mode=iptables");
    for series in SERIES {
        let chosen = block_on(async {
            let guest = new_guest(series).await;
            let mut plan = prepared.plan.clone();
            plan.stages[0]
                .probes
                .retain(|probe| probe.name == "podToClusterIP");
            let clones = (0..3).map(|_| async {
                let agent = guest.start().await.expect("a guest");
                let mut session = agent.build(plan.clone()).await.expect("a lab");
                let evidence = single_stage(session.probe().await.expect("evidence"));
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
fn guest_killed_is_reported_as_lost() {
    block_on(async {
        let (agent, qemu, held) = start_guest("6.12").await;
        let mut session = agent.build(prepare_case(QUICK).plan).await.expect("a lab");
        kill(qemu, Signal::SIGKILL).expect("the process runs");
        let error = session.probe().await.unwrap_err();
        let KernelError::Lost(lost) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(lost.cause, "QEMU was killed by signal 9");
        assert!(agent.is_lost());
        held.wait_for_end_async().await;
    });
}

#[test]
fn guest_silent_is_killed_after_deadline() {
    // Longer than a running guest is silent, also on a busy machine.
    let deadlines = Deadlines {
        silence: Duration::from_secs(10),
        ..Deadlines::default()
    };
    block_on(async {
        let (agent, qemu, held) = start_guest_with_deadlines("6.12", deadlines).await;
        let mut session = agent.build(prepare_case(QUICK).plan).await.expect("a lab");
        kill(qemu, Signal::SIGSTOP).expect("the process runs");
        let error = session.probe().await.unwrap_err();
        let KernelError::Lost(lost) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(lost.cause, "no message for 10 s");
        // QEMU is killed although it is stopped.
        drop((session, agent));
        held.wait_for_end_async().await;
    });
}

#[test]
fn guest_without_agent_handle_ends() {
    block_on(async {
        let (agent, _, held) = start_guest("6.12").await;
        let session = agent.build(prepare_case(QUICK).plan).await.expect("a lab");
        drop((session, agent));
        held.wait_for_end_async().await;
    });
}

#[test]
fn guest_out_of_memory_is_reported() {
    block_on(async {
        let agent = new_guest("6.12").await.start().await.expect("a guest");
        let namespaces = (0..4000).map(|number| Namespace {
            name: format!("node-{number}"),
            ..Namespace::default()
        });
        let plan = Plan {
            namespaces: namespaces.collect(),
            ..Plan::default()
        };
        let error = agent
            .build(plan)
            .await
            .expect_err("the memory is too small for 4000 namespaces");
        let KernelError::Lost(lost) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(lost.cause, "the guest ran out of memory");
        assert_eq!(lost.last_step.as_deref(), Some("create its namespaces"));
    });
}

#[test]
fn guest_has_no_host_devices_or_file_systems() {
    block_on(async {
        let guest = new_guest("6.12").await;
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
            let finished = finished.expect("the program starts");
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
fn guest_program_below_tmp_runs_at_same_path() {
    // The path is constant, because a guest's snapshot depends on the paths of its programs.
    let directory = std::env::temp_dir().join("svclab-guest-tests");
    std::fs::create_dir_all(&directory).expect("a directory");
    let program = directory.join("date");
    let copy = tempfile::NamedTempFile::new_in(&directory).expect("a file");
    std::fs::copy(installed("date"), copy.path()).expect("a copy");
    copy.persist(&program).expect("the program can be replaced");
    block_on(async {
        let guest = new_guest("6.12").await.with_programs([program.clone()]);
        let agent = guest.start().await.expect("a guest");
        let mut session = agent.build(prepare_case(QUICK).plan).await.expect("a lab");
        let program = program.display().to_string();
        let finished = session.run("node-1", &program, &["+%s"], "").await;
        assert!(finished.expect("the program starts").success);
    });
}
