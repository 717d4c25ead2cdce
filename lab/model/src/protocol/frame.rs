//! Frames the messages of the protocol: sets the maximum size of each kind and parses events.

use serde::Deserialize;
use tokio_util::codec::LengthDelimitedCodec;

use super::{Event, LabId, ProgramOutput};
use crate::evidence::{Evidence, names};

/// Maximum size of a request, in bytes. A plan with thousands of services fits. The huge length
/// that a torn stream yields does not.
pub const MAX_REQUEST: usize = 256 << 20;

/// Maximum size of an event, in bytes. The evidence of a case holds at most 50,000 packets and
/// 200,000 trace events.
pub const MAX_EVENT: usize = 128 << 20;

/// Maximum size of an event that names namespaces or reports a failure, in bytes.
const MAX_REPORT: usize = 8 << 20;

/// Maximum size of a stream event, in bytes. The event holds one chunk of at most
/// [`super::stream::MAX_CHUNK`] bytes and its metadata. A byte written as a JSON number is up to 4
/// characters long.
const MAX_STREAM_EVENT: usize = 1 << 20;

/// Maximum size of any other event, in bytes.
const MAX_OTHER_EVENT: usize = 64 << 10;

/// Maximum number of counters, settings and namespaces that evidence names.
const MAX_NAMES: usize = 1 << 20;

/// Returns the codec of requests: a big-endian 32-bit length precedes each message.
#[must_use]
pub fn request_framing() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder()
        .max_frame_length(MAX_REQUEST)
        .new_codec()
}

/// Returns the codec of events, which have a smaller maximum size than requests.
#[must_use]
pub fn event_framing() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder()
        .max_frame_length(MAX_EVENT)
        .new_codec()
}

impl Event {
    /// Returns the maximum size of an event of this kind, in bytes.
    #[must_use]
    pub const fn max_size(&self) -> usize {
        match self {
            Self::Probed { .. } | Self::ProgramFinished { .. } => MAX_EVENT,
            Self::Ready { .. }
            | Self::StartFailed { .. }
            | Self::Built { .. }
            | Self::ProgramStatus { .. }
            | Self::Failed { .. } => MAX_REPORT,
            Self::StreamMessage { .. } => MAX_STREAM_EVENT,
            _ => MAX_OTHER_EVENT,
        }
    }
}

/// Error for a frame that does not contain a valid event.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The frame exceeds the maximum size of its kind.
    #[error("event of {size} bytes exceeds the limit of {max_size} bytes for its kind")]
    TooLarge {
        /// Size of the frame, in bytes.
        size: usize,
        /// Maximum size of this kind of event, in bytes.
        max_size: usize,
    },
    /// The frame is not a JSON event.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Parses an event. The function reads the kind first. It rejects an event that is too large for
/// its kind without parsing the rest, and parses evidence directly into its own type.
///
/// For an enum with an internal tag, serde buffers all values until it finds the tag. The buffer
/// takes 32 bytes for each value, and a value can be one digit and a comma.
///
/// # Errors
///
/// Returns an error if the frame is too large for its kind or not a valid event.
pub fn read_event(frame: &[u8]) -> Result<Event, FrameError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        say: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Probed {
        lab: LabId,
        evidence: Box<Evidence>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ProgramFinished {
        lab: LabId,
        output: ProgramOutput,
    }
    let size = frame.len();
    let fits = |max_size: usize| {
        (size <= max_size)
            .then_some(())
            .ok_or(FrameError::TooLarge { size, max_size })
    };
    let Kind { say } = serde_json::from_slice(frame)?;
    let event = match &*say {
        "probed" => {
            let read = || serde_json::from_slice(frame);
            let Probed { lab, evidence } = names::with_max_entries(MAX_NAMES, read)?;
            Event::Probed { lab, evidence }
        }
        "programFinished" => {
            let ProgramFinished { lab, output } = serde_json::from_slice(frame)?;
            Event::ProgramFinished { lab, output }
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
    use tokio_util::bytes::BytesMut;
    use tokio_util::codec::Decoder as _;

    use super::super::Request;
    use super::*;

    fn read_back(event: &Event) -> Event {
        read_event(&serde_json::to_vec(event).unwrap()).unwrap()
    }

    #[test]
    fn read_event_each_size_class_round_trips() {
        let lab = 7;
        let finished = ProgramOutput {
            success: true,
            stdout: "x".repeat(MAX_REPORT),
            stderr: String::new(),
        };
        for event in [
            Event::Alive,
            Event::Removed { lab },
            Event::ProgramFinished {
                lab,
                output: finished,
            },
            Event::Probed {
                lab,
                evidence: Box::default(),
            },
        ] {
            assert_eq!(read_back(&event), event);
        }
    }

    /// The fuzzer starts from these messages.
    #[test]
    fn fuzz_seeds_are_valid_messages() {
        let directory = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fuzz/seeds/agent_protocol"
        );
        let mut count = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let mut stream = BytesMut::from(&*std::fs::read(&path).unwrap());
            let mut frames = event_framing();
            while let Some(frame) = frames.decode(&mut stream).unwrap() {
                let request = serde_json::from_slice::<Request>(&frame);
                let is_request = request.is_ok();
                if let (Err(request), Err(event)) = (request, read_event(&frame)) {
                    panic!("{}: {request}, {event}", path.display());
                }
                count += usize::from(is_request);
            }
            assert!(stream.is_empty(), "{}", path.display());
        }
        assert!(count > 5, "{count} requests");
    }

    #[test]
    fn event_framing_above_128_mib_is_rejected() {
        let evidence = Box::default();
        let event = Event::Probed { lab: 0, evidence };
        assert_eq!(event.max_size(), 128 << 20);
        // The event codec rejects every larger frame.
        let mut frame = bytes::BytesMut::from(&(128_u32 << 20).to_be_bytes()[..]);
        assert!(event_framing().decode(&mut frame).unwrap().is_none());
        let mut frame = bytes::BytesMut::from(&((128_u32 << 20) + 1).to_be_bytes()[..]);
        assert!(event_framing().decode(&mut frame).is_err());
    }

    #[test]
    fn read_event_too_large_for_kind_returns_error() {
        let step = |length: usize| {
            let step = "x".repeat(length);
            serde_json::to_vec(&Event::Step { lab: 0, step }).unwrap()
        };
        let overhead = step(0).len();
        assert!(read_event(&step(MAX_OTHER_EVENT - overhead)).is_ok());
        let error = read_event(&step(MAX_OTHER_EVENT - overhead + 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "event of 65537 bytes exceeds the limit of 65536 bytes for its kind"
        );
        // A second tag cannot change the kind that the size check uses.
        let duplicate_tag = br#"{"say":"probed","lab":0,"say":"removed"}"#;
        assert!(
            read_event(duplicate_tag)
                .unwrap_err()
                .to_string()
                .contains("duplicate field")
        );
    }
}
