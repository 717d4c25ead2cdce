//! Starts programs in a namespace of a lab, as the lab's tenant. The programs have their own user
//! if possible, three capabilities, and a system call filter.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::ptr;

use nix::fcntl::OFlag;
use nix::libc::c_char;
use nix::sys::stat::{Mode, fchmod};
use nix::sys::wait::waitpid;
use nix::unistd::pipe2;

use crate::net::netns::NetNs;
use crate::program::child::Child;
use crate::runtime::profile::ProgramSpan;
use crate::sandbox::child_task::{ChildTask, ChildWork, clone_into};

/// Program to start.
#[derive(Debug)]
pub(crate) struct Launch {
    pub program: PathBuf,
    /// Program name (`argv[0]`) and arguments.
    pub argv: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// Terminal for the streams and the session. `None` uses pipes.
    pub terminal: Option<OwnedFd>,
    /// Maximum number of processes and threads of the program's user; `None` for no limit.
    pub max_processes: Option<u64>,
}

/// Reason why a program was not started.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// The network namespace or the mount namespace cannot be entered.
    Namespace(io::Error),
    /// The program cannot be executed.
    Program(io::Error),
}

impl Launch {
    /// Starts the program in a namespace, as the leader of a new process group.
    pub(crate) fn start(&self, ns: &NetNs) -> Result<Child, LaunchError> {
        let streams = Streams::new(self.terminal.as_ref()).map_err(LaunchError::Program)?;
        let text = |text: &str| CString::new(text).map_err(io::Error::from);
        let path = self.program.to_string_lossy();
        let path = text(&path).map_err(LaunchError::Program)?;
        let words = self.argv.iter().map(|word| text(word));
        let words: Vec<CString> = words
            .collect::<io::Result<_>>()
            .map_err(LaunchError::Program)?;
        let set = self.environment.iter();
        let environment = set.map(|(name, value)| text(&format!("{name}={value}")));
        let environment: Vec<CString> = environment
            .collect::<io::Result<_>>()
            .map_err(LaunchError::Program)?;
        let null_terminated = |texts: &[CString]| -> Vec<*const c_char> {
            let texts = texts.iter().map(|text| text.as_ptr());
            texts.chain([ptr::null()]).collect()
        };
        let (words, environment) = (null_terminated(&words), null_terminated(&environment));
        let tenant = ns.tenant();
        let filter = tenant.filter().program();
        let mut order = ChildTask {
            network: ns.as_raw_fd(),
            mounts: tenant.room().mounts().as_raw_fd(),
            user: tenant.user(),
            group: tenant.group(),
            work: ChildWork::Execute {
                path: path.as_ptr(),
                argv: words.as_ptr(),
                environment: environment.as_ptr(),
                streams: streams.child_ends(),
                has_terminal: self.terminal.is_some(),
                processes: self.max_processes,
                filter: &raw const filter,
            },
            error: None,
        };
        let (process, descriptor) =
            clone_into(tenant.room(), &mut order).map_err(LaunchError::Namespace)?;
        if let Some((is_inside, errno)) = order.error {
            let _ = waitpid(process, None);
            let error = io::Error::from(errno);
            return Err(if is_inside {
                LaunchError::Program(error)
            } else {
                LaunchError::Namespace(error)
            });
        }
        let profiled = ProgramSpan::start(&self.program);
        Child::new(process, descriptor, streams.into_agent_ends(), profiled)
            .map_err(LaunchError::Program)
    }
}

/// Program's three standard streams: the program's ends and the agent's ends.
struct Streams {
    child_ends: [OwnedFd; 3],
    agent_ends: Option<[OwnedFd; 3]>,
}

impl Streams {
    fn new(terminal: Option<&OwnedFd>) -> io::Result<Self> {
        if let Some(terminal) = terminal {
            allow_all_users(terminal.as_fd())?;
            let copy = || terminal.try_clone();
            return Ok(Self {
                child_ends: [copy()?, copy()?, copy()?],
                agent_ends: None,
            });
        }
        let (input, write) = pipe2(OFlag::O_CLOEXEC)?;
        let (output, print) = pipe2(OFlag::O_CLOEXEC)?;
        let (errors, complain) = pipe2(OFlag::O_CLOEXEC)?;
        let theirs = [input, print, complain];
        for end in &theirs {
            allow_all_users(end.as_fd())?;
        }
        Ok(Self {
            child_ends: theirs,
            agent_ends: Some([write, output, errors]),
        })
    }

    fn child_ends(&self) -> [RawFd; 3] {
        self.child_ends.each_ref().map(AsRawFd::as_raw_fd)
    }

    /// Returns the agent's ends and closes the program's ends.
    fn into_agent_ends(self) -> Option<[OwnedFd; 3]> {
        self.agent_ends
    }
}

/// Makes the stream accessible to every user. A program can reopen it through `/dev/stdout` or the
/// terminal's name. The agent's user owns the stream, and no other process has a path to it.
fn allow_all_users(end: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fchmod(end, Mode::from_bits_truncate(0o666))?)
}
