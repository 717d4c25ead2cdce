//! Measures the time to boot a guest, to restore a snapshot and to run a case. Also measures the
//! memory of a guest, and the time of all labs of the write-ups. Prints each value beside its
//! target.
//!
//! Run by `scripts/bench` on an idle machine with two cores. The targets assume no KVM. Of several
//! measurements, the table shows the median, the best value and the processor time. Other load on
//! the machine affects the best value least, and the processor time hardly at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use svclab_runner::kernel::Agent;
use svclab_runner::kernel::guest::{Cache, Guest, KERNELS, KernelRequest, Kvm};
use svclab_runner::run::{Prepared, prepare, select_labs};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Path of the measured program.
const SVCLAB: &str = env!("CARGO_BIN_EXE_svclab");

/// Path of its agent.
const AGENT: &str = env!("CARGO_BIN_EXE_svclab-agent");

/// A case without timeouts, with IPVS, sets and rules on two nodes, and load balancers in front.
const CASE: &str =
    "clb-hairpin/policy=Cluster,ingress=both,balancer=internal,rpFilter=0,byHand=nothing";

/// Column titles of the tables.
const HEADER: [&str; 6] = ["a guest", "median", "best", "aim", "", "processors' time"];

/// Numbers of measurements.
const BOOTS: usize = 5;
const RESTORES: usize = 20;
const CASES: usize = 20;

fn main() {
    // Ignores the arguments of cargo, including filters.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let bench = Bench::new(&runtime);
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(HEADER);
    let boots: Vec<Measurement> = (0..BOOTS).map(|_| bench.boot()).collect();
    add_row(&mut table, "cold boot to a snapshot", &boots, 2.5);
    let restores: Vec<Measurement> = (0..RESTORES).map(|_| bench.restore()).collect();
    add_row(&mut table, "restore to the first answer", &restores, 0.2);
    let case = prepare_case(CASE);
    let agent = bench.start();
    let cases: Vec<Measurement> = (0..CASES).map(|_| bench.case(&agent, &case)).collect();
    add_row(&mut table, "a warm case without a wait", &cases, 0.25);
    let guest_memory = describe_memory(agent.process().expect("a guest is a process"));
    drop(agent);
    // Printed before the run of all labs, which can fail.
    println!("{table}");
    println!("memory of a guest with a lab: {guest_memory}");
    println!("{}", bench.describe_machine());
    let runs = [bench.run_all_labs(), bench.run_all_labs()];
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(HEADER);
    add_row(&mut table, "all labs, warm, by `svclab run`", &runs, 40.0);
    println!("{table}");
}

/// Wall-clock time and processor time of an action.
#[derive(Debug, Clone, Copy)]
struct Measurement {
    took: Duration,
    processor_time: Duration,
}

struct Bench<'a> {
    runtime: &'a Runtime,
    /// Cache with the kernel, but without a snapshot.
    cold: (TempDir, Cache),
    /// Cache with the kernel and a snapshot.
    warm: Cache,
}

impl<'a> Bench<'a> {
    fn new(runtime: &'a Runtime) -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let warm = Cache::open(target.join("guests")).expect("a cache");
        let directory = tempfile::tempdir_in(target).expect("a directory");
        let cold = Cache::open(directory.path().join("cache")).expect("a cache");
        let bench = Self {
            runtime,
            cold: (directory, cold),
            warm,
        };
        // Starting a guest fills the cache: kernel, snapshot, and notes on QEMU and KVM.
        drop(bench.start());
        for kind in [KERNELS, "notes"] {
            copy(
                &bench.warm.directory().join(kind),
                &bench.cold.1.directory().join(kind),
            );
        }
        bench
    }

    fn guest(&self, cache: &Cache) -> Guest {
        self.runtime.block_on(async {
            let wanted = KernelRequest::Newest;
            let guest = Guest::with_agent(cache.clone(), &wanted, PathBuf::from(AGENT)).await;
            guest.expect("a kernel")
        })
    }

    fn start(&self) -> Agent {
        let guest = self.guest(&self.warm);
        self.runtime
            .block_on(guest.start())
            .expect("a guest starts")
    }

    /// Measures a boot without snapshot, until the snapshot is stored.
    fn boot(&self) -> Measurement {
        let snapshots = self.cold.1.directory().join("snapshots");
        drop(fs::remove_dir_all(snapshots));
        let guest = self.guest(&self.cold.1);
        let (begun, before) = (Instant::now(), processor_time());
        let booted = self.runtime.block_on(guest.boot());
        booted.expect("a guest starts");
        Measurement {
            took: begun.elapsed(),
            processor_time: processor_time().saturating_sub(before),
        }
    }

    /// Measures a start from a snapshot until the agent answers, including the start of QEMU.
    fn restore(&self) -> Measurement {
        let (begun, before) = (Instant::now(), processor_time());
        let agent = self.start();
        Measurement {
            took: begun.elapsed(),
            processor_time: processor_time().saturating_sub(before) + qemu_processor_time(&agent),
        }
    }

    /// Measures a case from its plan to its verdict, in a guest that has already run it.
    fn case(&self, agent: &Agent, case: &Prepared) -> Measurement {
        self.runtime.block_on(async {
            let (begun, before) = (Instant::now(), qemu_processor_time(agent));
            let mut session = agent.build(case.plan.clone()).await.expect("a lab");
            let evidence = session.probe().await.expect("evidence");
            let measured = Measurement {
                took: begun.elapsed(),
                processor_time: qemu_processor_time(agent).saturating_sub(before),
            };
            let judge = case.judge().expect("the case can be judged");
            let judgement = judge.judge(&evidence);
            assert!(judgement.holds(), "{judgement:#?}");
            drop(session);
            // The agent answers requests in order: once the empty lab is built, the previous lab is
            // removed.
            drop(agent.build(svclab_model::plan::Plan::default()).await);
            measured
        })
    }

    /// Measures `svclab run` with all labs of the write-ups, in guests.
    fn run_all_labs(&self) -> Measurement {
        let (begun, before) = (Instant::now(), processor_time());
        let status = Command::new(SVCLAB)
            .current_dir(svclab_test_support::root())
            .args(["run", "--kernel", "6.12"])
            .env("SVCLAB_CACHE", self.warm.directory())
            .stdout(Stdio::null())
            .status()
            .expect("svclab starts");
        let took = begun.elapsed();
        assert!(status.success(), "svclab run ended with {status}");
        Measurement {
            took,
            processor_time: processor_time().saturating_sub(before),
        }
    }

    fn describe_machine(&self) -> String {
        let guest = self.guest(&self.warm);
        let kvm = self.runtime.block_on(guest.kvm()).expect("a QEMU");
        let by = if kvm == Kvm::Works { "with" } else { "without" };
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        format!(
            "Linux {} {by} KVM, {cores} cores, load {load}",
            guest.release()
        )
    }
}

fn prepare_case(name: &str) -> Prepared {
    let chosen =
        select_labs(&[name.to_owned()], &svclab_test_support::topologies()).expect("a lab");
    let case = &chosen[0].scenario.cases()[chosen[0].cases[0]];
    prepare(&chosen[0], case, Duration::from_secs(3)).expect("the case can be prepared")
}

fn add_row(table: &mut Table, label: &str, measured: &[Measurement], aim: f64) {
    let sorted = |duration: fn(&Measurement) -> Duration| {
        let mut seconds: Vec<f64> = measured
            .iter()
            .map(|one| duration(one).as_secs_f64())
            .collect();
        seconds.sort_by(f64::total_cmp);
        (seconds[seconds.len() / 2], seconds[0])
    };
    let (median, best) = sorted(|measurement| measurement.took);
    let (_, least_work) = sorted(|measurement| measurement.processor_time);
    let right =
        |seconds: f64| Cell::new(format!("{seconds:.3} s")).set_alignment(CellAlignment::Right);
    let met = if median <= aim { "met" } else { "missed" };
    table.add_row([
        Cell::new(label),
        right(median),
        right(best),
        right(aim),
        Cell::new(met),
        right(least_work),
    ]);
}

/// Returns the processor time of this process and of its ended children.
fn processor_time() -> Duration {
    let times_of = |who| {
        let usage = getrusage(who).expect("usage");
        [usage.user_time(), usage.system_time()].map(|time| {
            let micros = time.num_microseconds();
            Duration::from_micros(micros.unsigned_abs())
        })
    };
    let times = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].map(times_of);
    times.iter().flatten().sum()
}

/// Returns the processor time of a guest's running QEMU process.
fn qemu_processor_time(agent: &Agent) -> Duration {
    let process = agent.process().expect("a guest is a process");
    // The first number of `schedstat` is the thread's processor time in nanoseconds.
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let nanoseconds = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// Describes the resident memory of a process, and its unshared part.
fn describe_memory(process: u32) -> String {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(path).expect("the process runs");
    let sum_of = |names: &[&str]| -> u64 {
        text.lines()
            .filter(|line| names.iter().any(|name| line.starts_with(name)))
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum()
    };
    format!(
        "{} MiB, of which {} MiB are private",
        sum_of(&["Rss:"]) / 1024,
        sum_of(&["Private_Clean:", "Private_Dirty:"]) / 1024
    )
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("a copy");
        }
    }
}
