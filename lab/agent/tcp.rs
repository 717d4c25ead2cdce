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
use super::server::{GO_ON, LAST, read_answer};
use crate::evidence::Verdict;
use crate::plan::Probe;

/// The longest answer worth reading, in bytes.
const LONGEST: usize = 1024;

/// A connection whose SYN is on its way, or why the system would not send it.
pub type Dialled = Result<TcpStream, io::Error>;

/// Sends the SYN, from the namespace the calling thread is in.
///
/// # Errors
///
/// When no socket can be had or its source address is not to be had.
pub fn begin(probe: &Probe) -> io::Result<Exchange> {
    let longest = probe.patience;
    Ok(match dial(probe)? {
        Ok(mut stream) => Exchange::begun(stream.local_addr().ok(), async move {
            if let Err(outcome) = shake(&stream, longest).await {
                return outcome;
            }
            ask(&mut stream, LAST, longest).await
        }),
        Err(error) => Exchange::refused(error),
    })
}

/// Sends the SYN, likewise, and says no word.
///
/// # Errors
///
/// As [`begin`].
pub fn dial(probe: &Probe) -> io::Result<Dialled> {
    let to = probe.to.socket();
    let socket = Socket::new(
        Domain::for_address(to),
        Type::STREAM.nonblocking().cloexec(),
        None,
    )?;
    if let Some(address) = probe.bind {
        socket.bind(&SocketAddr::new(address, 0).into())?;
    }
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => {
            match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
                // Out of ports or memory: the lab could not try at all.
                Errno::EADDRNOTAVAIL | Errno::ENOBUFS | Errno::ENOMEM | Errno::EINVAL => Err(error),
                _ => Ok(Err(error)),
            }
        }
        _ => Ok(Ok(TcpStream::from_std(socket.into())?)),
    }
}

/// Waits until the connection stands.
///
/// # Errors
///
/// What became of it if it does not.
pub async fn shake(stream: &TcpStream, longest: Duration) -> Result<(), Outcome> {
    // The future is asked before the clock: a handshake that made it in time
    // counts, however late this thread got round to looking.
    let writable = timeout(longest, stream.writable()).await;
    let local = stream.local_addr().ok();
    match stream.take_error() {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => {
            return Err(Outcome::ended(verdict_of(&error), local, Some(error)));
        }
    }
    match writable {
        Err(_) => Err(Outcome::ended(Verdict::Timeout, local, None)),
        Ok(Err(error)) => Err(Outcome::ended(verdict_of(&error), local, Some(error))),
        Ok(Ok(())) => Ok(()),
    }
}

/// Asks who is there. After [`GO_ON`] the connection goes on.
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
    let asked = tokio::select! {
        biased;
        asked = asking => Some(asked),
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
