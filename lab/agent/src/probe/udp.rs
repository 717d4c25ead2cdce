//! Runs a UDP exchange: sends one datagram and receives one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;

use crate::net::ports::{self, Ports};
use crate::probe::exchange::{Exchange, ExchangeResult, verdict_from_error};
use crate::probe::icmp_errors;
use crate::runtime::max_wait;
use crate::servers::answers;
use svclab_model::evidence::Verdict;
use svclab_model::plan::Probe;

/// Sends the datagram from the namespace of the calling thread. `ports` are the ports of its lab.
pub(crate) fn start(probe: &Probe, ports: &Ports) -> io::Result<Exchange> {
    let max_wait = probe.max_wait;
    let sent = ports.bind_unused(|| connect(probe))?.and_then(|socket| {
        socket.send(next_request().as_bytes())?;
        Ok(socket)
    });
    match sent {
        Ok(socket) => {
            let socket = UdpSocket::from_std(socket.into())?;
            let local = socket.local_addr().ok();
            Ok(Exchange::new(local, async move {
                receive_answer(&socket, max_wait).await
            }))
        }
        Err(error) => Ok(Exchange::rejected(error)),
    }
}

/// Opens a socket connected to the probe's target, without sending a datagram. The inner error
/// reports that the target has no route.
pub(crate) fn open_socket(
    probe: &Probe,
    ports: &Ports,
) -> io::Result<Result<UdpSocket, io::Error>> {
    Ok(match ports.bind_unused(|| connect(probe))? {
        Ok(socket) => Ok(UdpSocket::from_std(socket.into())?),
        Err(error) => Err(error),
    })
}

fn connect(probe: &Probe) -> io::Result<io::Result<Socket>> {
    let target = probe.target.socket();
    let socket = Socket::new(
        Domain::for_address(target),
        Type::DGRAM.nonblocking().cloexec(),
        None,
    )?;
    icmp_errors::enable(&socket, target.ip())?;
    socket.bind(&ports::source_address(probe).into())?;
    Ok(socket.connect(&target.into()).map(|()| socket))
}

/// Sends a datagram and waits for the answer.
pub(crate) async fn exchange(socket: &UdpSocket, max_wait: Duration) -> ExchangeResult {
    match socket.send(next_request().as_bytes()).await {
        Ok(_) => receive_answer(socket, max_wait).await,
        Err(error) => ExchangeResult::without_answer(
            verdict_from_error(&error),
            socket.local_addr().ok(),
            Some(error),
        ),
    }
}

/// Returns the content of a request. No two requests are equal, so that each can be identified in
/// captures.
fn next_request() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("? {}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

async fn receive_answer(socket: &UdpSocket, max_wait: Duration) -> ExchangeResult {
    let local = socket.local_addr().ok();
    let mut line = [0; 2048];
    match max_wait::within(max_wait, socket.recv(&mut line)).await {
        Err(nothing) => ExchangeResult::timed_out(Verdict::Timeout, local, nothing),
        Ok(Err(error)) => {
            ExchangeResult::without_answer(verdict_from_error(&error), local, Some(error))
        }
        Ok(Ok(length)) => match answers::accept(&line[..length]) {
            Some(answer) => ExchangeResult {
                verdict: Verdict::Answered,
                answer: Some(answer),
                local,
                error: None,
                unreliable: None,
            },
            None => ExchangeResult::without_answer(
                Verdict::Silent,
                local,
                Some(io::Error::other(
                    "the answer is not from a server of the lab",
                )),
            ),
        },
    }
}
