//! Runs a TCP exchange: connects, sends a request, and reads the server's answer.

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::net::netns::NetNs;
use crate::net::ports::{self, Ports};
use crate::probe::exchange::{Exchange, ExchangeResult, UnreliableReason, verdict_from_error};
use crate::probe::handshake::{self, AnsweredSyn};
use crate::runtime::max_wait::{self, NoAnswer};
use crate::runtime::process_clock::ClockGuard;
use crate::servers::answers;
use crate::servers::payload::{self, PayloadRequest};
use svclab_model::evidence::{Progress, Verdict};
use svclab_model::plan::Probe;

/// Maximum number of bytes of an answer in which its first line must end.
const MAX_LINE_BYTES: usize = 1024;

/// Number of bytes read at once.
const READ_BYTES: usize = 16 << 10;

/// Connection whose SYN was sent, or the error of the kernel.
pub(crate) type DialResult = Result<TcpStream, io::Error>;

/// Sends the SYN. The calling thread must be in the namespace `ns`.
pub(crate) fn start(probe: &Probe, connection: u32, ns: &NetNs) -> io::Result<Exchange> {
    let max_wait = probe.max_wait;
    let request = PayloadRequest {
        keep_open: false,
        bytes: probe.bytes,
    };
    let ns = ns.clone();
    Ok(match start_connection(probe, connection, ns.ports())? {
        Ok(mut stream) => Exchange::new(stream.local_addr().ok(), async move {
            if let Err(outcome) = wait_for_handshake(&stream, &ns, max_wait).await {
                return outcome;
            }
            exchange(&mut stream, request, max_wait).await
        }),
        Err(error) => Exchange::rejected(None, error),
    })
}

/// Sends the SYN from the probe's source port or an unused one, without a request. The calling
/// thread must be in the source namespace.
pub(crate) fn start_connection(
    probe: &Probe,
    connection: u32,
    ports: &Ports,
) -> io::Result<DialResult> {
    let to = probe.target.socket();
    let open = || {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(to), kind, None)?;
        ports::bind(&socket, probe, connection)?;
        Ok(Ok(socket))
    };
    let socket = match ports.open_socket(probe, open)? {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(error)),
    };
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => {
            match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
                // Ports or memory are exhausted: the probe cannot run. `EINVAL` is the result of a
                // blackhole route (Linux v6.12, `net/ipv4/fib_semantics.c`, `fib_props`).
                Errno::EADDRNOTAVAIL | Errno::ENOBUFS | Errno::ENOMEM => Err(error),
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
    let timed_out = ExchangeResult::timed_out(Verdict::Timeout, local, NoAnswer::TimedOut);
    match (answered.unwrap_or(AnsweredSyn::InTime), result) {
        (AnsweredSyn::InTime, ended) => ended.map_err(failed),
        (AnsweredSyn::Late, _) => Err(timed_out),
        // An ICMP error ends the connection as soon as it arrives (Linux v6.12, `net/ipv4/tcp_ipv4.c`,
        // `tcp_v4_err`), which was after the last SYN: within the limit, no SYN got one. The kernel
        // limits the rate of ICMP errors, and sends that of a silent neighbour after 3 s.
        (AnsweredSyn::Unknown, Err(error))
            if verdict_from_error(&error) == Verdict::Unreachable =>
        {
            Err(timed_out)
        }
        (AnsweredSyn::Unknown, _) => Err(ExchangeResult {
            unreliable: Some(UnreliableReason::Late),
            ..timed_out
        }),
    }
}

/// Sends a request and reads the answer.
pub(crate) async fn exchange(
    stream: &mut TcpStream,
    request: PayloadRequest,
    max_wait: Duration,
) -> ExchangeResult {
    let local = stream.local_addr().ok();
    let mut progress = Progress {
        expected: request.request_bytes(),
        ..Progress::default()
    };
    let mut line = Vec::new();
    let exchange = async {
        request.write(stream, &mut progress.sent).await?;
        read_answer(stream, request, &mut line, &mut progress.received).await
    };
    let result = max_wait::within(max_wait, exchange).await;
    progress.acknowledged = unacknowledged_bytes(stream)
        .ok()
        .map(|unacknowledged| progress.sent.saturating_sub(unacknowledged));
    let failed = |cause| ExchangeResult::without_answer(Verdict::Reset, local, Some(cause));
    let answer = payload::first_line(&line).and_then(answers::accept);
    let result = match (result, answer) {
        (Ok(Ok(true)), Some(answer)) => ExchangeResult {
            verdict: Verdict::Connected,
            answers: vec![answer],
            ..ExchangeResult::without_answer(Verdict::Connected, local, None)
        },
        (Ok(Ok(_)), None) if !line.is_empty() => failed(io::Error::other(
            "the answer is not from a server of the lab",
        )),
        (Ok(Ok(_)), _) => {
            let cause = if line.is_empty() {
                "the connection was closed without an answer"
            } else {
                "the connection was closed before the end of the answer"
            };
            failed(io::Error::other(cause))
        }
        (Ok(Err(error)), _) => failed(error),
        (Err(nothing), _) => ExchangeResult::timed_out(Verdict::Silent, local, nothing),
    };
    result.with_progress(request.bytes.map(|_| progress))
}

/// Reads an answer. Appends its line, and perhaps further bytes, to `line` and adds all bytes to
/// `received`. Returns whether the answer was complete.
async fn read_answer(
    stream: &mut TcpStream,
    request: PayloadRequest,
    line: &mut Vec<u8>,
    received: &mut u64,
) -> io::Result<bool> {
    let size = u64::try_from(request.size()).unwrap_or(u64::MAX);
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let has_line = payload::first_line(line).is_some();
        let is_complete = has_line && *received >= size;
        if request.keep_open && is_complete {
            return Ok(true);
        }
        if !has_line && line.len() >= MAX_LINE_BYTES {
            return Ok(false);
        }
        let length = stream.read(&mut chunk).await?;
        if length == 0 {
            return Ok(is_complete);
        }
        *received += u64::try_from(length).unwrap_or(u64::MAX);
        if !has_line {
            line.extend_from_slice(&chunk[..length]);
        }
    }
}

/// Returns the number of sent bytes that the peer has not acknowledged (Linux v6.12,
/// `net/ipv4/tcp.c`, `tcp_ioctl`, `SIOCOUTQ`).
fn unacknowledged_bytes(stream: &TcpStream) -> io::Result<u64> {
    nix::ioctl_read_bad!(read_output_queue, nix::libc::TIOCOUTQ, nix::libc::c_int);
    let mut bytes = 0;
    // SAFETY: the kernel writes one integer.
    unsafe { read_output_queue(stream.as_raw_fd(), &raw mut bytes) }?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
