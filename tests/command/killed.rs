//! Kills single processes and all processes of runs with SIGKILL at random moments, on this host
//! and in a guest. Nothing keeps running, and the machine and the guest cache are unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};
use serial_test::file_serial;
use svclab_runner::kernel::guest::{Cache, SNAPSHOTS};
use svclab_runner::kernel::witness;

use super::caches::{is_clean, own_cache};
use super::full::ordinary_or_full;
use super::support::svclab;

/// Maximum time until all processes have ended.
const SOON: Duration = Duration::from_secs(1);

/// Parameters of the runs that are killed.
struct Runs {
    words: &'static [&'static str],
    /// Latest moment of a kill, measured from the start of the run; about the length of a run.
    within: Duration,
    /// Guest cache; `None` for runs on this host.
    cache: Option<Cache>,
    drawn: Drawn,
}

impl Runs {
    /// Runs cases of different lengths on this host: some connect at once, some time out.
    fn on_this_host(seed: u64) -> Self {
        Self {
            words: &[
                "run",
                "--max-wait=700ms",
                "--kernel=host",
                "canal-stale-rule/rpFilter=1",
            ],
            within: Duration::from_millis(1500),
            cache: None,
            drawn: Drawn(seed),
        }
    }

    /// Runs cases with a load balancer in a guest.
    fn in_a_guest(seed: u64, cache: Cache) -> Self {
        Self {
            words: &[
                "run",
                "--kernel=6.12",
                "clb-hairpin/policy=Local,ingress=otherNode,balancer=internal",
            ],
            within: Duration::from_secs(4),
            cache: Some(cache),
            drawn: Drawn(seed),
        }
    }

    /// Starts a run in a new session, which contains all its processes.
    fn start(&self) -> Run {
        self.start_with(self.words.iter().copied())
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
        let session = i32::try_from(front.id()).expect("a small number");
        Run { front, session }
    }

    /// Returns a random moment from now on.
    fn moment(&mut self) -> Instant {
        let limit = u64::try_from(self.within.as_micros()).expect("a small number");
        Instant::now() + Duration::from_micros(self.drawn.below(limit))
    }

    /// Picks a random process; `None` if the list is empty.
    fn one_of(&mut self, processes: &[i32]) -> Option<i32> {
        let count = u64::try_from(processes.len()).expect("a small number");
        let at = (count > 0).then(|| self.drawn.below(count))?;
        processes.get(usize::try_from(at).ok()?).copied()
    }

    /// Returns a digest of the machine, and the size and time of each file in the cache.
    fn look(&self) -> (String, BTreeMap<PathBuf, (u64, SystemTime)>) {
        let mut files = BTreeMap::new();
        let mut directories: Vec<PathBuf> = self
            .cache
            .iter()
            .map(|cache| cache.directory().to_owned())
            .collect();
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).expect("a directory") {
                let entry = entry.expect("an entry");
                let about = entry.metadata().expect("it is there");
                if about.is_dir() {
                    directories.push(entry.path());
                } else {
                    let modified = about.modified().expect("a time");
                    files.insert(entry.path(), (about.len(), modified));
                }
            }
        }
        (witness::look().digest(), files)
    }

    /// Runs the cases to their end with the default wait, and asserts that all pass.
    fn still_work(&self) {
        let words = self.words.iter().copied();
        let mut run = self.start_with(words.filter(|word| !word.starts_with("--max-wait")));
        let status = run.front.wait().expect("an end");
        assert_eq!(status.code(), Some(0), "the next run");
        run.is_gone("the next run");
        if let Some(cache) = &self.cache {
            is_clean(cache.directory());
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
    fn until(&mut self, moment: Instant) -> Vec<i32> {
        loop {
            let processes = of_session(self.session);
            if processes.is_empty() || Instant::now() >= moment {
                return processes.into_iter().collect();
            }
        }
    }

    /// Waits until a process of that name runs. Returns `None` if the run ends first.
    fn until_there_is(&self, name: &str) -> Option<i32> {
        loop {
            let processes = of_session(self.session);
            let mut of_name = processes
                .iter()
                .filter(|process| is_called(**process, name));
            match of_name.next() {
                Some(process) => return Some(*process),
                None if processes.is_empty() => return None,
                None => {}
            }
        }
    }

    /// Asserts that all processes of the run end within [`SOON`].
    fn is_gone(&self, when: &str) {
        let left = left(self.session, Instant::now() + SOON);
        assert!(left.is_empty(), "{when}: {left:?} go on");
    }
}

fn is_called(process: i32, name: &str) -> bool {
    let program = fs::read_link(format!("/proc/{process}/exe"));
    let program = program.as_deref().ok().and_then(Path::file_name);
    program.is_some_and(|program| program.to_string_lossy().starts_with(name))
}

/// Returns the processes of a session that have not ended.
pub fn of_session(session: i32) -> BTreeSet<i32> {
    let all = fs::read_dir("/proc").expect("processes").flatten();
    all.filter_map(|entry| {
        let process: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?;
        let of: i32 = fields.nth(2)?.parse().ok()?;
        (of == session && state != "Z").then_some(process)
    })
    .collect()
}

/// Waits until all processes of a session have ended. Returns those that run after the deadline.
pub fn left(session: i32, deadline: Instant) -> BTreeSet<i32> {
    loop {
        let processes = of_session(session);
        for process in &processes {
            let Some(watched) = watch(*process) else {
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut on = [PollFd::new(watched.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut on, left);
        }
        if processes.is_empty() || Instant::now() >= deadline {
            return of_session(session);
        }
    }
}

/// Opens a pidfd, which becomes readable when the process ends.
fn watch(process: i32) -> Option<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or -1.
    let fd = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, process, 0) };
    // SAFETY: the descriptor is new and has no other owner.
    i32::try_from(fd)
        .ok()
        .filter(|fd| *fd >= 0)
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Pseudorandom numbers, the same in every run, so that failures can be reproduced.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, limit: u64) -> u64 {
        // Xorshift (Marsaglia).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Maximum number of repetitions because QEMU had already ended.
const LATE: usize = 8;

/// Kills one process at each of `moments` moments. Every second victim is QEMU in guest runs; the
/// others are random. Returns the number of killed processes, and how many of them were QEMU.
fn one_at_a_time(mut runs: Runs, moments: usize) -> (usize, usize) {
    let before = runs.look();
    let (mut killed, mut qemus) = (0, 0);
    let mut late = 0;
    let mut moment = 0;
    while moment < moments {
        let when = format!("moment {moment}");
        let mut run = runs.start();
        let qemu = (runs.cache.is_some() && moment % 2 == 1)
            .then(|| run.until_there_is("qemu"))
            .flatten();
        let processes = run.until(runs.moment());
        let victim = qemu.or_else(|| runs.one_of(&processes));
        if let Some(victim) = victim {
            // The process may have ended meanwhile.
            let ended = kill(Pid::from_raw(victim), Signal::SIGKILL).is_ok();
            killed += usize::from(ended);
            qemus += usize::from(ended && qemu.is_some());
            if victim == run.session {
                run.is_gone(&when);
            }
        }
        // A run without its agent, guest or program ends by itself.
        run.front.wait().expect("an end");
        run.is_gone(&when);
        assert_eq!(runs.look(), before, "{when}");
        // If the run ended before the moment, QEMU was not killed.
        let missed = runs.cache.is_some() && moment % 2 == 1 && qemus == 0;
        if missed && late < LATE {
            late += 1;
        } else {
            moment += 1;
        }
    }
    runs.still_work();
    assert_eq!(runs.look(), before);
    (killed, qemus)
}

/// Kills all processes at each of `moments` moments.
fn all_at_once(mut runs: Runs, moments: usize) {
    let before = runs.look();
    for moment in 0..moments {
        let mut run = runs.start();
        for process in run.until(runs.moment()) {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        // Processes that started after the list was made must end, too.
        run.is_gone(&format!("moment {moment}"));
        run.front.wait().expect("an end");
        assert_eq!(runs.look(), before, "moment {moment}");
    }
    runs.still_work();
    assert_eq!(runs.look(), before);
}

/// Creates a cache with a guest snapshot that was restored once.
fn warm_cache() -> (tempfile::TempDir, Cache) {
    let (directory, cache) = own_cache("6.12");
    let runs = Runs::in_a_guest(1, cache.clone());
    runs.still_work();
    (directory, cache)
}

#[test]
#[file_serial(machine)]
fn a_process_that_is_killed_takes_all_with_it_or_is_missed() {
    let moments = ordinary_or_full(10, 100);
    let (killed, _) = one_at_a_time(Runs::on_this_host(0x5eed), moments);
    println!("{killed} of {moments} processes were killed before they ended");
    assert!(killed * 2 > moments, "only {killed} were killed");
}

#[test]
#[file_serial(machine)]
fn all_at_once_can_be_killed() {
    all_at_once(Runs::on_this_host(0xa11), ordinary_or_full(4, 20));
}

#[test]
#[file_serial(machine)]
fn a_guest_that_is_killed_takes_all_with_it_or_is_missed() {
    let (_directory, cache) = warm_cache();
    let moments = ordinary_or_full(2, 50);
    let (killed, qemus) = one_at_a_time(Runs::in_a_guest(0x5eed, cache.clone()), moments);
    println!("{killed} of {moments} processes were killed before they ended, {qemus} were QEMU");
    assert!(killed * 2 >= moments, "only {killed} were killed");
    assert!(qemus > 0, "QEMU was never killed");
    all_at_once(Runs::in_a_guest(0xa11, cache), ordinary_or_full(1, 20));
}

#[test]
#[file_serial(machine)]
fn a_guest_that_is_being_made_can_be_killed() {
    // Each run boots a guest without snapshot, which only the full test run does.
    for moment in 0..ordinary_or_full(0, 5) {
        let (_directory, cache) = own_cache("6.12");
        let mut runs = Runs::in_a_guest(0xb007 + moment, cache.clone());
        let mut run = runs.start();
        run.until_there_is("qemu").expect("a guest is booted");
        for process in run.until(runs.moment()) {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        run.is_gone("while it booted");
        run.front.wait().expect("an end");
        // The unfinished snapshot does not disturb the next run.
        runs.still_work();
        assert_eq!(cache.keys(SNAPSHOTS).len(), 1);
    }
}
