//! Runs a TCP exchange: connects, sends a request, and reads the server's answer.

use std::io;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::answers;
use super::exchange::{Doubt, Exchange, Outcome, verdict_of};
use super::handshake::{self, Answered};
use super::netns::NetNs;
use super::patience;
use super::ports::{self, Ports};
use super::pulse::Running;
use super::server::{GO_ON, LAST};
use svclab_model::evidence::Verdict;
use svclab_model::plan::Probe;

/// Maximum number of bytes read of an answer.
const LONGEST: usize = 1024;

/// Connection whose SYN was sent, or the error of the kernel.
pub type Dialled = Result<TcpStream, io::Error>;

/// Sends the SYN. The calling thread must be in the namespace `ns`.
///
/// # Errors
///
/// When no socket can be opened or the source address is unavailable.
pub fn begin(probe: &Probe, ns: &NetNs) -> io::Result<Exchange> {
    let longest = probe.patience;
    let ns = ns.clone();
    Ok(match dial(probe, ns.ports())? {
        Ok(mut stream) => Exchange::begun(stream.local_addr().ok(), async move {
            if let Err(outcome) = shake(&stream, &ns, longest).await {
                return outcome;
            }
            ask(&mut stream, LAST, longest).await
        }),
        Err(error) => Exchange::refused(error),
    })
}

/// Sends the SYN from an unused source port, without a request. The calling thread must be in the
/// source namespace.
///
/// # Errors
///
/// When no socket can be opened or the source address is unavailable.
pub fn dial(probe: &Probe, ports: &Ports) -> io::Result<Dialled> {
    let to = probe.to.socket();
    let open = || {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(to), kind, None)?;
        socket.bind(&ports::source(probe).into())?;
        Ok(Ok(socket))
    };
    let socket = match ports.fresh(open)? {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(error)),
    };
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => {
            match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
                // Ports or memory are exhausted: the probe cannot run.
                Errno::EADDRNOTAVAIL | Errno::ENOBUFS | Errno::ENOMEM | Errno::EINVAL => Err(error),
                _ => Ok(Err(error)),
            }
        }
        _ => Ok(Ok(TcpStream::from_std(socket.into())?)),
    }
}

/// Waits until the connection is established. The socket belongs to the namespace `ns`.
///
/// # Errors
///
/// When the connection is not established. The error is the result of the exchange.
pub async fn shake(stream: &TcpStream, ns: &NetNs, longest: Duration) -> Result<(), Outcome> {
    let running = Running::begin();
    let late = running.late();
    let writable = patience::within(longest, stream.writable()).await;
    let local = stream.local_addr().ok();
    let ended = match stream.take_error() {
        Ok(None) => match writable {
            Err(nothing) => return Err(Outcome::unanswered(Verdict::Timeout, local, nothing)),
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => Ok(()),
        },
        Ok(Some(error)) | Err(error) => Err(error),
    };
    let late = running.late().saturating_sub(late);
    let answered = handshake::answered(stream, ns, longest, late);
    let of = |error: io::Error| Outcome::ended(verdict_of(&error), local, Some(error));
    match (answered.unwrap_or(Answered::InTime), ended) {
        (Answered::InTime, ended) => ended.map_err(of),
        (Answered::Late, _) => Err(Outcome::ended(Verdict::Timeout, local, None)),
        (Answered::Unknown, _) => Err(Outcome {
            doubt: Some(Doubt::Late),
            ..Outcome::ended(Verdict::Timeout, local, None)
        }),
    }
}

/// Sends a request and reads the answer. After [`GO_ON`], the connection stays open.
pub async fn ask(stream: &mut TcpStream, question: u8, longest: Duration) -> Outcome {
    let local = stream.local_addr().ok();
    let mut line = Vec::new();
    let asking = async {
        stream.write_all(&[question]).await?;
        if question == GO_ON {
            while !line.ends_with(b"\n") && line.len() < LONGEST {
                let mut byte = [0; 1];
                if stream.read(&mut byte).await? == 0 {
                    break;
                }
                line.extend(byte);
            }
            return Ok(line.len());
        }
        (&mut *stream)
            .take(LONGEST as u64)
            .read_to_end(&mut line)
            .await
    };
    let asked = patience::within(longest, asking).await;
    match (asked, answers::accept(&line)) {
        (Ok(Ok(_)), Some(answer)) => Outcome {
            verdict: Verdict::Connected,
            answer: Some(answer),
            local,
            error: None,
            doubt: None,
        },
        (Ok(Ok(_)), None) => {
            let cause = if line.is_empty() {
                "the connection was closed without an answer"
            } else {
                "the answer is not from a server of the lab"
            };
            Outcome::ended(Verdict::Reset, local, Some(io::Error::other(cause)))
        }
        (Ok(Err(error)), _) => Outcome::ended(Verdict::Reset, local, Some(error)),
        (Err(nothing), _) => Outcome::unanswered(Verdict::Silent, local, nothing),
    }
}
