//! `kill -9`, at any moment, of any process of a run and of all at once: nothing
//! runs on, and the machine is as it was.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};
use serial_test::file_serial;
use svclab::kernel::witness;

use super::support::svclab;

/// How soon everything must be gone.
const SOON: Duration = Duration::from_secs(1);

/// Cases of every length: some connect at once, some wait.
const RUN: [&str; 3] = ["run", "--patience=700ms", "canal-stale-rule/rpFilter=1"];

/// How long after its start the last of the moments is: longer than a run.
const WITHIN: Duration = Duration::from_millis(1500);

/// How many moments are tried for one process and for all at once, in an ordinary
/// run and when `SVCLAB_FULL` is set.
const MOMENTS: [(usize, usize); 2] = [(10, 100), (4, 20)];

fn moments(of: usize) -> usize {
    let full = std::env::var_os("SVCLAB_FULL").is_some_and(|set| !set.is_empty());
    let (ordinary, all) = MOMENTS[of];
    if full { all } else { ordinary }
}

/// A run in a session of its own, which all that it starts is of.
fn start() -> (Child, i32) {
    let mut command = svclab();
    command
        .args(RUN)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: between fork and exec one system call is made, which may be made
    // there.
    unsafe {
        command.pre_exec(|| Ok(setsid().map(drop)?));
    }
    let child = command.spawn().expect("the command starts");
    let session = i32::try_from(child.id()).expect("a small number");
    (child, session)
}

/// The processes of a session that have not ended.
fn of_session(session: i32) -> BTreeSet<i32> {
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

/// Waits for the end of all processes of a session; those that are left.
fn left(session: i32, deadline: Instant) -> BTreeSet<i32> {
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

/// A descriptor that becomes readable when a process ends.
fn watch(process: i32) -> Option<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or -1.
    let fd = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, process, 0) };
    // SAFETY: the descriptor is new, and nobody else has it.
    i32::try_from(fd)
        .ok()
        .filter(|fd| *fd >= 0)
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Numbers that look drawn, the same in every run: a failure can be had again.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, limit: u64) -> u64 {
        // Xorshift, as Marsaglia gave it.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Lets a run come to some moment: so many looks at its processes later, or when
/// it is over. Looking takes time as sleeping would, and is bound to the run.
fn at_a_moment(session: i32, drawn: &mut Drawn) -> Vec<i32> {
    let limit = u64::try_from(WITHIN.as_micros()).expect("a small number");
    let until = Instant::now() + Duration::from_micros(drawn.below(limit));
    loop {
        let processes = of_session(session);
        if processes.is_empty() || Instant::now() >= until {
            return processes.into_iter().collect();
        }
    }
}

#[test]
#[file_serial(machine)]
fn a_process_that_is_killed_takes_all_with_it_or_is_missed() {
    let before = witness::look().digest();
    let mut drawn = Drawn(0x5eed);
    let mut killed = 0;
    for moment in 0..moments(0) {
        let (mut front, session) = start();
        let processes = at_a_moment(session, &mut drawn);
        if !processes.is_empty() {
            let at = drawn.below(processes.len() as u64);
            let victim = processes[usize::try_from(at).unwrap()];
            // It may have ended since.
            killed += usize::from(kill(Pid::from_raw(victim), Signal::SIGKILL).is_ok());
            if victim == session {
                let left = left(session, Instant::now() + SOON);
                assert!(left.is_empty(), "moment {moment}: {left:?} go on");
            }
        }
        // Without its agent or a program the run comes to its end by itself.
        front.wait().unwrap();
        let left = left(session, Instant::now() + SOON);
        assert!(left.is_empty(), "moment {moment}: {left:?} go on");
        assert_eq!(witness::look().digest(), before, "moment {moment}");
    }
    assert!(killed * 2 > moments(0), "only {killed} were killed");
}

#[test]
#[file_serial(machine)]
fn all_at_once_can_be_killed() {
    let before = witness::look().digest();
    let mut drawn = Drawn(0xa11);
    for moment in 0..moments(1) {
        let (mut front, session) = start();
        for process in at_a_moment(session, &mut drawn) {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        // What was started between the look and the kill has nobody left either.
        let left = left(session, Instant::now() + SOON);
        assert!(left.is_empty(), "moment {moment}: {left:?} go on");
        front.wait().unwrap();
        assert_eq!(witness::look().digest(), before, "moment {moment}");
    }
}
