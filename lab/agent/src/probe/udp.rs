//! Runs a UDP exchange: sends datagrams from one socket and receives the answers.

use std::io;

use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;

use crate::net::ports::{self, Ports};
use crate::probe::exchange::{Exchange, ExchangeResult};
use crate::probe::{datagrams, icmp_errors};
use crate::servers::{answers, payload};
use svclab_model::plan::Probe;

/// Sends the first datagram from the namespace of the calling thread. `ports` are the ports of its lab.
pub(crate) fn start(probe: &Probe, connection: u32, ports: &Ports) -> io::Result<Exchange> {
    let socket = match ports.open_socket(probe, || connect(probe, connection))? {
        Ok(socket) => socket,
        Err(error) => return Ok(Exchange::rejected(None, error)),
    };
    let sent = socket.send(&payload::next_datagram(probe.bytes));
    let socket = UdpSocket::from_std(socket.into())?;
    let (local, probe) = (socket.local_addr().ok(), probe.clone());
    Ok(match sent {
        Ok(_) => Exchange::new(local, async move { exchange(&socket, &probe, 1).await }),
        Err(error) => Exchange::rejected(local, error),
    })
}

/// Opens a socket connected to the probe's target, without sending a datagram. The inner error
/// reports that the target has no route.
pub(crate) fn open_socket(
    probe: &Probe,
    connection: u32,
    ports: &Ports,
) -> io::Result<Result<UdpSocket, io::Error>> {
    Ok(
        match ports.open_socket(probe, || connect(probe, connection))? {
            Ok(socket) => Ok(UdpSocket::from_std(socket.into())?),
            Err(error) => Err(error),
        },
    )
}

fn connect(probe: &Probe, connection: u32) -> io::Result<io::Result<Socket>> {
    let target = probe.target.socket();
    let socket = Socket::new(
        Domain::for_address(target),
        Type::DGRAM.nonblocking().cloexec(),
        None,
    )?;
    icmp_errors::enable(&socket, target.ip())?;
    ports::bind(&socket, probe, connection)?;
    Ok(socket.connect(&target.into()).map(|()| socket))
}

/// Sends the datagrams of a probe, except the `sent` first ones, and waits for the answers.
pub(crate) async fn exchange(socket: &UdpSocket, probe: &Probe, sent: u32) -> ExchangeResult {
    let mut received = Vec::new();
    let accept = |datagram: &[u8]| {
        let answer = payload::first_line(datagram).and_then(answers::accept);
        let is_valid = answer.is_some();
        received.extend(answer);
        is_valid
    };
    let next = |_| payload::next_datagram(probe.bytes);
    let result = datagrams::exchange(socket, probe, sent, next, accept).await;
    ExchangeResult {
        answers: received,
        ..result
    }
}
