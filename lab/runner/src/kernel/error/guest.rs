//! Errors of guests.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::guest_files::{TreeError, UserlandError};
use svclab_diagnostic::shortage;

/// File name of QEMU for this processor architecture.
pub(crate) const QEMU_PROGRAM: &str = "qemu-system-x86_64";

/// Oldest version that guests were tested with: that of Debian 12.
pub(crate) const MIN_VERSION: (u32, u32) = (7, 2);

/// Reason why no guest is available.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// QEMU is not installed.
    #[error("a guest kernel needs {QEMU_PROGRAM}, which is not installed")]
    NoQemu,
    /// QEMU is older than the versions that svclab was tested with.
    #[error(
        "{} is QEMU {version}; guests need {}.{} or newer", program.display(), MIN_VERSION.0, MIN_VERSION.1
    )]
    OldQemu {
        /// Path of QEMU.
        program: PathBuf,
        /// Version of QEMU.
        version: String,
    },
    /// The program with the name of QEMU does not print a version of QEMU.
    #[error("{} does not print a version of QEMU; it prints: {output}", program.display())]
    UnknownQemu {
        /// Path of the program.
        program: PathBuf,
        /// Output of the program.
        output: String,
    },
    /// A program cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    Spawn {
        /// Path of the program.
        program: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// QEMU cannot be started as a process without privileges.
    #[error("cannot start QEMU: cannot {step}: {source}")]
    Confinement {
        /// Operation that failed, as text that follows "cannot".
        step: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// No package of the kernel is available.
    #[error("no guest kernel {wanted} is available: {reason}")]
    NoKernel {
        /// Requested kernel.
        wanted: String,
        /// Reason why the kernel is not available.
        reason: String,
    },
    /// The user's file is not a kernel that can boot.
    #[error("cannot boot {}: {reason}", file.display())]
    InvalidImage {
        /// Path of the file.
        file: PathBuf,
        /// Description of the problem.
        reason: String,
    },
    /// The modules of a kernel cannot be used.
    #[error(transparent)]
    Modules(#[from] TreeError),
    /// The programs of a guest cannot be collected.
    #[error("cannot collect the programs of the guest: {0}")]
    Userland(#[from] UserlandError),
    /// An operation in the directory of the cache failed.
    #[error("cannot {operation} (cache {}): {source}", directory.display())]
    Cache {
        /// Operation, as text that follows "cannot".
        operation: String,
        /// Directory of the cache.
        directory: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file in the memory of this machine cannot be created or filled.
    #[error("cannot {operation}: {source}")]
    Memory {
        /// Operation, as text that follows "cannot".
        operation: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The kernel of this machine has no random numbers.
    #[error("cannot read random numbers: {0}")]
    Random(io::Error),
    /// Another user could change the contents of the cache.
    #[error("the cache {} {problem}", directory.display())]
    CacheUnsafe {
        /// Directory of the cache, or a directory in it.
        directory: PathBuf,
        /// Description of the problem.
        problem: CacheProblem,
    },
    /// No directory for the cache is configured.
    #[error(
        "no directory for guest kernels: neither $SVCLAB_CACHE, $XDG_CACHE_HOME nor $HOME is set"
    )]
    NoCache,
    /// The guest was not ready in time.
    #[error("the guest kernel {kernel} was not ready after {} s{}", limit.as_secs(), console_text(output))]
    NotReady {
        /// Release of the kernel.
        kernel: String,
        /// Time limit that was exceeded.
        limit: Duration,
        /// End of the console output of the guest.
        output: String,
    },
    /// The guest ended before it was ready.
    #[error(
        "the guest kernel {kernel} did not boot: {cause}{}",
        console_text(output)
    )]
    Ended {
        /// Release of the kernel.
        kernel: String,
        /// Description of the end.
        cause: String,
        /// End of the output of the guest and of QEMU.
        output: String,
    },
    /// QEMU did not execute a command.
    #[error("QEMU failed to {command}: {reply}")]
    QmpFailed {
        /// Command, as text that follows "failed to".
        command: String,
        /// Reply of QEMU.
        reply: String,
    },
}

/// Reason why a cache is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheProblem {
    /// The path is not a directory.
    #[error("is not a directory")]
    NoDirectory,
    /// The directory belongs to another user.
    #[error("belongs to the user {owner}, not to the user {user} who runs svclab")]
    OtherOwner {
        /// User ID of the owner.
        owner: u32,
        /// User ID of the user who runs svclab.
        user: u32,
    },
    /// Other users can write the directory, which has this mode.
    #[error("is writable by other users: its mode is {0:03o}")]
    Writable(u32),
}

fn console_text(output: &str) -> String {
    if output.is_empty() {
        String::new()
    } else {
        format!("\n  output: {}", output.replace('\n', "\n  "))
    }
}

impl GuestError {
    /// Whether a guest was lost. Otherwise this machine lacks something.
    #[must_use]
    pub const fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::NotReady { .. } | Self::Ended { .. } | Self::QmpFailed { .. }
        )
    }

    /// Returns the help text for the error. `None` if there is none.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        if let Self::CacheUnsafe {
            directory,
            problem: wrong,
        } = self
        {
            let directory = directory.display();
            let alternative = "set SVCLAB_CACHE to a directory that you own";
            return Some(match wrong {
                CacheProblem::NoDirectory => format!("remove {directory}, or {alternative}"),
                CacheProblem::OtherOwner { user, .. } => format!(
                    "run svclab as that user, {alternative}, or, if you trust its contents, run \
                     `chown -R {user} {directory}`"
                ),
                CacheProblem::Writable(_) => {
                    format!("run `chmod -R go-w {directory}`, or {alternative}")
                }
            });
        }
        let text = match self {
            Self::NoQemu | Self::UnknownQemu { .. } => {
                "run `apt-get install --no-install-recommends qemu-system-x86`, or your \
                 distribution's equivalent, as root"
            }
            Self::Spawn { .. } => {
                "allow this user to run it, or run `apt-get install --reinstall qemu-system-x86`, \
                 or your distribution's equivalent, as root"
            }
            Self::Confinement { source, .. } => shortage::remedy(source).unwrap_or(
                "run svclab as an ordinary user, or as root with the capabilities CAP_SETUID, \
                 CAP_SETGID and CAP_KILL",
            ),
            // A file in memory that is full is not a lack of namespaces.
            Self::Memory { source, .. } => shortage::remedy(source)
                .filter(|_| source.kind() != io::ErrorKind::StorageFull)
                .unwrap_or(shortage::MEMORY_REMEDY),
            Self::OldQemu { .. } => "install a newer QEMU, or run on this host with --kernel host",
            Self::NoKernel { .. } => {
                "run `apt-get update` as root with network access and then `svclab kernel fetch`, \
                 or use your own kernel: --kernel PATH/vmlinuz --modules DIR"
            }
            Self::Cache { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free disk space (a guest kernel and its snapshot need 300 MB), or set \
                 SVCLAB_CACHE to a directory with enough space"
            }
            Self::Cache { .. } | Self::NoCache => "set SVCLAB_CACHE to a writable directory",
            Self::InvalidImage { .. } | Self::Modules(_) => {
                "give a kernel and the modules of the same build: --kernel PATH/vmlinuz \
                 --modules DIR"
            }
            Self::NotReady { .. } | Self::Ended { .. } => {
                "run the command again; if the error repeats, try another kernel \
                 (`svclab kernel list`)"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_error_is_no_error_of_the_cache() {
        let error = |source| GuestError::Memory {
            operation: "create a file in memory",
            source,
        };
        let full = error(io::Error::from_raw_os_error(nix::libc::ENOMEM));
        insta::assert_snapshot!(full, @"cannot create a file in memory: Cannot allocate memory (os error 12)");
        assert_eq!(full.remedy().as_deref(), Some(shortage::MEMORY_REMEDY));
        let full = error(io::ErrorKind::StorageFull.into());
        assert_eq!(full.remedy().as_deref(), Some(shortage::MEMORY_REMEDY));
        let files = error(io::Error::from_raw_os_error(nix::libc::EMFILE));
        assert!(files.remedy().unwrap().contains("ulimit -n"));
    }
}
