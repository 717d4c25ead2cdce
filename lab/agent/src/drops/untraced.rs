//! Defines why a kernel's drops cannot be traced, with a remedy for each reason.

use std::io;

use nix::errno::Errno;

use svclab_diagnostic::shortage;

/// File with the kernel's type information.
pub const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Reason why drops cannot be traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Untraced {
    /// The kernel rejects a map, the program or its attachment.
    #[error("the kernel does not let svclab trace what it drops: {}", .0.desc())]
    Refused(Errno),
    /// The type information is missing or cannot be read.
    #[error("this kernel's description of its types, {TYPES}, cannot be read: {}", .0.desc())]
    Undescribed(Errno),
    /// The type information has another format or lacks a member.
    #[error("this kernel's description of its types, {TYPES}, is not as svclab knows it")]
    Strange,
    /// The kernel has no drop reasons.
    #[error("this kernel gives no reasons for what it drops")]
    Reasonless,
    /// A namespace that the agent reports does not exist or does not belong to the agent.
    #[error("the namespaces of the lab were not found in its agent: {}", .0.desc())]
    Unheld(Errno),
}

impl Untraced {
    pub(super) fn refused(error: &io::Error) -> Self {
        Self::Refused(errno(error))
    }

    pub(super) fn undescribed(error: &io::Error) -> Self {
        Self::Undescribed(errno(error))
    }

    /// Returns the action that would enable the trace.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        if let Self::Refused(errno) | Self::Undescribed(errno) | Self::Unheld(errno) = self
            && let Some(remedy) = shortage::remedy(&errno.into())
        {
            return remedy;
        }
        match self {
            Self::Refused(Errno::EPERM) => {
                "run svclab as root of the machine itself, or with two capabilities (`setcap \
                 cap_bpf,cap_perfmon+ep` on its file), or in a guest (`--kernel 6.12`)"
            }
            Self::Undescribed(_) | Self::Strange => {
                "run in a guest (`--kernel 6.12`), or boot a kernel that was built with \
                 CONFIG_DEBUG_INFO_BTF"
            }
            Self::Reasonless => {
                "run in a guest (`--kernel 6.12`), or boot Linux 5.17 or newer, the first that does"
            }
            Self::Refused(_) | Self::Unheld(_) => "run in a guest (`--kernel 6.12`)",
        }
    }

    /// Describes the reason and the remedy.
    #[must_use]
    pub fn told(self) -> String {
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
    fn each_reason_is_told_with_what_would_change_it() {
        let all = [
            Untraced::Refused(Errno::EPERM),
            Untraced::Refused(Errno::EINVAL),
            Untraced::Refused(Errno::EMFILE),
            Untraced::Undescribed(Errno::ENOENT),
            Untraced::Strange,
            Untraced::Reasonless,
            Untraced::Unheld(Errno::EPERM),
        ];
        insta::assert_snapshot!(all.map(Untraced::told).join("\n"));
    }
}
