//! Traces the packets of a lab that this host's kernel drops. The front end does this, because an
//! agent on this host lacks the privilege.
//!
//! The agent reports the descriptors with which it holds the namespaces of a lab. The front end
//! does not trust this report: even a compromised agent must not see packets of others. The front
//! end traces what the agent's process really holds, if that is a network namespace owned by the
//! agent's user namespace. An agent without a user namespace of its own must belong to the
//! machine's user namespace. Its network namespace must then not be that of the front end or that
//! of the machine's first process.

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

/// Request of `ioctl_ns(2)` for the user namespace that owns a namespace (`NS_GET_USERNS`).
const OWNER: libc::c_ulong = 0xb701;

#[derive(Debug, Clone, Copy)]
pub struct Agent {
    /// Process ID of the agent's program as it was started.
    pub process: u32,
    pub standing: Standing,
}

/// Running trace of the drops of a lab.
#[derive(Debug)]
pub struct Tracing {
    tracer: Tracer,
    /// Open descriptors of the namespaces. While they are open, no other namespace can get the same
    /// inode number.
    _held: Vec<OwnedFd>,
}

impl Tracing {
    /// Starts to trace namespaces that an agent holds. Each has its name and the descriptor that
    /// the agent reports for it.
    ///
    /// # Errors
    ///
    /// When drops cannot be traced here, or a descriptor is not such a namespace.
    pub fn begin(agent: Agent, namespaces: Vec<(String, i32)>) -> Result<Self, Untraced> {
        let (scope, held) = scope(agent, namespaces).map_err(|error| {
            Untraced::Unheld(Errno::from_raw(error.raw_os_error().unwrap_or(0)))
        })?;
        Ok(Self {
            tracer: Tracer::begin(scope)?,
            _held: held,
        })
    }

    /// Stops the trace and returns the dropped packets.
    #[must_use]
    pub fn end(self) -> Drops {
        self.tracer.drops()
    }
}

/// Checks whether drops could be traced here.
///
/// # Errors
///
/// When they cannot.
pub fn ask() -> Result<(), Untraced> {
    Tracer::begin(Scope::default()).map(drop)
}

/// Returns the scope of the trace, and the descriptors that keep its inode numbers in use.
fn scope(agent: Agent, namespaces: Vec<(String, i32)>) -> io::Result<(Scope, Vec<OwnedFd>)> {
    let process = enter::innermost(agent.process).ok_or(Errno::ESRCH)?;
    // The descriptor stays open, because the inode number could be reused otherwise.
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
        // The tracing program also compares the owner, which is held open. If the owner is the user
        // namespace of the machine, the network namespace itself must be held open.
        if agent.standing == Standing::Machine {
            held.push(namespace.into());
        }
    }
    Ok((scope, held))
}

/// Opens a network namespace, and no other file. The kernel's name of the file is checked first,
/// because opening a file can have side effects.
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

/// Returns the inode number of the user namespace that owns a namespace.
fn owner_of(namespace: &File) -> io::Result<u64> {
    // SAFETY: the descriptor is the only argument of the request.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), OWNER) };
    let fd = Errno::result(fd)?;
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
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

    /// Process that resembles an agent: a shell in namespaces of its own. Its descriptor 8 holds
    /// the outer network namespace, and 9 its own.
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
            // The shell ends when its input ends.
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
        // Namespace of others; pipe; closed descriptor.
        assert_eq!(refusal(agent, 8), Some(libc::EPERM));
        assert_eq!(refusal(agent, 0), Some(libc::EBADF));
        assert_eq!(refusal(agent, 7), Some(libc::ENOENT));
        // Agent that should not have a user namespace of its own, but has one.
        let machine = Agent {
            standing: Standing::Machine,
            ..agent
        };
        assert_eq!(refusal(machine, 9), Some(libc::EPERM));
        // Agent without a network namespace of its own.
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
