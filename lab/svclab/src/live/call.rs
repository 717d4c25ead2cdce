//! A user's side of the conversation with a holder.

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

/// How long a holder may take to say what it holds. It is on this machine and
/// does nothing that takes time.
const SOON: Duration = Duration::from_secs(10);

/// Why a holder did not answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The directory of sockets is of no use.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The conversation broke.
    #[error("the holder of the lab cannot be spoken to: {0}")]
    Broken(#[from] io::Error),
    /// The holder is gone.
    #[error("the lab is gone: its holder ended")]
    Ended,
    /// The holder said no.
    #[error("{}", .0.message)]
    Refused(RunError),
    /// The holder said something else than was asked.
    #[error("the holder of the lab answered something else")]
    Nonsense,
}

/// A connection to a holder.
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

    /// Says something.
    ///
    /// # Errors
    ///
    /// When nobody is there.
    pub async fn say(&mut self, word: &impl Serialize) -> io::Result<()> {
        say(&mut self.writing, word).await
    }

    /// What is told next.
    ///
    /// # Errors
    ///
    /// When the holder has ended, refuses what was asked, or speaks nonsense.
    pub async fn hear(&mut self) -> Result<Told, CallError> {
        hear(&mut self.reading).await
    }

    /// Both directions apart. What is told is read from now on, whatever its reader
    /// does: two that wait for each other to read would wait for ever.
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

/// One direction of a [`Line`].
pub struct Hearing(mpsc::UnboundedReceiver<Result<Told, CallError>>);

impl Hearing {
    /// What is told next.
    ///
    /// # Errors
    ///
    /// As of [`Line::hear`].
    pub async fn next(&mut self) -> Result<Told, CallError> {
        self.0.recv().await.unwrap_or(Err(CallError::Ended))
    }
}

/// The other direction of a [`Line`].
pub struct Saying(FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>);

impl Saying {
    /// Says something.
    ///
    /// # Errors
    ///
    /// When nobody is there.
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

/// All labs of this user's that stand or are being built, by their names.
///
/// # Errors
///
/// When the directory of sockets is of no use.
pub async fn standing(directory: &Directory) -> Result<Vec<About>, CallError> {
    let mut labs = Vec::new();
    for stream in directory.connect_all()? {
        let about = async {
            let mut line = ask(stream, &Ask::About).await?;
            line.hear().await
        };
        // One that ends at this moment is gone; one that was stopped says nothing.
        if let Ok(Ok(Told::About { about })) = tokio::time::timeout(SOON, about).await {
            labs.push(*about);
        }
    }
    labs.sort_by(|one, other| one.case.cmp(&other.case));
    Ok(labs)
}

/// Asks the holder of a case.
///
/// # Errors
///
/// When it is gone.
pub async fn call(directory: &Directory, case: &str, wanted: &Ask) -> Result<Line, CallError> {
    match directory.connect(case)? {
        Some(stream) => ask(stream, wanted).await,
        None => Err(CallError::Ended),
    }
}
