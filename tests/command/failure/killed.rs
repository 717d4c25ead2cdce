//! Kills single processes and all processes of runs with SIGKILL at random moments, on this host
//! and in a guest. Nothing keeps running, and the machine and the guest cache are unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};
use serial_test::file_serial;
use svclab_runner::certify;
use svclab_runner::kernel::guest::{Cache, SNAPSHOTS};
use svclab_test_support::guests::{assert_clean, new_cache};
use svclab_test_support::ordinary_or_full;
use svclab_test_support::processes::{session_processes, wait_for_session_end};

use crate::support::svclab;

/// Maximum time until all processes have ended.
const MAX_END_TIME: Duration = Duration::from_secs(1);

/// Parameters of the runs that are killed.
struct Runs {
    arguments: &'static [&'static str],
    /// Latest moment of a kill, measured from the start of the run; about the length of a run.
    max_delay: Duration,
    /// Guest cache; `None` for runs on this host.
    cache: Option<Cache>,
    random: Random,
}

impl Runs {
    /// Runs cases of different lengths on this host: some connect at once, some time out.
    fn on_this_host(seed: u64) -> Self {
        Self {
            arguments: &[
                "run",
                "--max-wait=700ms",
                "--kernel=host",
                "canal-stale-rule/rpFilter=1",
            ],
            max_delay: Duration::from_millis(1500),
            cache: None,
            random: Random(seed),
        }
    }

    /// Runs cases with a load balancer in a guest.
    fn in_a_guest(seed: u64, cache: Cache) -> Self {
        Self {
            arguments: &[
                "run",
                "--kernel=6.12",
                "clb-hairpin/policy=Local,ingress=otherNode,balancer=internal",
            ],
            max_delay: Duration::from_secs(4),
            cache: Some(cache),
            random: Random(seed),
        }
    }

    /// Starts a run in a new session, which contains all its processes.
    fn start(&self) -> Run {
        self.start_with(self.arguments.iter().copied())
    }

    fn start_with(&self, words: impl Iterator<Item = &'static str>) -> Run {
        let mut command = svclab();
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(cache) = &self.cache {
            command.env("SVCLAB_CACHE", cache.directory());
        }
        // SAFETY: one async-signal-safe system call is made between fork and exec.
        unsafe {
            command.pre_exec(|| Ok(setsid().map(drop)?));
        }
        let front = command.spawn().expect("the command starts");
        let session = i32::try_from(front.id()).expect("the PID fits");
        Run { front, session }
    }

    /// Returns a random moment from now on.
    fn moment(&mut self) -> Instant {
        let limit = u64::try_from(self.max_delay.as_micros()).expect("the number fits");
        Instant::now() + Duration::from_micros(self.random.below(limit))
    }

    /// Picks a random process; `None` if the list is empty.
    fn pick(&mut self, processes: &[i32]) -> Option<i32> {
        let count = u64::try_from(processes.len()).expect("the number fits");
        let index = (count > 0).then(|| self.random.below(count))?;
        processes.get(usize::try_from(index).ok()?).copied()
    }

    /// Returns a digest of the machine, and the size and time of each file in the cache.
    fn machine_state(&self) -> (String, BTreeMap<PathBuf, (u64, SystemTime)>) {
        let mut files = BTreeMap::new();
        let mut directories: Vec<PathBuf> = self
            .cache
            .iter()
            .map(|cache| cache.directory().to_owned())
            .collect();
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).expect("a directory") {
                let entry = entry.expect("an entry");
                let metadata = entry.metadata().expect("the file exists");
                if metadata.is_dir() {
                    directories.push(entry.path());
                } else {
                    let modified = metadata.modified().expect("a time");
                    files.insert(entry.path(), (metadata.len(), modified));
                }
            }
        }
        (certify::read_state().digest(), files)
    }

    /// Runs the cases to their end with the default wait, and asserts that all pass.
    fn assert_runs_pass(&self) {
        let words = self.arguments.iter().copied();
        let mut run = self.start_with(words.filter(|word| !word.starts_with("--max-wait")));
        let status = run.front.wait().expect("the command ends");
        assert_eq!(status.code(), Some(0), "the next run");
        run.assert_ended("the next run");
        if let Some(cache) = &self.cache {
            assert_clean(cache.directory());
        }
    }
}

/// A run and the ID of its session.
struct Run {
    front: Child,
    session: i32,
}

impl Run {
    /// Waits until a moment or until the run has ended. Returns the processes at that time. Polls
    /// without sleeping: listing the processes takes long enough.
    fn run_until(&mut self, moment: Instant) -> Vec<i32> {
        loop {
            let processes = session_processes(self.session);
            if processes.is_empty() || Instant::now() >= moment {
                return processes.into_keys().collect();
            }
        }
    }

    /// Waits until a process of that name runs. Returns `None` if the run ends first.
    fn wait_for_process(&self, name: &str) -> Option<i32> {
        loop {
            let processes = session_processes(self.session);
            let mut of_name = processes
                .keys()
                .filter(|process| has_program_name(**process, name));
            match of_name.next() {
                Some(process) => return Some(*process),
                None if processes.is_empty() => return None,
                None => {}
            }
        }
    }

    /// Asserts that all processes of the run end within [`MAX_END_TIME`].
    fn assert_ended(&self, when: &str) {
        let left = wait_for_session_end(self.session, Instant::now() + MAX_END_TIME);
        assert!(left.is_empty(), "{when}: {left:?} still run");
    }
}

fn has_program_name(process: i32, name: &str) -> bool {
    let program = fs::read_link(format!("/proc/{process}/exe"));
    let program = program.as_deref().ok().and_then(Path::file_name);
    program.is_some_and(|program| program.to_string_lossy().starts_with(name))
}

/// Pseudorandom numbers, the same in every run, so that failures can be reproduced.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // Xorshift (Marsaglia).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Maximum number of repetitions because QEMU had already ended.
const MAX_REPETITIONS: usize = 8;

/// Kills one process at each of `moments` moments. Every second victim is QEMU in guest runs; the
/// others are random. Returns the number of killed processes, and how many of them were QEMU.
fn kill_one_process_each(mut runs: Runs, moments: usize) -> (usize, usize) {
    let before = runs.machine_state();
    let (mut killed, mut qemus) = (0, 0);
    let mut late = 0;
    let mut moment = 0;
    while moment < moments {
        let when = format!("moment {moment}");
        let mut run = runs.start();
        let qemu = (runs.cache.is_some() && moment % 2 == 1)
            .then(|| run.wait_for_process("qemu"))
            .flatten();
        let processes = run.run_until(runs.moment());
        let victim = qemu.or_else(|| runs.pick(&processes));
        if let Some(victim) = victim {
            // The process may have ended meanwhile.
            let ended = kill(Pid::from_raw(victim), Signal::SIGKILL).is_ok();
            killed += usize::from(ended);
            qemus += usize::from(ended && qemu.is_some());
            if victim == run.session {
                run.assert_ended(&when);
            }
        }
        // A run without its agent, guest or program ends by itself.
        run.front.wait().expect("the command ends");
        run.assert_ended(&when);
        assert_eq!(runs.machine_state(), before, "{when}");
        // If the run ended before the moment, QEMU was not killed.
        let missed = runs.cache.is_some() && moment % 2 == 1 && qemus == 0;
        if missed && late < MAX_REPETITIONS {
            late += 1;
        } else {
            moment += 1;
        }
    }
    runs.assert_runs_pass();
    assert_eq!(runs.machine_state(), before);
    (killed, qemus)
}

/// Kills all processes at each of `moments` moments.
fn kill_all_processes(mut runs: Runs, moments: usize) {
    let before = runs.machine_state();
    for moment in 0..moments {
        let mut run = runs.start();
        for process in run.run_until(runs.moment()) {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        // Processes that started after the list was made must end, too.
        run.assert_ended(&format!("moment {moment}"));
        run.front.wait().expect("the command ends");
        assert_eq!(runs.machine_state(), before, "moment {moment}");
    }
    runs.assert_runs_pass();
    assert_eq!(runs.machine_state(), before);
}

/// Creates a cache with a guest snapshot that was restored once.
fn warm_cache() -> (tempfile::TempDir, Cache) {
    let (directory, cache) = new_cache("6.12");
    let runs = Runs::in_a_guest(1, cache.clone());
    runs.assert_runs_pass();
    (directory, cache)
}

#[test]
#[file_serial(machine)]
fn run_process_killed_leaves_nothing_behind() {
    let moments = ordinary_or_full(10, 100);
    let (killed, _) = kill_one_process_each(Runs::on_this_host(0x5eed), moments);
    println!("{killed} of {moments} processes were killed before they ended");
    assert!(killed * 2 > moments, "only {killed} were killed");
}

#[test]
#[file_serial(machine)]
fn run_all_processes_killed_leaves_nothing_behind() {
    kill_all_processes(Runs::on_this_host(0xa11), ordinary_or_full(4, 20));
}

#[test]
#[file_serial(machine)]
fn guest_run_killed_leaves_nothing_behind() {
    let (_directory, cache) = warm_cache();
    let moments = ordinary_or_full(2, 50);
    let (killed, qemus) = kill_one_process_each(Runs::in_a_guest(0x5eed, cache.clone()), moments);
    println!("{killed} of {moments} processes were killed before they ended, {qemus} were QEMU");
    assert!(killed * 2 >= moments, "only {killed} were killed");
    assert!(qemus > 0, "QEMU was never killed");
    kill_all_processes(Runs::in_a_guest(0xa11, cache), ordinary_or_full(1, 20));
}

#[test]
#[file_serial(machine)]
fn guest_first_boot_killed_leaves_usable_cache() {
    // Each run boots a guest without snapshot, which only the full test run does.
    for moment in 0..ordinary_or_full(0, 5) {
        let (_directory, cache) = new_cache("6.12");
        let mut runs = Runs::in_a_guest(0xb007 + moment, cache.clone());
        let mut run = runs.start();
        run.wait_for_process("qemu").expect("a guest is booted");
        for process in run.run_until(runs.moment()) {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        run.assert_ended("during the boot");
        run.front.wait().expect("the command ends");
        // The unfinished snapshot does not disturb the next run.
        runs.assert_runs_pass();
        assert_eq!(cache.keys(SNAPSHOTS).len(), 1);
    }
}
