//! What this host drops of a lab's packets, traced by the front end: an agent here may
//! not ask.
//!
//! An agent says by which of its descriptors it holds the namespaces of a lab. It is
//! not taken at its word: whatever it may have become, packets of others are not to be
//! looked at for it. What is traced is what its process does hold, if that is a network
//! namespace that belongs to its own user namespace. Of an agent that has no user
//! namespace of its own, the machine's is asked for instead, and then a namespace may
//! not be the front end's or that of the machine's first process.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

use super::enter;
use svclab_agent::contain::Standing;
use svclab_agent::drops::{Scope, Tracer, Untraced};
use svclab_model::evidence::Drops;

/// A request of `ioctl_ns(2)`: the user namespace that a namespace belongs to.
const OWNER: libc::c_ulong = 0xb701;

/// An agent of this host's.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    /// The process that was started for it.
    pub process: u32,
    /// Whose rights it works with.
    pub standing: Standing,
}

/// The drops of a lab, from now until it is ended.
#[derive(Debug)]
pub struct Tracing {
    tracer: Tracer,
    /// They keep their numbers for as long as they are held: no other namespace can
    /// come to one of them.
    _held: Vec<OwnedFd>,
}

impl Tracing {
    /// Begins to trace some of the namespaces that an agent holds: each by its name
    /// and the descriptor that is said to hold it.
    ///
    /// # Errors
    ///
    /// Why this cannot be done here.
    pub fn begin(agent: Agent, namespaces: Vec<(String, i32)>) -> Result<Self, Untraced> {
        let (scope, held) = scope(agent, namespaces).map_err(|error| {
            Untraced::Unheld(Errno::from_raw(error.raw_os_error().unwrap_or(0)))
        })?;
        Ok(Self {
            tracer: Tracer::begin(scope)?,
            _held: held,
        })
    }

    /// Ends it and says what was dropped.
    #[must_use]
    pub fn end(self) -> Drops {
        self.tracer.drops()
    }
}

/// Asks whether drops could be traced here, of which none are.
///
/// # Errors
///
/// Why they cannot.
pub fn ask() -> Result<(), Untraced> {
    Tracer::begin(Scope::default()).map(drop)
}

/// What is to be traced, and what keeps it what it is.
fn scope(agent: Agent, namespaces: Vec<(String, i32)>) -> io::Result<(Scope, Vec<OwnedFd>)> {
    let process = enter::innermost(agent.process).ok_or(Errno::ESRCH)?;
    // It is held, too, or its number could become another's.
    let user = File::open(format!("/proc/{process}/ns/user"))?;
    let owner = user.metadata()?.ino();
    let own = fs::metadata("/proc/self/ns/user")?.ino();
    if (agent.standing == Standing::Contained) == (owner == own) {
        return Err(Errno::EPERM.into());
    }
    let others = ["/proc/self/ns/net", "/proc/1/ns/net"]
        .map(fs::metadata)
        .map(|found| found.map(|found| found.ino()));
    let mut held = vec![OwnedFd::from(user)];
    let mut scope = Scope {
        owner: u32::try_from(owner).map_err(io::Error::other)?,
        ..Scope::default()
    };
    for (name, descriptor) in namespaces {
        let at = format!("/proc/{process}/fd/{descriptor}");
        let namespace = network_namespace(Path::new(&at))?;
        let number = namespace.metadata()?.ino();
        let is_another_s = others
            .iter()
            .any(|other| other.as_ref().is_ok_and(|other| *other == number));
        if owner_of(&namespace)? != owner || is_another_s {
            return Err(Errno::EPERM.into());
        }
        let number = u32::try_from(number).map_err(io::Error::other)?;
        scope.namespaces.insert(number, name);
        // The program asks for the owner, too, which is held. Where that is everybody's,
        // the namespace itself has to be.
        if agent.standing == Standing::Machine {
            held.push(namespace.into());
        }
    }
    Ok((scope, held))
}

/// Opens a network namespace, and nothing else: what it is is asked first of the
/// kernel's own name for it, since to open a file may do something.
fn network_namespace(at: &Path) -> io::Result<File> {
    let found = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(at)?;
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    let name = fs::read_link(&itself)?;
    if !name.to_str().is_some_and(|name| name.starts_with("net:[")) {
        return Err(Errno::EBADF.into());
    }
    File::open(itself)
}

/// The number of the user namespace that a namespace belongs to.
fn owner_of(namespace: &File) -> io::Result<u64> {
    // SAFETY: the request takes nothing but the descriptor.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), OWNER) };
    let fd = Errno::result(fd)?;
    // SAFETY: the kernel has just made it, for us alone.
    let owner = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(owner.metadata()?.ino())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn only_a_network_namespace_is_opened_as_one() {
        let own = network_namespace(Path::new("/proc/self/ns/net")).unwrap();
        let number = fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert_eq!(own.metadata().unwrap().ino(), number);
        let directory = tempfile::tempdir().unwrap();
        let named = directory.path().join("net:[4026531840]");
        File::create(&named).unwrap().write_all(b"none").unwrap();
        for other in [Path::new("/proc/self/ns/user"), &named] {
            let refused = network_namespace(other).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EBADF), "{other:?}");
        }
    }

    /// A process that is like an agent, or not quite: a shell in namespaces of its
    /// own, with the outer network namespace at descriptor 8 and its own at 9.
    struct Like(Child);

    impl Like {
        fn started(words: &[&str]) -> (Self, Agent) {
            let script = "exec 9</proc/self/ns/net; echo; read end";
            let mut child = Command::new("sh")
                .args(["-c", "exec 8</proc/self/ns/net; exec \"$@\"", "sh"])
                .args(["unshare", "--user", "--map-root-user", "--pid", "--fork"])
                .args(words)
                .args(["--mount-proc", "sh", "-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a shell");
            let process = child.id();
            let mut said = child.stdout.take().expect("a pipe");
            said.read_exact(&mut [0]).expect("it is there");
            let standing = Standing::Contained;
            (Self(child), Agent { process, standing })
        }
    }

    impl Drop for Like {
        fn drop(&mut self) {
            // What it reads ends, and so it does.
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    fn refusal(agent: Agent, descriptor: i32) -> Option<i32> {
        let scope = scope(agent, vec![("lab".to_owned(), descriptor)]);
        scope.err().map(|error| error.raw_os_error().unwrap_or(0))
    }

    #[test]
    fn an_agent_is_believed_of_its_own_namespaces_only() {
        let (_like, agent) = Like::started(&["--net"]);
        assert_eq!(refusal(agent, 9), None);
        // That of others; its pipe; nothing.
        assert_eq!(refusal(agent, 8), Some(libc::EPERM));
        assert_eq!(refusal(agent, 0), Some(libc::EBADF));
        assert_eq!(refusal(agent, 7), Some(libc::ENOENT));
        // One that was to have no user namespace has got one.
        let machine = Agent {
            standing: Standing::Machine,
            ..agent
        };
        assert_eq!(refusal(machine, 9), Some(libc::EPERM));
        // One that has not made itself a network namespace.
        let (_like, agent) = Like::started(&[]);
        assert_eq!(refusal(agent, 9), Some(libc::EPERM));
    }

    #[test]
    fn a_process_that_is_no_agent_is_not_traced() {
        let own = Agent {
            process: std::process::id(),
            standing: Standing::Contained,
        };
        let refused = Tracing::begin(own, Vec::new()).unwrap_err();
        assert_eq!(refused, Untraced::Unheld(Errno::ESRCH));
    }
}
