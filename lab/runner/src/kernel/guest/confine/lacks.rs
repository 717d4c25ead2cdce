//! The parts of the confinement that a machine may refuse.

use std::fmt;
use std::fs;

use nix::errno::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of the confinement that a machine may refuse.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Layer {
    /// A PID namespace.
    PidNamespace,
    /// A mount namespace.
    MountNamespace,
    /// A network namespace.
    NetworkNamespace,
    /// An IPC namespace.
    IpcNamespace,
    /// A UTS namespace.
    UtsNamespace,
    /// A cgroup namespace.
    CgroupNamespace,
    /// A root directory of its own.
    RootDirectory,
    /// Landlock rules; needed only without a root directory of its own.
    Landlock,
    /// The system call filter.
    Filter,
}

impl Layer {
    const ALL: [Self; 9] = [
        Self::PidNamespace,
        Self::MountNamespace,
        Self::NetworkNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::CgroupNamespace,
        Self::RootDirectory,
        Self::Landlock,
        Self::Filter,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::PidNamespace => "a PID namespace",
            Self::MountNamespace => "a mount namespace",
            Self::NetworkNamespace => "a network namespace",
            Self::IpcNamespace => "an IPC namespace",
            Self::UtsNamespace => "a UTS namespace",
            Self::CgroupNamespace => "a cgroup namespace",
            Self::RootDirectory => "a root directory of its own",
            Self::Landlock => "Landlock rules",
            Self::Filter => "a system call filter",
        }
    }
}

/// The parts that were refused, without repetition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Lacks(Vec<Layer>);

impl Lacks {
    /// Whether nothing was refused.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this part was refused.
    #[must_use]
    pub fn has(&self, layer: Layer) -> bool {
        self.0.contains(&layer)
    }

    /// Adds a part by its number, as the forked process reports it.
    pub(super) fn add(&mut self, number: i32) {
        let layer = Layer::ALL.into_iter().find(|layer| *layer as i32 == number);
        if let Some(layer) = layer.filter(|layer| !self.has(*layer)) {
            self.0.push(layer);
        }
    }
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|layer| layer.name()).collect();
        f.write_str(&names.join(", "))
    }
}

/// Whether a limit of 0 forbids namespaces: the kernel reports it as `ENOSPC`,
/// like a limit that is reached (Linux v6.12, `kernel/ucount.c`, `inc_ucount`).
pub(super) fn limits_are_zero() -> bool {
    ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"]
        .iter()
        .any(|kind| {
            fs::read_to_string(format!("/proc/sys/user/max_{kind}_namespaces"))
                .is_ok_and(|limit| limit.trim() == "0")
        })
}

/// Whether an error says that this machine does not allow something at all.
/// Shortages of memory, processes or descriptors do not.
pub(super) const fn is_refusal(errno: Errno, no_namespaces: bool) -> bool {
    match errno {
        Errno::EPERM
        | Errno::EACCES
        | Errno::ENOSYS
        | Errno::EINVAL
        | Errno::EOPNOTSUPP
        | Errno::ENODEV
        | Errno::ENOENT
        | Errno::EROFS
        | Errno::EUSERS => true,
        Errno::ENOSPC => no_namespaces,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacks_lists_each_refused_part_once() {
        let mut lacks = Lacks::default();
        assert!(lacks.is_empty());
        for layer in Layer::ALL.into_iter().chain(Layer::ALL) {
            lacks.add(layer as i32);
        }
        lacks.add(99);
        insta::assert_snapshot!(lacks, @"a PID namespace, a mount namespace, a network namespace, an IPC namespace, a UTS namespace, a cgroup namespace, a root directory of its own, Landlock rules, a system call filter");
    }

    #[test]
    fn refusal_excludes_shortages() {
        assert!(is_refusal(Errno::EPERM, false));
        assert!(is_refusal(Errno::ENOSPC, true));
        for errno in [Errno::ENOSPC, Errno::ENOMEM, Errno::EAGAIN, Errno::EMFILE] {
            assert!(!is_refusal(errno, false), "{errno}");
        }
    }
}
