//! Frames of the conversation: how large each may be, and how an event is read from one.

use serde::Deserialize;
use tokio_util::codec::LengthDelimitedCodec;

use super::{Event, Finished, LabId};
use crate::evidence::{Evidence, names};

/// The largest request, in bytes: a plan with thousands of services fits, a
/// torn stream that reads as a huge length does not.
pub const LARGEST: usize = 256 << 20;

/// The largest event, in bytes: evidence of a case, which holds at most 50,000 packets and
/// 200,000 trace events.
pub const MAX_EVENT: usize = 128 << 20;

/// Maximum size of an event that names namespaces or reports a failure, in bytes.
const MAX_REPORT: usize = 8 << 20;

/// The largest event of a stream, in bytes: a chunk of [`super::stream::CHUNK`] bytes, each
/// of which takes up to four as a number, and what describes it.
const MAX_PIECE: usize = 1 << 20;

/// The largest event of any other kind, in bytes.
const MAX_NOTE: usize = 64 << 10;

/// How many counters, settings and namespaces evidence names at most.
const MAX_NAMES: usize = 1 << 20;

/// The framing of requests: a big-endian 32-bit length before each message.
#[must_use]
pub fn framing() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder()
        .max_frame_length(LARGEST)
        .new_codec()
}

/// The framing of events, which are smaller.
#[must_use]
pub fn event_framing() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder()
        .max_frame_length(MAX_EVENT)
        .new_codec()
}

impl Event {
    /// How many bytes an event of this kind has at most.
    #[must_use]
    pub const fn max_size(&self) -> usize {
        match self {
            Self::Probed { .. } | Self::Ran { .. } => MAX_EVENT,
            Self::Ready { .. }
            | Self::Unable { .. }
            | Self::Built { .. }
            | Self::Looked { .. }
            | Self::Failed { .. } => MAX_REPORT,
            Self::Heard { .. } => MAX_PIECE,
            _ => MAX_NOTE,
        }
    }
}

/// Why a frame is no event.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It is larger than its kind may be.
    #[error("an event of {size} bytes, of a kind that has at most {most}")]
    Size {
        /// How many bytes it has.
        size: usize,
        /// How many it may have.
        most: usize,
    },
    /// It is none.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Reads an event. The kind of a large one comes first: what is larger than its kind allows
/// is not read, and of evidence only what evidence has takes memory. (For an enum that has
/// its tag inside, serde keeps all that it has read until it has read the tag: 32 bytes for
/// each value, which may be one digit and a comma.)
///
/// # Errors
///
/// When it is too large or no event.
pub fn read_event(frame: &[u8]) -> Result<Event, FrameError> {
    #[derive(Deserialize)]
    struct Kind {
        say: String,
    }
    #[derive(Deserialize)]
    struct Probed {
        lab: LabId,
        evidence: Box<Evidence>,
    }
    #[derive(Deserialize)]
    struct Ran {
        lab: LabId,
        finished: Finished,
    }
    let size = frame.len();
    let fits = |most: usize| {
        (size <= most)
            .then_some(())
            .ok_or(FrameError::Size { size, most })
    };
    let Kind { say } = serde_json::from_slice(frame)?;
    let event = match &*say {
        "probed" => {
            let read = || serde_json::from_slice(frame);
            let Probed { lab, evidence } = names::within(MAX_NAMES, read)?;
            Event::Probed { lab, evidence }
        }
        "ran" => {
            let Ran { lab, finished } = serde_json::from_slice(frame)?;
            Event::Ran { lab, finished }
        }
        _ => {
            fits(MAX_REPORT)?;
            serde_json::from_slice(frame)?
        }
    };
    fits(event.max_size())?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use tokio_util::codec::Decoder as _;

    use super::*;

    fn read_back(event: &Event) -> Event {
        read_event(&serde_json::to_vec(event).unwrap()).unwrap()
    }

    #[test]
    fn event_of_each_size_is_read_as_it_was_written() {
        let lab = 7;
        let finished = Finished {
            success: true,
            stdout: "x".repeat(MAX_REPORT),
            stderr: String::new(),
        };
        for event in [
            Event::Alive,
            Event::Gone { lab },
            Event::Ran { lab, finished },
            Event::Probed {
                lab,
                evidence: Box::default(),
            },
        ] {
            assert_eq!(read_back(&event), event);
        }
    }

    #[test]
    fn evidence_has_at_most_128_mib() {
        let evidence = Box::default();
        let event = Event::Probed { lab: 0, evidence };
        assert_eq!(event.max_size(), 128 << 20);
        // No frame of events is larger.
        let mut frame = bytes::BytesMut::from(&(128_u32 << 20).to_be_bytes()[..]);
        assert!(event_framing().decode(&mut frame).unwrap().is_none());
        let mut frame = bytes::BytesMut::from(&((128_u32 << 20) + 1).to_be_bytes()[..]);
        assert!(event_framing().decode(&mut frame).is_err());
    }

    #[test]
    fn event_too_large_for_its_kind_is_refused() {
        let step = |length: usize| {
            let step = "x".repeat(length);
            serde_json::to_vec(&Event::Step { lab: 0, step }).unwrap()
        };
        let rest = step(0).len();
        assert!(read_event(&step(MAX_NOTE - rest)).is_ok());
        let refused = read_event(&step(MAX_NOTE - rest + 1)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "an event of 65537 bytes, of a kind that has at most 65536"
        );
        // What it pretends to be, and what it is, is the same.
        let both = br#"{"say":"probed","lab":0,"say":"gone"}"#;
        assert!(
            read_event(both)
                .unwrap_err()
                .to_string()
                .contains("duplicate field")
        );
    }
}
