//! Runs probes whose connections stay open while the lab changes: one exchange before the change
//! and one after.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;

use futures_util::future::try_join_all;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

use crate::net::netns::NetNs;
use crate::probe::exchange::ExchangeResult;
use crate::probe::prober::to_attempt;
use crate::probe::{start, tcp, udp};
use crate::servers::payload::PayloadRequest;
use svclab_model::evidence::{Attempt, Verdict};
use svclab_model::plan::{Probe, ProbeProtocol};
use svclab_model::protocol::Failure;

/// Opened connection of a probe.
pub(crate) struct OpenConnection {
    probe: Probe,
    number: u32,
    /// Start of the first exchange.
    opened: Instant,
    /// Open connection, or the failed attempt.
    connection: Result<Connection, Attempt>,
}

enum Connection {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// Result of the first exchange: the outcome, and the connection if a server answered.
type FirstExchange = Pin<Box<dyn Future<Output = (Option<Connection>, ExchangeResult)>>>;

/// Opens the connections of all probes in order and runs one exchange on each. Returns the
/// connections and the attempts.
///
/// # Errors
///
/// When a socket cannot be opened, a probe is bound to an address that its namespace lacks, or the
/// host is too busy for a verdict.
pub(crate) async fn open(
    probes: impl Iterator<Item = &Probe>,
    namespaces: &HashMap<String, NetNs>,
) -> Result<(Vec<OpenConnection>, Vec<Attempt>), Failure> {
    let mut exchanges = Vec::new();
    for probe in probes {
        let ns = start::source_namespace(probe, namespaces)?;
        for number in 0..probe.connections {
            let started = Instant::now();
            let first = start::run_in_namespace(probe, ns, || first_exchange(probe, number, ns))?;
            exchanges.push(async move {
                let (line, outcome) = first.await;
                let attempt = to_attempt(&probe.name, number, started.elapsed(), outcome)?;
                let open = OpenConnection {
                    probe: probe.clone(),
                    number,
                    opened: started,
                    connection: line.ok_or_else(|| attempt.clone()),
                };
                Ok::<_, Failure>((open, attempt))
            });
        }
    }
    Ok(try_join_all(exchanges).await?.into_iter().unzip())
}

/// Sends the first packet. The calling thread must be in the namespace `ns`.
fn first_exchange(probe: &Probe, number: u32, ns: &NetNs) -> io::Result<FirstExchange> {
    let max_wait = probe.max_wait;
    let request = PayloadRequest {
        keep_open: true,
        bytes: probe.bytes,
    };
    let (probe, ns) = (probe.clone(), ns.clone());
    let refused = |error| -> FirstExchange {
        let outcome = ExchangeResult::rejected(None, error);
        Box::pin(std::future::ready((None, outcome)))
    };
    Ok(match probe.protocol {
        ProbeProtocol::Tcp => match tcp::start_connection(&probe, number, ns.ports())? {
            Ok(mut stream) => Box::pin(async move {
                if let Err(outcome) = tcp::wait_for_handshake(&stream, &ns, max_wait).await {
                    return (None, outcome);
                }
                let outcome = tcp::exchange(&mut stream, request, max_wait).await;
                let is_open = !outcome.answers.is_empty();
                (is_open.then_some(Connection::Tcp(stream)), outcome)
            }),
            Err(error) => refused(error),
        },
        ProbeProtocol::Udp => match udp::open_socket(&probe, number, ns.ports())? {
            Ok(socket) => Box::pin(async move {
                let outcome = udp::exchange(&socket, &probe, 0).await;
                let answered = outcome.verdict == Verdict::Answered;
                (answered.then_some(Connection::Udp(socket)), outcome)
            }),
            Err(error) => refused(error),
        },
        ProbeProtocol::Ping => return Err(io::Error::other("a ping has no connection")),
    })
}

/// Runs the second and last exchange on each connection and returns the attempts. A connection that
/// was never opened returns its first attempt.
///
/// # Errors
///
/// When the host is too busy for a verdict.
pub(crate) async fn exchange_again(open: Vec<OpenConnection>) -> Result<Vec<Attempt>, Failure> {
    let exchanges = open.into_iter().map(|open| async move {
        let started = Instant::now();
        let is_udp = matches!(open.connection, Ok(Connection::Udp(_)));
        let outcome = match open.connection {
            Ok(Connection::Tcp(mut stream)) => {
                let request = PayloadRequest {
                    keep_open: false,
                    bytes: open.probe.bytes,
                };
                tcp::exchange(&mut stream, request, open.probe.max_wait).await
            }
            Ok(Connection::Udp(socket)) => udp::exchange(&socket, &open.probe, 0).await,
            Err(attempt) => return Ok(attempt),
        };
        let attempt = to_attempt(&open.probe.name, open.number, started.elapsed(), outcome)?;
        Ok(Attempt {
            idle: is_udp.then(|| started.duration_since(open.opened)),
            ..attempt
        })
    });
    try_join_all(exchanges).await
}
