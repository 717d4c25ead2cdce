//! Why there is no guest.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::qemu::{OLDEST, PROGRAM};
use super::tree::TreeError;
use super::userland::UserlandError;
use svclab_diagnostic::shortage;

/// Why there is no guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// There is no QEMU.
    #[error("a guest kernel needs {PROGRAM}, which is not installed")]
    NoQemu,
    /// QEMU is older than what svclab was tried with.
    #[error(
        "{} is QEMU {version}; guests need {}.{} or newer", program.display(), OLDEST.0, OLDEST.1
    )]
    OldQemu {
        /// The program.
        program: PathBuf,
        /// Its version.
        version: String,
    },
    /// What bears QEMU's name does not say that it is QEMU.
    #[error("{} does not say which QEMU it is; it says: {said}", program.display())]
    OddQemu {
        /// The program.
        program: PathBuf,
        /// What it says instead.
        said: String,
    },
    /// A program does not start.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// QEMU cannot be started as a process without privileges.
    #[error("QEMU is not started, because it cannot {step}: {source}")]
    Confine {
        /// What it cannot do.
        step: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// No package of that kernel is to be had.
    #[error("there is no guest kernel {wanted}: {why}")]
    NoKernel {
        /// What was wanted.
        wanted: String,
        /// Why it is not there.
        why: String,
    },
    /// The user's own kernel is none.
    #[error("{} cannot be booted: {why}", file.display())]
    Image {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A kernel's modules cannot be used.
    #[error(transparent)]
    Modules(#[from] TreeError),
    /// The guest's programs cannot be put together.
    #[error("cannot put together the guest's programs: {0}")]
    Userland(#[from] UserlandError),
    /// The cache does not do what a directory should.
    #[error("cannot {doing} in the cache {}: {source}", directory.display())]
    Cache {
        /// What was tried.
        doing: String,
        /// The cache's directory.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another user could change what is in the cache.
    #[error("the cache {} {wrong}", directory.display())]
    CacheUnsafe {
        /// The cache's directory, or one in it.
        directory: PathBuf,
        /// What is wrong with it.
        wrong: CacheWrong,
    },
    /// There is nowhere to keep anything.
    #[error(
        "there is no place for guest kernels: neither $SVCLAB_CACHE, $XDG_CACHE_HOME nor $HOME is set"
    )]
    NoCache,
    /// The guest was not ready in time.
    #[error("the guest kernel {kernel} was not ready after {} s{}", after.as_secs(), console(said))]
    Hangs {
        /// Which kernel.
        kernel: String,
        /// How long was waited.
        after: Duration,
        /// The end of what it wrote to its console.
        said: String,
    },
    /// The guest ended before it was ready.
    #[error("the guest kernel {kernel} did not come up: {how}{}", console(said))]
    Died {
        /// Which kernel.
        kernel: String,
        /// How it ended.
        how: String,
        /// The end of what it and QEMU wrote.
        said: String,
    },
    /// QEMU did not do what it was told.
    #[error("QEMU refused to {doing}: {said}")]
    Control {
        /// What it was told.
        doing: String,
        /// What it answered.
        said: String,
    },
}

/// Why a cache is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheWrong {
    /// There is something else of its name.
    #[error("is no directory")]
    NoDirectory,
    /// It is another user's.
    #[error("belongs to the user {owner}, not to the user {user} who runs svclab")]
    Foreign {
        /// Whose it is.
        owner: u32,
        /// Who runs svclab.
        user: u32,
    },
    /// Others may write it.
    #[error("may be written by others: its mode is {0:03o}")]
    Writable(u32),
}

fn console(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!("\n  it said: {}", said.replace('\n', "\n  "))
    }
}

impl GuestError {
    /// Whether a guest was there and was lost, rather than this machine lacking
    /// something.
    #[must_use]
    pub const fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::Hangs { .. } | Self::Died { .. } | Self::Control { .. }
        )
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        if let Self::CacheUnsafe { directory, wrong } = self {
            let directory = directory.display();
            let other = "set SVCLAB_CACHE to a directory of your own";
            return Some(match wrong {
                CacheWrong::NoDirectory => format!("remove {directory}, or {other}"),
                CacheWrong::Foreign { user, .. } => format!(
                    "run svclab as that user, {other}, or, if you trust what is in it, make it yours with `chown -R {user} {directory}`"
                ),
                CacheWrong::Writable(_) => {
                    format!("run `chmod -R go-w {directory}`, or {other}")
                }
            });
        }
        let text = match self {
            Self::NoQemu | Self::OddQemu { .. } => {
                "run `apt-get install --no-install-recommends qemu-system-x86`, or your distribution's equivalent, as root"
            }
            Self::Start { .. } => {
                "see that this user may run it; `apt-get install --reinstall qemu-system-x86`, or your distribution's equivalent, as root, puts it right"
            }
            Self::Confine { source, .. } => shortage::remedy(source).unwrap_or(
                "run svclab as an ordinary user, or as root with the capabilities CAP_SETUID, CAP_SETGID and CAP_KILL",
            ),
            Self::OldQemu { .. } => "install a newer QEMU, or run on this host with --kernel host",
            Self::NoKernel { .. } => {
                "run `apt-get update` as root with the network at hand and `svclab kernel fetch` again, or name a kernel of your own: --kernel PATH/vmlinuz --modules DIR"
            }
            Self::Cache { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "make room (a guest kernel and its snapshot take 300 MB), or set SVCLAB_CACHE to a directory that has it"
            }
            Self::Cache { .. } | Self::NoCache => {
                "set SVCLAB_CACHE to a directory that can be written"
            }
            Self::Image { .. } | Self::Modules(_) => {
                "name a kernel and the modules of the same build: --kernel PATH/vmlinuz --modules DIR"
            }
            Self::Hangs { .. } | Self::Died { .. } => {
                "run it again; if it happens again, try another kernel (`svclab kernel list`)"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
