//! Dispatches an agent's events to sessions and streams, and limits what an agent may send. An
//! event without a request, or more events than the limits allow, ends the connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use svclab_model::protocol::stream::{FromStream, MAX_UNACKNOWLEDGED, StreamId};
use svclab_model::protocol::{Event, LabId};

/// Maximum size of the events that wait for a lab's session, in bytes: its evidence and earlier
/// events.
const MAX_WAITING: usize = 192 << 20;

/// Maximum number of backend health changes that wait for a session. Later changes are dropped; no
/// reader is this late.
const MAX_HEALTH_CHANGES: usize = 1024;

/// Maximum number of messages of a stream that wait. Covers a window of each output, a window of
/// acknowledgements of the input, and the messages that begin and end the stream.
const MAX_MESSAGES: usize = MAX_UNACKNOWLEDGED * 4;

/// Receivers of one agent's events: its sessions and streams.
#[derive(Debug, Default)]
pub(super) struct Dispatcher {
    labs: HashMap<LabId, SessionSender>,
    streams: HashMap<StreamId, mpsc::Sender<FromStream>>,
    /// Next number for a lab or stream. All lower numbers are in use or were used.
    next_number: u32,
}

/// Receiver of the agent's events for one session.
#[derive(Debug)]
pub(super) struct SessionReceiver {
    events: mpsc::UnboundedReceiver<(Event, usize)>,
    waiting: Arc<Queued>,
}

/// Sizes of the events that wait for a session.
#[derive(Debug, Default)]
struct Queued {
    bytes: AtomicUsize,
    health_changes: AtomicUsize,
}

#[derive(Debug)]
struct SessionSender {
    events: mpsc::UnboundedSender<(Event, usize)>,
    waiting: Arc<Queued>,
    /// Number of answers that may still arrive. It is one more than the number of requests: a lab
    /// that fails to build reports the failure and its removal.
    expected_answers: usize,
}

impl SessionReceiver {
    /// Receives the next event; `None` if there will be no more.
    pub(super) async fn recv(&mut self) -> Option<Event> {
        let (event, size) = self.events.recv().await?;
        self.waiting.bytes.fetch_sub(size, Ordering::Relaxed);
        if matches!(event, Event::BackendHealthChanged { .. }) {
            self.waiting.health_changes.fetch_sub(1, Ordering::Relaxed);
        }
        Some(event)
    }
}

impl Dispatcher {
    /// Assigns a number to a lab. Returns the receiver of its events.
    pub(super) fn add_lab(&mut self) -> (LabId, SessionReceiver) {
        let (sender, events) = mpsc::unbounded_channel();
        let waiting = Arc::<Queued>::default();
        let listener = SessionSender {
            events: sender,
            waiting: Arc::clone(&waiting),
            expected_answers: 1,
        };
        let lab = self.assign_number();
        self.labs.insert(lab, listener);
        (lab, SessionReceiver { events, waiting })
    }

    /// Assigns a number to a stream. Returns the receiver of its messages.
    pub(super) fn add_stream(&mut self) -> (StreamId, mpsc::Receiver<FromStream>) {
        let (sender, receiver) = mpsc::channel(MAX_MESSAGES);
        let stream = self.assign_number();
        self.streams.insert(stream, sender);
        (stream, receiver)
    }

    fn assign_number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Records that the agent must answer a request for a lab.
    pub(super) fn expect_answer(&mut self, lab: LabId) {
        if let Some(listener) = self.labs.get_mut(&lab) {
            listener.expected_answers += 1;
        }
    }

    pub(super) fn remove_lab(&mut self, lab: LabId) {
        self.labs.remove(&lab);
    }

    pub(super) fn remove_stream(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
    }

    pub(super) fn clear(&mut self) {
        self.labs.clear();
        self.streams.clear();
    }

    /// Sends an event of `size` bytes to its receiver. The error describes how the agent violates
    /// the protocol.
    pub(super) fn dispatch(&mut self, event: Event, size: usize) -> Result<(), String> {
        let Some(lab) = event.lab() else {
            return Ok(());
        };
        if lab >= self.next_number {
            return Err(format!("message for the unknown lab {lab}"));
        }
        if let Event::StreamMessage {
            stream, message, ..
        } = event
        {
            return self.dispatch_message(stream, message);
        }
        let is_answer = event.is_answer();
        // The session has ended.
        let Some(listener) = self.labs.get_mut(&lab) else {
            return Ok(());
        };
        if matches!(event, Event::Step { .. }) {
            return Ok(());
        }
        if is_answer {
            let remaining = listener.expected_answers.checked_sub(1);
            listener.expected_answers = remaining.ok_or("unrequested answer")?;
        } else if listener.waiting.health_changes.load(Ordering::Relaxed) >= MAX_HEALTH_CHANGES {
            tracing::debug!(lab, "dropped: {event:?}");
            return Ok(());
        } else {
            listener
                .waiting
                .health_changes
                .fetch_add(1, Ordering::Relaxed);
        }
        let before = listener.waiting.bytes.fetch_add(size, Ordering::Relaxed);
        if before.saturating_add(size) > MAX_WAITING {
            return Err(format!(
                "more than {} MiB of unread messages",
                MAX_WAITING >> 20
            ));
        }
        let _ = listener.events.send((event, size));
        Ok(())
    }

    fn dispatch_message(&self, stream: StreamId, message: FromStream) -> Result<(), String> {
        if stream >= self.next_number {
            return Err(format!("message for the unknown stream {stream}"));
        }
        match self.streams.get(&stream).map(|to| to.try_send(message)) {
            Some(Err(TrySendError::Full(_))) => {
                Err("more messages of a stream than were acknowledged".to_owned())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::protocol::BackendHealthChange;

    fn health_changed(lab: LabId) -> Event {
        Event::BackendHealthChanged {
            lab,
            change: BackendHealthChange {
                namespace: "lb".to_owned(),
                backend: "10.0.0.1:80".parse().unwrap(),
                healthy: true,
            },
        }
    }

    #[test]
    fn dispatch_unrequested_answer_returns_error() {
        let mut audience = Dispatcher::default();
        let (lab, _ear) = audience.add_lab();
        audience.expect_answer(lab);
        for _ in 0..2 {
            assert_eq!(audience.dispatch(Event::Removed { lab }, 10), Ok(()));
        }
        let error = audience.dispatch(Event::Removed { lab }, 10);
        assert_eq!(error.unwrap_err(), "unrequested answer");
    }

    #[test]
    fn dispatch_unknown_lab_or_stream_returns_error() {
        let mut audience = Dispatcher::default();
        let (lab, _ear) = audience.add_lab();
        let stream_message = |lab, stream| Event::StreamMessage {
            lab,
            stream,
            message: FromStream::Opened,
        };
        let error = audience.dispatch(Event::Changed { lab: lab + 1 }, 10);
        assert_eq!(error.unwrap_err(), "message for the unknown lab 1");
        let refused = audience.dispatch(stream_message(lab, 7), 10);
        assert_eq!(refused.unwrap_err(), "message for the unknown stream 7");
        // An event of a lab that was removed is no violation.
        audience.remove_lab(lab);
        assert_eq!(audience.dispatch(Event::Changed { lab }, 10), Ok(()));
    }

    #[tokio::test]
    async fn dispatch_too_many_waiting_bytes_returns_error() {
        let mut audience = Dispatcher::default();
        let (lab, mut ear) = audience.add_lab();
        let program_finished = || Event::ProgramFinished {
            lab,
            output: svclab_model::protocol::ProgramOutput {
                success: true,
                stdout: String::new(),
                stderr: String::new(),
            },
        };
        for _ in 0..4 {
            audience.expect_answer(lab);
        }
        let size = 100 << 20;
        assert_eq!(audience.dispatch(program_finished(), size), Ok(()));
        // Received events do not count.
        assert!(ear.recv().await.is_some());
        assert_eq!(audience.dispatch(program_finished(), size), Ok(()));
        let error = audience.dispatch(program_finished(), size);
        assert_eq!(error.unwrap_err(), "more than 192 MiB of unread messages");
    }

    #[test]
    fn dispatch_messages_beyond_window_returns_error() {
        let mut audience = Dispatcher::default();
        let (lab, _ear) = audience.add_lab();
        let (stream, _said) = audience.add_stream();
        let stream_message = || Event::StreamMessage {
            lab,
            stream,
            message: FromStream::InputAck,
        };
        for _ in 0..MAX_MESSAGES {
            assert_eq!(audience.dispatch(stream_message(), 10), Ok(()));
        }
        let error = audience.dispatch(stream_message(), 10);
        assert_eq!(
            error.unwrap_err(),
            "more messages of a stream than were acknowledged"
        );
    }

    #[test]
    fn dispatch_drops_health_changes_beyond_limit() {
        let mut audience = Dispatcher::default();
        let (lab, mut ear) = audience.add_lab();
        for _ in 0..MAX_HEALTH_CHANGES + 10 {
            assert_eq!(audience.dispatch(health_changed(lab), 10), Ok(()));
        }
        let mut received = 0;
        while ear.events.try_recv().is_ok() {
            received += 1;
        }
        assert_eq!(received, MAX_HEALTH_CHANGES);
    }
}
