//! Starts the exchanges of probes in their namespaces.

use std::collections::HashMap;
use std::io;

use nix::errno::Errno;

use crate::net::netns::NetNs;
use crate::net::ports;
use crate::probe::exchange::Exchange;
use crate::probe::{ping, tcp, udp};
use crate::runtime::failure;
use svclab_model::plan::{Probe, ProbeProtocol};
use svclab_model::protocol::{Failure, FailureKind};

/// Returns the source namespace of a probe.
///
/// # Errors
///
/// When no namespace has this name.
pub(crate) fn source_namespace<'n>(
    probe: &Probe,
    namespaces: &'n HashMap<String, NetNs>,
) -> Result<&'n NetNs, Failure> {
    namespaces.get(&probe.namespace).ok_or_else(|| {
        failure::bug(format!(
            "cannot start probe {} in {}: the plan has no such namespace",
            probe.name, probe.namespace
        ))
    })
}

/// Starts an exchange of a probe in its namespace by sending the first packet.
///
/// # Errors
///
/// When a socket cannot be opened, or the probe is bound to an address that the namespace lacks.
pub(crate) fn start_exchange(
    probe: &Probe,
    connection: u32,
    ns: &NetNs,
) -> Result<Exchange, Failure> {
    run_in_namespace(probe, ns, || match probe.protocol {
        ProbeProtocol::Tcp => tcp::start(probe, connection, ns),
        ProbeProtocol::Udp => udp::start(probe, connection, ns.ports()),
        ProbeProtocol::Ping => ping::start(probe),
    })
}

/// Runs `begin` in the namespace of a probe.
///
/// # Errors
///
/// When a socket cannot be opened, or the probe is bound to an address that the namespace lacks.
pub(crate) fn run_in_namespace<T>(
    probe: &Probe,
    ns: &NetNs,
    begin: impl FnOnce() -> io::Result<T>,
) -> Result<T, Failure> {
    ns.enter(begin)
        .and_then(|begun| begun)
        .map_err(|error| cannot_start(probe, &error))
}

/// Returns the failure of a probe that cannot start.
fn cannot_start(probe: &Probe, error: &io::Error) -> Failure {
    let message = format!(
        "cannot start probe {} from {}: {error}",
        probe.name, probe.namespace
    );
    if ports::is_exhausted(error) || error.raw_os_error() == Some(Errno::EADDRNOTAVAIL as i32) {
        return Failure {
            kind: FailureKind::Input,
            message,
            remedy: Some(match probe.bind {
                _ if ports::is_exhausted(error) && probe.source_port.is_some() => format!(
                    "use another source port: one of {} is in use in {}",
                    source_ports(probe),
                    probe.namespace
                ),
                // A case has fewer connections than a namespace has ports.
                _ if ports::is_exhausted(error) => {
                    format!(
                        "use fewer connections: {} has no free source port",
                        probe.namespace
                    )
                }
                Some(address) => format!(
                    "use a source address of {}: {address} is not one",
                    probe.namespace
                ),
                None if probe.target.address.is_ipv6() => format!(
                    "add an IPv6 address to {}, which has none, or use an IPv4 target",
                    probe.namespace
                ),
                None => format!(
                    "use fewer connections: {} has no free source port",
                    probe.namespace
                ),
            }),
            rejected: None,
        };
    }
    failure::host(message, error)
}

/// Returns the source ports that a probe's connections have, as a user writes them.
fn source_ports(probe: &Probe) -> String {
    let [first, last] = [0, probe.connections.saturating_sub(1)]
        .map(|connection| probe.source_port_of(connection).unwrap_or(0));
    if first == last {
        first.to_string()
    } else {
        format!("{first} to {last}")
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use svclab_model::plan::{Lifetime, Target};

    #[test]
    fn ipv6_probe_without_source_names_missing_address() {
        let remedy = |address: &str| {
            let probe = Probe {
                name: "call".to_owned(),
                namespace: "node-1".to_owned(),
                target: Target {
                    address: address.parse().unwrap(),
                    port: 80,
                },
                protocol: ProbeProtocol::Tcp,
                connections: 1,
                concurrency: None,
                bind: None,
                source_port: None,
                bytes: None,
                datagrams: NonZeroU32::MIN,
                max_wait: Duration::from_secs(1),
                settle: false,
                after: None,
                lifetime: Lifetime::Stage,
            };
            cannot_start(&probe, &Errno::EADDRNOTAVAIL.into())
                .remedy
                .unwrap()
        };
        assert_eq!(
            remedy("::1"),
            "add an IPv6 address to node-1, which has none, or use an IPv4 target"
        );
        assert_eq!(
            remedy("10.0.0.1"),
            "use fewer connections: node-1 has no free source port"
        );
    }
}
