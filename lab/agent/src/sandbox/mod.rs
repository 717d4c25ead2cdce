//! Confines the agent and the programs of labs: namespaces, users, capabilities and system calls.

pub mod capabilities;
pub(crate) mod child_task;
pub(crate) mod clock;
pub mod contain;
pub(crate) mod filter;
pub(crate) mod init;
pub(crate) mod program_namespace;
pub(crate) mod reaper;
pub mod rootfs;
pub mod seccomp;
pub(crate) mod tenant;
