//! The intruder: enters the namespaces of the agent and runs all attempts.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Gid, Uid, chdir, fork, setgroups, setresgid, setresuid};

use super::attempts;
use super::identity::{self, NAMESPACES};
use super::outside::Target;

/// Enters the namespaces of the agent, runs the attempts, and prints one result a line. The first
/// two arguments are the PIDs of the waiting process outside and of the agent inside.
pub fn main(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let mut next = || arguments.next().expect("an argument");
    let (waiting, agent) = (next(), next());
    let target: Target = serde_json::from_str(&next()).expect("a target");
    let namespaces = identity::namespaces(&agent);
    enter(&waiting, &agent).expect("a new process can enter every namespace");
    // Processes that start from here on are inside.
    run_attempt("identity", || {
        let own_identity = [
            identity::privileges("thread-self"),
            identity::namespaces("thread-self"),
        ];
        let agent = [identity::privileges("1"), namespaces.clone()];
        if own_identity == agent {
            Err(Errno::ENODATA.into())
        } else {
            Ok(format!("{own_identity:?} is not {agent:?}"))
        }
    });
    for attempt in attempts::ATTEMPTS {
        run_attempt(attempt.name, || (attempt.act)(&target));
    }
    ExitCode::SUCCESS
}

/// Runs an attempt in a new process and prints its result.
fn run_attempt(name: &str, act: impl FnOnce() -> std::io::Result<String>) {
    std::io::stdout().flush().expect("standard output is open");
    // SAFETY: this process has one thread.
    match unsafe { fork() }.expect("a process") {
        ForkResult::Parent { child } => {
            waitpid(child, None).expect("the process ends");
        }
        ForkResult::Child => {
            // As the agent does before it starts any program.
            drop_capabilities();
            prctl::set_no_new_privs().expect("no_new_privs can be set");
            match act() {
                Ok(how) => println!("{name}\tout\t{how}"),
                Err(error) => {
                    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
                    println!("{name}\trefused\t{errno:?}");
                }
            }
            std::io::stdout().flush().expect("standard output is open");
            std::process::exit(0);
        }
    }
}

/// Drops the capabilities that programs of labs cannot have from the bounding set.
fn drop_capabilities() {
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_NET_RAW.
    for capability in (0..64).filter(|capability| ![10, 12, 13].contains(capability)) {
        // SAFETY: the call takes numbers. Beyond the last capability it has no effect.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}

/// Enters the namespaces of the agent and becomes its user.
fn enter(waiting: &str, agent: &str) -> std::io::Result<()> {
    let open = |process: &str, name: &str| File::open(format!("/proc/{process}/ns/{name}"));
    let outer = open(waiting, "user")?;
    let namespaces = NAMESPACES.map(|name| open(agent, name));
    if setgroups(&[]).is_err() {
        // A process without root cannot change its groups, and has none to drop.
    }
    // If the agent's outer user namespace is not the current one, the other namespaces belong to
    // that one.
    match setns(outer.as_fd(), CloneFlags::CLONE_NEWUSER) {
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(errno) => return Err(errno.into()),
    }
    for namespace in namespaces {
        setns(namespace?.as_fd(), CloneFlags::empty())?;
    }
    setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0))?;
    setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0))?;
    chdir("/")?;
    prctl::set_dumpable(true)?;
    Ok(())
}
