//! Parts of the confinement that a machine may not allow.

use std::fmt;
use std::fs;

use nix::errno::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Part of the confinement that a machine may not allow.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Layer {
    /// Separate PID namespace.
    PidNamespace,
    /// Separate mount namespace.
    MountNamespace,
    /// Separate network namespace.
    NetworkNamespace,
    /// Separate IPC namespace.
    IpcNamespace,
    /// Separate UTS namespace.
    UtsNamespace,
    /// Separate cgroup namespace.
    CgroupNamespace,
    /// Separate root directory.
    RootDirectory,
    /// Landlock rules. Needed only without a separate root directory.
    Landlock,
    /// System call filter (seccomp).
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
            Self::RootDirectory => "a separate root directory",
            Self::Landlock => "Landlock rules",
            Self::Filter => "a system call filter",
        }
    }
}

/// Parts of the confinement that this machine does not allow, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DisallowedLayers(Vec<Layer>);

impl DisallowedLayers {
    /// Whether this machine allows all parts.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this machine does not allow the part.
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

impl fmt::Display for DisallowedLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|layer| layer.name()).collect();
        f.write_str(&names.join(", "))
    }
}

/// Whether a limit of 0 forbids namespaces. The kernel reports such a limit as `ENOSPC`, like a
/// limit that is reached (Linux v6.12, `kernel/ucount.c`, `inc_ucount`).
pub(super) fn is_namespace_limit_zero() -> bool {
    ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"]
        .iter()
        .any(|kind| {
            fs::read_to_string(format!("/proc/sys/user/max_{kind}_namespaces"))
                .is_ok_and(|limit| limit.trim() == "0")
        })
}

/// Whether an error means that this machine does not allow an operation at all. Shortages of
/// memory, processes or descriptors do not mean this.
pub(super) const fn is_disallowed(errno: Errno, no_namespaces: bool) -> bool {
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
    fn disallowed_layers_lists_each_part_once() {
        let mut disallowed = DisallowedLayers::default();
        assert!(disallowed.is_empty());
        for layer in Layer::ALL.into_iter().chain(Layer::ALL) {
            disallowed.add(layer as i32);
        }
        disallowed.add(99);
        insta::assert_snapshot!(disallowed, @"a PID namespace, a mount namespace, a network namespace, an IPC namespace, a UTS namespace, a cgroup namespace, a separate root directory, Landlock rules, a system call filter");
    }

    #[test]
    fn is_disallowed_shortage_is_false() {
        assert!(is_disallowed(Errno::EPERM, false));
        assert!(is_disallowed(Errno::ENOSPC, true));
        for errno in [Errno::ENOSPC, Errno::ENOMEM, Errno::EAGAIN, Errno::EMFILE] {
            assert!(!is_disallowed(errno, false), "{errno}");
        }
    }
}
