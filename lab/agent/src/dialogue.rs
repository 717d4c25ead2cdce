//! Runs probes whose connections stay open while the lab changes: one exchange before the change
//! and one after.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;

use futures_util::future::try_join_all;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

use super::exchange::Outcome;
use super::netns::NetNs;
use super::prober::certain;
use super::server::{GO_ON, LAST};
use super::{start, tcp, udp};
use svclab_model::evidence::Attempt;
use svclab_model::plan::{Probe, Protocol};
use svclab_model::protocol::Failure;

/// Opened connection of a probe.
pub struct Open {
    probe: Probe,
    number: u32,
    /// Open connection, or the failed attempt.
    line: Result<Line, Attempt>,
}

enum Line {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// Result of the first exchange: the outcome, and the connection if a server answered.
type First = Pin<Box<dyn Future<Output = (Option<Line>, Outcome)>>>;

/// Opens the connections of all probes in order and runs one exchange on each. Returns the
/// connections and the attempts.
///
/// # Errors
///
/// When a socket cannot be opened, a probe is bound to an address that its namespace lacks, or the
/// host is too busy for a verdict.
pub async fn open(
    probes: &[Probe],
    namespaces: &HashMap<String, NetNs>,
) -> Result<(Vec<Open>, Vec<Attempt>), Failure> {
    let mut opening = Vec::new();
    for probe in probes {
        let ns = start::place(probe, namespaces)?;
        for number in 0..probe.connections {
            let begun = Instant::now();
            let first = start::inside(probe, ns, || begin(probe, ns))?;
            opening.push(async move {
                let (line, outcome) = first.await;
                let attempt = certain(&probe.name, number, begun.elapsed(), outcome)?;
                let open = Open {
                    probe: probe.clone(),
                    number,
                    line: line.ok_or_else(|| attempt.clone()),
                };
                Ok::<_, Failure>((open, attempt))
            });
        }
    }
    Ok(try_join_all(opening).await?.into_iter().unzip())
}

/// Sends the first packet. The calling thread must be in the namespace `ns`.
fn begin(probe: &Probe, ns: &NetNs) -> io::Result<First> {
    let longest = probe.patience;
    let ns = ns.clone();
    let refused = |error| -> First {
        let outcome = Outcome::refused(error);
        Box::pin(std::future::ready((None, outcome)))
    };
    Ok(match probe.protocol {
        Protocol::Tcp => match tcp::dial(probe, ns.ports())? {
            Ok(mut stream) => Box::pin(async move {
                if let Err(outcome) = tcp::shake(&stream, &ns, longest).await {
                    return (None, outcome);
                }
                let outcome = tcp::ask(&mut stream, GO_ON, longest).await;
                let stands = outcome.answer.is_some();
                (stands.then_some(Line::Tcp(stream)), outcome)
            }),
            Err(error) => refused(error),
        },
        Protocol::Udp => match udp::dial(probe, ns.ports())? {
            Ok(socket) => Box::pin(async move {
                let outcome = udp::ask(&socket, longest).await;
                let answered = outcome.answer.is_some();
                (answered.then_some(Line::Udp(socket)), outcome)
            }),
            Err(error) => refused(error),
        },
        Protocol::Ping => return Err(io::Error::other("a ping has no connection")),
    })
}

/// Runs the second and last exchange on each connection and returns the attempts. A connection that
/// was never opened returns its first attempt.
///
/// # Errors
///
/// When the host is too busy for a verdict.
pub async fn speak(open: Vec<Open>) -> Result<Vec<Attempt>, Failure> {
    let speaking = open.into_iter().map(|open| async move {
        let begun = Instant::now();
        let longest = open.probe.patience;
        let outcome = match open.line {
            Ok(Line::Tcp(mut stream)) => tcp::ask(&mut stream, LAST, longest).await,
            Ok(Line::Udp(socket)) => udp::ask(&socket, longest).await,
            Err(attempt) => return Ok(attempt),
        };
        certain(&open.probe.name, open.number, begun.elapsed(), outcome)
    });
    try_join_all(speaking).await
}
