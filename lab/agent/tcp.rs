//! One TCP exchange: connect, ask, read who answered.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::exchange::{Exchange, Outcome, verdict_of};
use super::patience;
use super::server::read_answer;
use crate::evidence::Verdict;
use crate::plan::Probe;

/// The longest answer worth reading, in bytes.
const LONGEST: usize = 1024;

/// Sends the SYN, from the namespace the calling thread is in.
///
/// # Errors
///
/// When no socket can be had or its source address is not to be had.
pub fn begin(probe: &Probe) -> io::Result<Exchange> {
    let to = probe.to.socket();
    let socket = Socket::new(
        Domain::for_address(to),
        Type::STREAM.nonblocking().cloexec(),
        None,
    )?;
    if let Some(address) = probe.bind {
        socket.bind(&SocketAddr::new(address, 0).into())?;
    }
    let connecting = socket.connect(&to.into());
    let longest = probe.patience;
    match connecting {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => {
            match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
                // Out of ports or memory: the lab could not try at all.
                Errno::EADDRNOTAVAIL | Errno::ENOBUFS | Errno::ENOMEM | Errno::EINVAL => Err(error),
                _ => Ok(Exchange::refused(error)),
            }
        }
        _ => {
            let stream = TcpStream::from_std(socket.into())?;
            let local = stream.local_addr().ok();
            Ok(Exchange::begun(local, exchange(stream, longest)))
        }
    }
}

async fn exchange(mut stream: TcpStream, longest: Duration) -> Outcome {
    // The future is asked before the clock: a handshake that made it in time
    // counts, however late this thread got round to looking.
    let writable = timeout(longest, stream.writable()).await;
    let local = stream.local_addr().ok();
    match stream.take_error() {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => {
            return Outcome::ended(verdict_of(&error), local, Some(error));
        }
    }
    match writable {
        Err(_) => return Outcome::ended(Verdict::Timeout, local, None),
        Ok(Err(error)) => return Outcome::ended(verdict_of(&error), local, Some(error)),
        Ok(Ok(())) => {}
    }
    let mut line = Vec::new();
    let ask = async {
        stream.write_all(b"?").await?;
        (&mut stream)
            .take(LONGEST as u64)
            .read_to_end(&mut line)
            .await
    };
    let asked = tokio::select! {
        biased;
        asked = ask => Some(asked),
        () = patience::over(longest) => None,
    };
    match (asked, read_answer(&line)) {
        (Some(Ok(_)), Some(answer)) => Outcome {
            verdict: Verdict::Connected,
            answer: Some(answer),
            local,
            error: None,
        },
        (Some(Ok(_)), None) => Outcome::ended(
            Verdict::Reset,
            local,
            Some(io::Error::other(
                "the connection was closed without an answer",
            )),
        ),
        (Some(Err(error)), _) => Outcome::ended(Verdict::Reset, local, Some(error)),
        (None, _) => Outcome::ended(Verdict::Silent, local, None),
    }
}
