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

use super::place::{Directory, PlaceError};
use super::talk::{Ask, Greeting, Told, VERSION};
use svclab_model::protocol::framing;
use svclab_report::ps::About;
use svclab_runner::results::RunError;

/// Maximum time for a daemon to describe its lab. The daemon runs on this machine, and the request
/// requires no work.
const SOON: Duration = Duration::from_secs(10);

/// Error of a request to a daemon.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The socket directory cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The connection failed.
    #[error("the holder of the lab cannot be spoken to: {0}")]
    Broken(#[from] io::Error),
    /// The daemon ended.
    #[error("the lab is gone: its holder ended")]
    Ended,
    /// The daemon refused the request.
    #[error("{}", .0.message)]
    Refused(RunError),
    /// The reply does not fit the request.
    #[error("the holder of the lab answered something else")]
    Nonsense,
}

/// Connection to a daemon.
pub struct Line {
    pub(super) reading: FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
    pub(super) writing: FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>,
}

impl Line {
    pub(super) fn new(stream: UnixStream) -> Self {
        let (reading, writing) = stream.into_split();
        Self {
            reading: FramedRead::new(reading, framing()),
            writing: FramedWrite::new(writing, framing()),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// Returns an error if the daemon closed the connection.
    pub async fn say(&mut self, word: &impl Serialize) -> io::Result<()> {
        say(&mut self.writing, word).await
    }

    /// Receives the next message.
    ///
    /// # Errors
    ///
    /// Returns an error if the daemon ended, refused the request or sent an invalid message.
    pub async fn hear(&mut self) -> Result<Told, CallError> {
        hear(&mut self.reading).await
    }

    /// Splits the connection into its directions. A task receives all messages from now on, even if
    /// the caller does not: two peers that both wait for the other to read would deadlock.
    #[must_use]
    pub fn split(self) -> (Hearing, Saying) {
        let mut reading = self.reading;
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let heard = hear(&mut reading).await;
                let is_last = heard.is_err();
                if tell.send(heard).is_err() || is_last {
                    return;
                }
            }
        });
        (Hearing(told), Saying(self.writing))
    }
}

/// Receiving direction of a [`Line`].
pub struct Hearing(mpsc::UnboundedReceiver<Result<Told, CallError>>);

impl Hearing {
    /// Receives the next message.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Line::hear`].
    pub async fn next(&mut self) -> Result<Told, CallError> {
        self.0.recv().await.unwrap_or(Err(CallError::Ended))
    }
}

/// Sending direction of a [`Line`].
pub struct Saying(FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>);

impl Saying {
    /// Sends a message.
    ///
    /// # Errors
    ///
    /// Returns an error if the daemon closed the connection.
    pub async fn say(&mut self, word: &impl Serialize) -> io::Result<()> {
        say(&mut self.0, word).await
    }
}

pub(super) async fn say(
    writing: &mut FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>,
    word: &impl Serialize,
) -> io::Result<()> {
    writing.send(Bytes::from(serde_json::to_vec(word)?)).await
}

async fn hear(
    reading: &mut FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
) -> Result<Told, CallError> {
    match reading.next().await {
        None => Err(CallError::Ended),
        Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => Err(CallError::Ended),
        Some(Err(error)) => Err(error.into()),
        Some(Ok(frame)) => match serde_json::from_slice(&frame) {
            Ok(Told::Refused { error }) => Err(CallError::Refused(error)),
            Ok(told) => Ok(told),
            Err(_) => Err(CallError::Nonsense),
        },
    }
}

async fn ask(stream: Blocking, ask: &Ask) -> Result<Line, CallError> {
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    let mut line = Line::new(stream);
    line.say(&Greeting {
        version: VERSION,
        ask: serde_json::to_value(ask).map_err(io::Error::from)?,
    })
    .await?;
    Ok(line)
}

/// Returns all labs of this user that are running or being built, by name.
///
/// # Errors
///
/// Returns an error if the socket directory cannot be used.
pub async fn standing(directory: &Directory) -> Result<Vec<About>, CallError> {
    let mut labs = Vec::new();
    for stream in directory.connect_all()? {
        let about = async {
            let mut line = ask(stream, &Ask::About).await?;
            line.hear().await
        };
        // A daemon that ends at this moment is omitted. A suspended daemon does not reply.
        if let Ok(Ok(Told::About { about })) = tokio::time::timeout(SOON, about).await {
            labs.push(*about);
        }
    }
    labs.sort_by(|one, other| one.case.cmp(&other.case));
    Ok(labs)
}

/// Sends a request to the daemon of a case.
///
/// # Errors
///
/// Returns an error if the daemon ended or the connection failed.
pub async fn call(directory: &Directory, case: &str, wanted: &Ask) -> Result<Line, CallError> {
    match directory.connect(case)? {
        Some(stream) => ask(stream, wanted).await,
        None => Err(CallError::Ended),
    }
}
