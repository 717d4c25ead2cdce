//! Runs a UDP exchange: sends one datagram and receives one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;

use super::answers;
use super::exchange::{Exchange, Outcome, verdict_of};
use super::icmp_errors;
use super::patience;
use super::ports::{self, Ports};
use svclab_model::evidence::Verdict;
use svclab_model::plan::Probe;

/// Sends the datagram from the namespace of the calling thread. `ports` are the ports of its lab.
///
/// # Errors
///
/// When no socket can be opened or the source address is unavailable.
pub fn begin(probe: &Probe, ports: &Ports) -> io::Result<Exchange> {
    let longest = probe.patience;
    let sent = ports.fresh(|| open(probe))?.and_then(|socket| {
        socket.send(question().as_bytes())?;
        Ok(socket)
    });
    match sent {
        Ok(socket) => {
            let socket = UdpSocket::from_std(socket.into())?;
            let local = socket.local_addr().ok();
            Ok(Exchange::begun(local, async move {
                answer(&socket, longest).await
            }))
        }
        Err(error) => Ok(Exchange::refused(error)),
    }
}

/// Opens a socket connected to the probe's target, without sending a datagram. The inner error
/// reports that the target has no route.
///
/// # Errors
///
/// When no socket can be opened or the source address is unavailable.
pub fn dial(probe: &Probe, ports: &Ports) -> io::Result<Result<UdpSocket, io::Error>> {
    Ok(match ports.fresh(|| open(probe))? {
        Ok(socket) => Ok(UdpSocket::from_std(socket.into())?),
        Err(error) => Err(error),
    })
}

fn open(probe: &Probe) -> io::Result<io::Result<Socket>> {
    let to = probe.to.socket();
    let socket = Socket::new(
        Domain::for_address(to),
        Type::DGRAM.nonblocking().cloexec(),
        None,
    )?;
    icmp_errors::report(&socket, to.ip())?;
    socket.bind(&ports::source(probe).into())?;
    Ok(socket.connect(&to.into()).map(|()| socket))
}

/// Sends a datagram and waits for the answer.
pub async fn ask(socket: &UdpSocket, longest: Duration) -> Outcome {
    match socket.send(question().as_bytes()).await {
        Ok(_) => answer(socket, longest).await,
        Err(error) => Outcome::ended(verdict_of(&error), socket.local_addr().ok(), Some(error)),
    }
}

/// Returns the content of a request. No two requests are equal, so that each can be identified in
/// captures.
fn question() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("? {}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

async fn answer(socket: &UdpSocket, longest: Duration) -> Outcome {
    let local = socket.local_addr().ok();
    let mut line = [0; 2048];
    match patience::within(longest, socket.recv(&mut line)).await {
        Err(nothing) => Outcome::unanswered(Verdict::Timeout, local, nothing),
        Ok(Err(error)) => Outcome::ended(verdict_of(&error), local, Some(error)),
        Ok(Ok(length)) => match answers::accept(&line[..length]) {
            Some(answer) => Outcome {
                verdict: Verdict::Answered,
                answer: Some(answer),
                local,
                error: None,
                doubt: None,
            },
            None => Outcome::ended(
                Verdict::Silent,
                local,
                Some(io::Error::other(
                    "the answer is not from a server of the lab",
                )),
            ),
        },
    }
}
