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

use crate::kernel::processes::find_agent_process;
use svclab_agent::contain::AgentPrivilege;
use svclab_agent::drops::{DropTracer, Scope, TraceError};
use svclab_model::evidence::DropEvidence;

/// Request of `ioctl_ns(2)` for the user namespace that owns a namespace (`NS_GET_USERNS`).
const NS_GET_USERNS: libc::c_ulong = 0xb701;

#[derive(Debug, Clone, Copy)]
pub(crate) struct HostAgent {
    /// Process ID of the agent's program as it was started.
    pub process: u32,
    pub privilege: AgentPrivilege,
}

/// Running trace of the drops of a lab.
#[derive(Debug)]
pub(crate) struct DropTrace {
    tracer: DropTracer,
    /// Open descriptors of the namespaces. While they are open, no other namespace can get the same
    /// inode number.
    _held: Vec<OwnedFd>,
}

impl DropTrace {
    /// Starts to trace namespaces that an agent holds. Each has its name and the descriptor that
    /// the agent reports for it.
    pub(crate) fn start(
        agent: HostAgent,
        namespaces: Vec<(String, i32)>,
    ) -> Result<Self, TraceError> {
        let (scope, held) = trace_scope(agent, namespaces).map_err(|error| {
            TraceError::NamespaceNotFound(Errno::from_raw(error.raw_os_error().unwrap_or(0)))
        })?;
        Ok(Self {
            tracer: DropTracer::start(scope)?,
            _held: held,
        })
    }

    /// Returns the packets that were dropped since the previous call.
    pub(crate) fn drops(&mut self) -> DropEvidence {
        self.tracer.drops()
    }

    /// Stops the trace and returns the packets that were dropped since the previous call.
    pub(crate) fn stop(mut self) -> DropEvidence {
        self.tracer.drops()
    }
}

/// Checks whether drops could be traced here.
pub(crate) fn check_traceable() -> Result<(), TraceError> {
    DropTracer::start(Scope::default()).map(drop)
}

/// Returns the scope of the trace, and the descriptors that keep its inode numbers in use.
fn trace_scope(
    agent: HostAgent,
    namespaces: Vec<(String, i32)>,
) -> io::Result<(Scope, Vec<OwnedFd>)> {
    let process = find_agent_process(agent.process).ok_or(Errno::ESRCH)?;
    // The descriptor stays open, because the inode number could be reused otherwise.
    let user = File::open(format!("/proc/{process}/ns/user"))?;
    let owner = user.metadata()?.ino();
    let own_user_namespace = fs::metadata("/proc/self/ns/user")?.ino();
    if (agent.privilege == AgentPrivilege::Contained) == (owner == own_user_namespace) {
        return Err(Errno::EPERM.into());
    }
    let protected = ["/proc/self/ns/net", "/proc/1/ns/net"]
        .map(fs::metadata)
        .map(|found| found.map(|found| found.ino()));
    let mut held = vec![OwnedFd::from(user)];
    let mut scope = Scope {
        owner_user_namespace: u32::try_from(owner).map_err(io::Error::other)?,
        ..Scope::default()
    };
    for (name, descriptor) in namespaces {
        let path = format!("/proc/{process}/fd/{descriptor}");
        let namespace = network_namespace(Path::new(&path))?;
        let number = namespace.metadata()?.ino();
        let is_protected = protected
            .iter()
            .any(|other| other.as_ref().is_ok_and(|other| *other == number));
        if owner_inode(&namespace)? != owner || is_protected {
            return Err(Errno::EPERM.into());
        }
        let number = u32::try_from(number).map_err(io::Error::other)?;
        scope.namespaces.insert(number, name);
        // The tracing program also compares the owner, which is held open. If the owner is the user
        // namespace of the machine, the network namespace itself must be held open.
        if agent.privilege == AgentPrivilege::Host {
            held.push(namespace.into());
        }
    }
    Ok((scope, held))
}

/// Opens a network namespace, and no other file. The kernel's name of the file is checked first,
/// because opening a file can have side effects.
fn network_namespace(path: &Path) -> io::Result<File> {
    let found = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    let path_of_descriptor = format!("/proc/self/fd/{}", found.as_raw_fd());
    let name = fs::read_link(&path_of_descriptor)?;
    if !name.to_str().is_some_and(|name| name.starts_with("net:[")) {
        return Err(Errno::EBADF.into());
    }
    File::open(path_of_descriptor)
}

/// Returns the inode number of the user namespace that owns a namespace.
fn owner_inode(namespace: &File) -> io::Result<u64> {
    // SAFETY: the descriptor is the only argument of the request.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) };
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
    fn network_namespace_other_file_is_rejected() {
        let opened = network_namespace(Path::new("/proc/self/ns/net")).unwrap();
        let number = fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert_eq!(opened.metadata().unwrap().ino(), number);
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
    struct FakeAgent(Child);

    impl FakeAgent {
        fn start(options: &[&str]) -> (Self, HostAgent) {
            let script = "exec 9</proc/self/ns/net; echo; read end";
            let mut child = Command::new("sh")
                .args(["-c", "exec 8</proc/self/ns/net; exec \"$@\"", "sh"])
                .args(["unshare", "--user", "--map-root-user", "--pid", "--fork"])
                .args(options)
                .args(["--mount-proc", "sh", "-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the shell starts");
            let process = child.id();
            let mut stdout = child
                .stdout
                .take()
                .expect("the output of the shell is a pipe");
            stdout
                .read_exact(&mut [0])
                .expect("the shell prints a line");
            let standing = AgentPrivilege::Contained;
            (
                Self(child),
                HostAgent {
                    process,
                    privilege: standing,
                },
            )
        }
    }

    impl Drop for FakeAgent {
        fn drop(&mut self) {
            // The shell ends when its input ends.
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    fn refusal(agent: HostAgent, descriptor: i32) -> Option<i32> {
        let scope = trace_scope(agent, vec![("lab".to_owned(), descriptor)]);
        scope.err().map(|error| error.raw_os_error().unwrap_or(0))
    }

    #[test]
    fn scope_foreign_namespace_is_rejected() {
        let (_like, agent) = FakeAgent::start(&["--net"]);
        assert_eq!(refusal(agent, 9), None);
        // Namespace of others; pipe; closed descriptor.
        assert_eq!(refusal(agent, 8), Some(libc::EPERM));
        assert_eq!(refusal(agent, 0), Some(libc::EBADF));
        assert_eq!(refusal(agent, 7), Some(libc::ENOENT));
        // Agent that should not have a user namespace of its own, but has one.
        let machine = HostAgent {
            privilege: AgentPrivilege::Host,
            ..agent
        };
        assert_eq!(refusal(machine, 9), Some(libc::EPERM));
        // Agent without a network namespace of its own.
        let (_like, agent) = FakeAgent::start(&[]);
        assert_eq!(refusal(agent, 9), Some(libc::EPERM));
    }

    #[test]
    fn trace_process_without_agent_is_rejected() {
        let current_process = HostAgent {
            process: std::process::id(),
            privilege: AgentPrivilege::Contained,
        };
        let refused = DropTrace::start(current_process, Vec::new()).unwrap_err();
        assert_eq!(refused, TraceError::NamespaceNotFound(Errno::ESRCH));
    }
}
