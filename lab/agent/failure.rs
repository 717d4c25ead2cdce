//! The failures several steps share.

use std::io;

use crate::protocol::{Failure, Fault};

/// A namespace could not be entered.
pub fn entering(name: &str, error: &io::Error) -> Failure {
    machine(
        format!("cannot enter the namespace of {name}: {error}"),
        error,
    )
}

/// The machine ran out of something, or lacks a right.
pub fn machine(message: String, error: &io::Error) -> Failure {
    let remedy = match error.raw_os_error().map(nix::errno::Errno::from_raw) {
        Some(nix::errno::Errno::EMFILE | nix::errno::Errno::ENFILE) => {
            Some("raise the limit on open files: `ulimit -n 65536`")
        }
        Some(nix::errno::Errno::ENOSPC) => Some(
            "raise the limit on network namespaces: `sysctl -w user.max_net_namespaces=100000`",
        ),
        Some(nix::errno::Errno::ENOMEM | nix::errno::Errno::ENOBUFS) => {
            Some("give this machine more memory, or run fewer labs at once with -j")
        }
        Some(nix::errno::Errno::EAGAIN) => Some("raise the limit on processes: `ulimit -u`"),
        _ => None,
    };
    Failure {
        fault: Fault::Machine,
        message,
        remedy: remedy.map(str::to_owned),
        rejected: None,
    }
}

/// Something that cannot be, unless svclab itself is wrong.
pub fn bug(message: String) -> Failure {
    Failure {
        fault: Fault::Bug,
        message,
        remedy: Some("this is a bug in svclab; please report it with the lab file".to_owned()),
        rejected: None,
    }
}
