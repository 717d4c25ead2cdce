//! Dispatches an agent's events to sessions and streams, and limits what an agent may send. An
//! event without a request, or more events than the limits allow, ends the connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use svclab_model::protocol::stream::{FromStream, StreamId, WINDOW};
use svclab_model::protocol::{Event, LabId};

/// Maximum size of the events that wait for a lab's session, in bytes: its evidence and earlier
/// events.
const MAX_WAITING: usize = 192 << 20;

/// Maximum number of backend health changes that wait for a session. Later changes are dropped; no
/// reader is this late.
const MAX_TURNS: usize = 1024;

/// Maximum number of messages of a stream that wait. Covers a window of each output, a window of
/// acknowledgements of the input, and the messages that begin and end the stream.
const MAX_WORDS: usize = WINDOW * 4;

/// Receivers of one agent's events: its sessions and streams.
#[derive(Debug, Default)]
pub struct Audience {
    labs: HashMap<LabId, Listener>,
    streams: HashMap<StreamId, mpsc::Sender<FromStream>>,
    /// Next number for a lab or stream. All lower numbers are in use or were used.
    next: u32,
}

/// Receiver of the agent's events for one session.
#[derive(Debug)]
pub struct Ear {
    events: mpsc::UnboundedReceiver<(Event, usize)>,
    waiting: Arc<Waiting>,
}

/// Sizes of the events that wait for a session.
#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    turns: AtomicUsize,
}

#[derive(Debug)]
struct Listener {
    say: mpsc::UnboundedSender<(Event, usize)>,
    waiting: Arc<Waiting>,
    /// Number of answers that may still arrive. It is one more than the number of requests: a lab
    /// that fails to build reports the failure and its removal.
    due: usize,
}

impl Ear {
    /// Receives the next event; `None` if there will be no more.
    pub async fn recv(&mut self) -> Option<Event> {
        let (event, size) = self.events.recv().await?;
        self.waiting.bytes.fetch_sub(size, Ordering::Relaxed);
        if matches!(event, Event::Turned { .. }) {
            self.waiting.turns.fetch_sub(1, Ordering::Relaxed);
        }
        Some(event)
    }
}

impl Audience {
    /// Assigns a number to a lab. Returns the receiver of its events.
    pub fn add_lab(&mut self) -> (LabId, Ear) {
        let (say, events) = mpsc::unbounded_channel();
        let waiting = Arc::<Waiting>::default();
        let listener = Listener {
            say,
            waiting: Arc::clone(&waiting),
            due: 1,
        };
        let lab = self.number();
        self.labs.insert(lab, listener);
        (lab, Ear { events, waiting })
    }

    /// Assigns a number to a stream. Returns the receiver of its messages.
    pub fn add_stream(&mut self) -> (StreamId, mpsc::Receiver<FromStream>) {
        let (say, said) = mpsc::channel(MAX_WORDS);
        let stream = self.number();
        self.streams.insert(stream, say);
        (stream, said)
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// Records that the agent must answer a request for a lab.
    pub fn ask(&mut self, lab: LabId) {
        if let Some(listener) = self.labs.get_mut(&lab) {
            listener.due += 1;
        }
    }

    pub fn remove_lab(&mut self, lab: LabId) {
        self.labs.remove(&lab);
    }

    pub fn remove_stream(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
    }

    pub fn clear(&mut self) {
        self.labs.clear();
        self.streams.clear();
    }

    /// Sends an event of `size` bytes to its receiver.
    ///
    /// # Errors
    ///
    /// When the agent violates the protocol. The message follows "it".
    pub fn hand_on(&mut self, event: Event, size: usize) -> Result<(), String> {
        let Some(lab) = event.lab() else {
            return Ok(());
        };
        if lab >= self.next {
            return Err(format!("spoke of a lab {lab} that it was never given"));
        }
        if let Event::Heard { stream, word, .. } = event {
            return self.hand_on_word(stream, word);
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
            let left = listener.due.checked_sub(1);
            listener.due = left.ok_or("answered what was not asked")?;
        } else if listener.waiting.turns.load(Ordering::Relaxed) >= MAX_TURNS {
            tracing::debug!(lab, "left out: {event:?}");
            return Ok(());
        } else {
            listener.waiting.turns.fetch_add(1, Ordering::Relaxed);
        }
        let before = listener.waiting.bytes.fetch_add(size, Ordering::Relaxed);
        if before.saturating_add(size) > MAX_WAITING {
            return Err(format!(
                "sent more than {} MiB that nobody had taken yet",
                MAX_WAITING >> 20
            ));
        }
        let _ = listener.say.send((event, size));
        Ok(())
    }

    fn hand_on_word(&self, stream: StreamId, word: FromStream) -> Result<(), String> {
        if stream >= self.next {
            return Err(format!(
                "spoke of a stream {stream} that it was never given"
            ));
        }
        match self.streams.get(&stream).map(|to| to.try_send(word)) {
            Some(Err(TrySendError::Full(_))) => {
                Err("sent more of a stream than it was told was taken".to_owned())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_model::protocol::Turn;

    fn turned(lab: LabId) -> Event {
        Event::Turned {
            lab,
            turn: Turn {
                namespace: "lb".to_owned(),
                backend: "10.0.0.1:80".parse().unwrap(),
                well: true,
            },
        }
    }

    #[test]
    fn answer_unasked_ends_the_conversation() {
        let mut audience = Audience::default();
        let (lab, _ear) = audience.add_lab();
        audience.ask(lab);
        for _ in 0..2 {
            assert_eq!(audience.hand_on(Event::Gone { lab }, 10), Ok(()));
        }
        let refused = audience.hand_on(Event::Gone { lab }, 10);
        assert_eq!(refused.unwrap_err(), "answered what was not asked");
    }

    #[test]
    fn event_of_unknown_lab_or_stream_ends_the_conversation() {
        let mut audience = Audience::default();
        let (lab, _ear) = audience.add_lab();
        let heard = |lab, stream| Event::Heard {
            lab,
            stream,
            word: FromStream::Opened,
        };
        let refused = audience.hand_on(Event::Changed { lab: lab + 1 }, 10);
        assert_eq!(
            refused.unwrap_err(),
            "spoke of a lab 1 that it was never given"
        );
        let refused = audience.hand_on(heard(lab, 7), 10);
        assert_eq!(
            refused.unwrap_err(),
            "spoke of a stream 7 that it was never given"
        );
        // An event of a lab that was removed is no violation.
        audience.remove_lab(lab);
        assert_eq!(audience.hand_on(Event::Changed { lab }, 10), Ok(()));
    }

    #[tokio::test]
    async fn events_beyond_the_limit_of_a_case_end_the_conversation() {
        let mut audience = Audience::default();
        let (lab, mut ear) = audience.add_lab();
        let ran = || Event::Ran {
            lab,
            finished: svclab_model::protocol::Finished {
                success: true,
                stdout: String::new(),
                stderr: String::new(),
            },
        };
        for _ in 0..4 {
            audience.ask(lab);
        }
        let size = 100 << 20;
        assert_eq!(audience.hand_on(ran(), size), Ok(()));
        // Received events do not count.
        assert!(ear.recv().await.is_some());
        assert_eq!(audience.hand_on(ran(), size), Ok(()));
        let refused = audience.hand_on(ran(), size);
        assert_eq!(
            refused.unwrap_err(),
            "sent more than 192 MiB that nobody had taken yet"
        );
    }

    #[test]
    fn words_beyond_the_window_end_the_conversation() {
        let mut audience = Audience::default();
        let (lab, _ear) = audience.add_lab();
        let (stream, _said) = audience.add_stream();
        let word = || Event::Heard {
            lab,
            stream,
            word: FromStream::Fed,
        };
        for _ in 0..MAX_WORDS {
            assert_eq!(audience.hand_on(word(), 10), Ok(()));
        }
        let refused = audience.hand_on(word(), 10);
        assert_eq!(
            refused.unwrap_err(),
            "sent more of a stream than it was told was taken"
        );
    }

    #[test]
    fn turns_beyond_the_limit_are_left_out() {
        let mut audience = Audience::default();
        let (lab, mut ear) = audience.add_lab();
        for _ in 0..MAX_TURNS + 10 {
            assert_eq!(audience.hand_on(turned(lab), 10), Ok(()));
        }
        let mut seen = 0;
        while ear.events.try_recv().is_ok() {
            seen += 1;
        }
        assert_eq!(seen, MAX_TURNS);
    }
}
