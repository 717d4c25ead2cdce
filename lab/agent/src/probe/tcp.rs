//! Runs a TCP exchange: connects, sends a request, and reads the server's answer.

use std::io;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::net::netns::NetNs;
use crate::net::ports::{self, Ports};
use crate::probe::exchange::{Exchange, ExchangeResult, UnreliableReason, verdict_from_error};
use crate::probe::handshake::{self, AnsweredSyn};
use crate::runtime::max_wait;
use crate::runtime::process_clock::ClockGuard;
use crate::servers::answers;
use crate::servers::server::{REQUEST_KEEP_OPEN, REQUEST_LAST};
use svclab_model::evidence::Verdict;
use svclab_model::plan::Probe;

/// Maximum number of bytes read of an answer.
const MAX_ANSWER_BYTES: usize = 1024;

/// Connection whose SYN was sent, or the error of the kernel.
pub(crate) type DialResult = Result<TcpStream, io::Error>;

/// Sends the SYN. The calling thread must be in the namespace `ns`.
pub(crate) fn start(probe: &Probe, ns: &NetNs) -> io::Result<Exchange> {
    let max_wait = probe.max_wait;
    let ns = ns.clone();
    Ok(match start_connection(probe, ns.ports())? {
        Ok(mut stream) => Exchange::new(stream.local_addr().ok(), async move {
            if let Err(outcome) = wait_for_handshake(&stream, &ns, max_wait).await {
                return outcome;
            }
            exchange(&mut stream, REQUEST_LAST, max_wait).await
        }),
        Err(error) => Exchange::rejected(error),
    })
}

/// Sends the SYN from an unused source port, without a request. The calling thread must be in the
/// source namespace.
pub(crate) fn start_connection(probe: &Probe, ports: &Ports) -> io::Result<DialResult> {
    let to = probe.target.socket();
    let open = || {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(to), kind, None)?;
        socket.bind(&ports::source_address(probe).into())?;
        Ok(Ok(socket))
    };
    let socket = match ports.bind_unused(open)? {
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
pub(crate) async fn wait_for_handshake(
    stream: &TcpStream,
    ns: &NetNs,
    max_wait: Duration,
) -> Result<(), ExchangeResult> {
    let running = ClockGuard::start();
    let late_before = running.late();
    let writable = max_wait::within(max_wait, stream.writable()).await;
    let local = stream.local_addr().ok();
    let result = match stream.take_error() {
        Ok(None) => match writable {
            Err(nothing) => {
                return Err(ExchangeResult::timed_out(Verdict::Timeout, local, nothing));
            }
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => Ok(()),
        },
        Ok(Some(error)) | Err(error) => Err(error),
    };
    let delay = running.late().saturating_sub(late_before);
    let answered = handshake::answered_syn(stream, ns, max_wait, delay);
    let failed = |error: io::Error| {
        ExchangeResult::without_answer(verdict_from_error(&error), local, Some(error))
    };
    match (answered.unwrap_or(AnsweredSyn::InTime), result) {
        (AnsweredSyn::InTime, ended) => ended.map_err(failed),
        (AnsweredSyn::Late, _) => Err(ExchangeResult::without_answer(
            Verdict::Timeout,
            local,
            None,
        )),
        (AnsweredSyn::Unknown, _) => Err(ExchangeResult {
            unreliable: Some(UnreliableReason::Late),
            ..ExchangeResult::without_answer(Verdict::Timeout, local, None)
        }),
    }
}

/// Sends a request and reads the answer. After [`REQUEST_KEEP_OPEN`], the connection stays open.
pub(crate) async fn exchange(
    stream: &mut TcpStream,
    request: u8,
    max_wait: Duration,
) -> ExchangeResult {
    let local = stream.local_addr().ok();
    let mut line = Vec::new();
    let exchange = async {
        stream.write_all(&[request]).await?;
        if request == REQUEST_KEEP_OPEN {
            while !line.ends_with(b"\n") && line.len() < MAX_ANSWER_BYTES {
                let mut byte = [0; 1];
                if stream.read(&mut byte).await? == 0 {
                    break;
                }
                line.extend(byte);
            }
            return Ok(line.len());
        }
        (&mut *stream)
            .take(MAX_ANSWER_BYTES as u64)
            .read_to_end(&mut line)
            .await
    };
    let result = max_wait::within(max_wait, exchange).await;
    match (result, answers::accept(&line)) {
        (Ok(Ok(_)), Some(answer)) => ExchangeResult {
            verdict: Verdict::Connected,
            answer: Some(answer),
            local,
            error: None,
            unreliable: None,
        },
        (Ok(Ok(_)), None) => {
            let cause = if line.is_empty() {
                "the connection was closed without an answer"
            } else {
                "the answer is not from a server of the lab"
            };
            ExchangeResult::without_answer(Verdict::Reset, local, Some(io::Error::other(cause)))
        }
        (Ok(Err(error)), _) => ExchangeResult::without_answer(Verdict::Reset, local, Some(error)),
        (Err(nothing), _) => ExchangeResult::timed_out(Verdict::Silent, local, nothing),
    }
}
