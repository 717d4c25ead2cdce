//! Defines why a kernel's drops cannot be traced, with a remedy for each reason.

use std::io;

use nix::errno::Errno;

use svclab_diagnostic::shortage;

/// File with the kernel's type information.
pub(super) const TYPES_FILE: &str = "/sys/kernel/btf/vmlinux";

/// Reason why drops cannot be traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The kernel rejects a map, the program or its attachment.
    #[error("the kernel does not let svclab trace dropped packets: {}", .0.desc())]
    Refused(Errno),
    /// The type information is missing or cannot be read.
    #[error("cannot read the kernel's type information {TYPES_FILE}: {}", .0.desc())]
    NoTypes(Errno),
    /// The type information has another format or lacks a member.
    #[error("the kernel's type information {TYPES_FILE} has an unknown format")]
    UnknownFormat,
    /// The kernel has no drop reasons.
    #[error("this kernel does not report drop reasons")]
    NoReasons,
    /// A namespace that the agent reports does not exist or does not belong to the agent.
    #[error("cannot find the namespaces of the lab in its agent: {}", .0.desc())]
    NamespaceNotFound(Errno),
}

impl TraceError {
    pub(super) fn refused(error: &io::Error) -> Self {
        Self::Refused(errno(error))
    }

    pub(super) fn no_types(error: &io::Error) -> Self {
        Self::NoTypes(errno(error))
    }

    /// Returns the action that would enable the trace.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        if let Self::Refused(errno) | Self::NoTypes(errno) | Self::NamespaceNotFound(errno) = self
            && let Some(remedy) = shortage::remedy(&errno.into())
        {
            return remedy;
        }
        match self {
            Self::Refused(Errno::EPERM) => {
                "run svclab as root of the host, or with two capabilities (`setcap \
                 cap_bpf,cap_perfmon+ep` on its file), or in a guest (`--kernel 6.12`)"
            }
            Self::NoTypes(_) | Self::UnknownFormat => {
                "run in a guest (`--kernel 6.12`), or boot a kernel built with \
                 CONFIG_DEBUG_INFO_BTF"
            }
            Self::NoReasons => {
                "run in a guest (`--kernel 6.12`), or boot Linux 5.17 or later, which reports drop \
                 reasons"
            }
            Self::Refused(_) | Self::NamespaceNotFound(_) => "run in a guest (`--kernel 6.12`)",
        }
    }

    /// Describes the reason and the remedy.
    #[must_use]
    pub fn describe(self) -> String {
        format!("{self}; {}", self.remedy())
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_error_descriptions_contain_remedy() {
        let all = [
            TraceError::Refused(Errno::EPERM),
            TraceError::Refused(Errno::EINVAL),
            TraceError::Refused(Errno::EMFILE),
            TraceError::NoTypes(Errno::ENOENT),
            TraceError::UnknownFormat,
            TraceError::NoReasons,
            TraceError::NamespaceNotFound(Errno::EPERM),
        ];
        insta::assert_snapshot!(all.map(TraceError::describe).join("\n"));
    }
}
