//! Client of the daemon of a running lab.

use std::io;
use std::os::unix::net::UnixStream as Blocking;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

use super::messages::{ClientRequest, DaemonReply, Greeting, VERSION};
use super::socket_dir::{SocketDir, SocketDirError};
use svclab_model::protocol::request_framing;
use svclab_report::ps::LabInfo;
use svclab_runner::results::RunError;

/// Maximum time for a daemon to describe its lab. The daemon runs on this machine, and the request
/// requires no work.
const INFO_TIMEOUT: Duration = Duration::from_secs(10);

/// Error of a request to a daemon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error(transparent)]
    SocketDir(#[from] SocketDirError),
    #[error("cannot communicate with the lab daemon: {0}")]
    Io(#[from] io::Error),
    #[error("the lab is no longer running: its daemon ended")]
    DaemonEnded,
    /// The daemon refused the request.
    #[error("{}", .0.message)]
    Refused(RunError),
    /// The reply does not fit the request.
    #[error("unexpected reply from the lab daemon")]
    UnexpectedReply,
}

pub(crate) struct DaemonConnection {
    pub(super) reading: FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
    pub(super) writing: FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>,
}

impl DaemonConnection {
    pub(super) fn new(stream: UnixStream) -> Self {
        let (reading, writing) = stream.into_split();
        Self {
            reading: FramedRead::new(reading, request_framing()),
            writing: FramedWrite::new(writing, request_framing()),
        }
    }

    pub(crate) async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        send_message(&mut self.writing, message).await
    }

    pub(crate) async fn recv(&mut self) -> Result<DaemonReply, CallError> {
        recv_reply(&mut self.reading).await
    }

    /// Splits the connection into its directions. A task receives all messages from now on, even if
    /// the caller does not: two peers that both wait for the other to read would deadlock.
    pub(crate) fn split(self) -> (DaemonReceiver, DaemonSender) {
        let mut reading = self.reading;
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let reply = recv_reply(&mut reading).await;
                let is_last = reply.is_err();
                if sender.send(reply).is_err() || is_last {
                    return;
                }
            }
        });
        (DaemonReceiver(receiver), DaemonSender(self.writing))
    }
}

/// Receiving direction of a [`DaemonConnection`].
pub(crate) struct DaemonReceiver(mpsc::UnboundedReceiver<Result<DaemonReply, CallError>>);

impl DaemonReceiver {
    pub(crate) async fn recv(&mut self) -> Result<DaemonReply, CallError> {
        self.0.recv().await.unwrap_or(Err(CallError::DaemonEnded))
    }
}

/// Sending direction of a [`DaemonConnection`].
pub(crate) struct DaemonSender(FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>);

impl DaemonSender {
    pub(crate) async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        send_message(&mut self.0, message).await
    }
}

pub(super) async fn send_message(
    writing: &mut FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>,
    message: &impl Serialize,
) -> io::Result<()> {
    writing
        .send(Bytes::from(serde_json::to_vec(message)?))
        .await
}

async fn recv_reply(
    reading: &mut FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
) -> Result<DaemonReply, CallError> {
    match reading.next().await {
        None => Err(CallError::DaemonEnded),
        Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
            Err(CallError::DaemonEnded)
        }
        Some(Err(error)) => Err(error.into()),
        Some(Ok(frame)) => match serde_json::from_slice(&frame) {
            Ok(DaemonReply::Refused { error }) => Err(CallError::Refused(error)),
            Ok(reply) => Ok(reply),
            Err(_) => Err(CallError::UnexpectedReply),
        },
    }
}

async fn send_request(
    stream: Blocking,
    ask: &ClientRequest,
) -> Result<DaemonConnection, CallError> {
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    let mut line = DaemonConnection::new(stream);
    line.send(&Greeting {
        version: VERSION,
        request: serde_json::to_value(ask).map_err(io::Error::from)?,
    })
    .await?;
    Ok(line)
}

/// Returns all labs of this user that are running or being built, by name.
pub(crate) async fn running_labs(directory: &SocketDir) -> Result<Vec<LabInfo>, CallError> {
    let mut labs = Vec::new();
    for stream in directory.connect_all()? {
        let info = async {
            let mut line = send_request(stream, &ClientRequest::About).await?;
            line.recv().await
        };
        // A daemon that ends at this moment is omitted. A suspended daemon does not reply.
        if let Ok(Ok(DaemonReply::About { info: about })) =
            tokio::time::timeout(INFO_TIMEOUT, info).await
        {
            labs.push(*about);
        }
    }
    labs.sort_by(|first, second| first.case.cmp(&second.case));
    Ok(labs)
}

/// Sends a request to the daemon of a case.
pub(crate) async fn request_daemon(
    directory: &SocketDir,
    case: &str,
    request: &ClientRequest,
) -> Result<DaemonConnection, CallError> {
    match directory.connect(case)? {
        Some(stream) => send_request(stream, request).await,
        None => Err(CallError::DaemonEnded),
    }
}
