//! Where probes start, and how their exchanges begin there.

use std::collections::HashMap;
use std::io;

use nix::errno::Errno;

use super::exchange::Exchange;
use super::netns::NetNs;
use super::{failure, ping, tcp, udp};
use crate::plan::{Probe, Protocol};
use crate::protocol::{Failure, Fault};

/// The namespace that a probe starts in.
///
/// # Errors
///
/// When there is none of that name.
pub fn place<'n>(
    probe: &Probe,
    namespaces: &'n HashMap<String, NetNs>,
) -> Result<&'n NetNs, Failure> {
    namespaces.get(&probe.from).ok_or_else(|| {
        failure::bug(format!(
            "the probe {} starts in {}, which the plan has not got",
            probe.name, probe.from
        ))
    })
}

/// Begins an exchange of a probe in its namespace: its first packet leaves.
///
/// # Errors
///
/// When a socket cannot be had, or the probe is bound to an address that the namespace
/// has not got.
pub fn exchange(probe: &Probe, ns: &NetNs) -> Result<Exchange, Failure> {
    inside(probe, ns, || match probe.protocol {
        Protocol::Tcp => tcp::begin(probe, ns),
        Protocol::Udp => udp::begin(probe, ns.ports()),
        Protocol::Ping => ping::begin(probe),
    })
}

/// Begins something of a probe's in its namespace.
///
/// # Errors
///
/// As [`exchange`].
pub fn inside<T>(
    probe: &Probe,
    ns: &NetNs,
    begin: impl FnOnce() -> io::Result<T>,
) -> Result<T, Failure> {
    ns.enter(begin)
        .and_then(|begun| begun)
        .map_err(|error| unbegun(probe, &error))
}

/// What is said of a probe that cannot begin.
fn unbegun(probe: &Probe, error: &io::Error) -> Failure {
    let message = format!(
        "cannot begin the probe {} from {}: {error}",
        probe.name, probe.from
    );
    if error.raw_os_error() == Some(Errno::EADDRNOTAVAIL as i32) {
        return Failure {
            fault: Fault::Input,
            message,
            remedy: Some(match probe.bind {
                Some(address) => format!("{address} is not an address of {}", probe.from),
                None => format!("{} has no port left to start from", probe.from),
            }),
            rejected: None,
        };
    }
    failure::machine(message, error)
}
