//! Runs the streams attached to a running lab: each in its own task, independent of other requests
//! to the lab.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::netns::NetNs;
use super::{exec, failure, tap};
use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{FromStream, Opening, StreamId, ToStream, WINDOW};

/// Namespace of a running lab, with the data needed to attach a stream.
#[derive(Clone)]
pub struct Place {
    /// Network namespace.
    pub ns: NetNs,
    /// Names of its interfaces, by index.
    pub interfaces: HashMap<u32, String>,
}

/// Streams of a lab.
#[derive(Default)]
pub struct Streams {
    /// Namespaces by name. Empty before the lab runs and after it ends.
    places: RefCell<HashMap<String, Place>>,
    open: RefCell<HashMap<StreamId, mpsc::UnboundedSender<ToStream>>>,
    tasks: RefCell<JoinSet<()>>,
}

/// Function that sends a message of a stream to the client.
pub type Say = Rc<dyn Fn(FromStream)>;

impl Streams {
    /// Sets the namespaces of the running lab, which permits streams.
    pub fn stand(&self, places: HashMap<String, Place>) {
        *self.places.borrow_mut() = places;
    }

    /// Opens a stream, which sends its messages with `say`.
    pub fn open(self: &Rc<Self>, id: StreamId, opening: Opening, say: Say) {
        let (tell, told) = mpsc::unbounded_channel();
        if self.open.borrow().contains_key(&id) {
            say(failed(failure::bug(format!(
                "there is a stream {id} already"
            ))));
            return;
        }
        self.open.borrow_mut().insert(id, tell);
        let streams = Rc::clone(self);
        let mut tasks = self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(async move {
            let last = match streams.attach(opening, told, &say).await {
                Ok(last) => last,
                Err(refused) => refused,
            };
            streams.open.borrow_mut().remove(&id);
            say(last);
        });
    }

    async fn attach(
        &self,
        opening: Opening,
        told: mpsc::UnboundedReceiver<ToStream>,
        say: &Say,
    ) -> Result<FromStream, FromStream> {
        match opening {
            Opening::Exec(wanted) => {
                let place = self.place(&wanted.namespace).map_err(failed)?;
                exec::run(&place.ns, wanted, told, say).await
            }
            Opening::Capture { of } => {
                let taps = of
                    .into_iter()
                    .map(|wanted| {
                        let place = self.place(&wanted.namespace)?;
                        tap::Tap::open(&place, wanted)
                    })
                    .collect::<Result<Vec<_>, Failure>>();
                Ok(tap::run(taps.map_err(failed)?, told, say).await)
            }
        }
    }

    fn place(&self, namespace: &str) -> Result<Place, Failure> {
        self.places
            .borrow()
            .get(namespace)
            .cloned()
            .ok_or_else(|| failure::bug(format!("no {namespace} stands here to attach to")))
    }

    /// Sends a message to a stream. A message to a closed stream is dropped.
    pub fn tell(&self, id: StreamId, word: ToStream) {
        if let Some(tell) = self.open.borrow().get(&id) {
            let _ = tell.send(word);
        }
    }

    /// Closes a stream whose client has disconnected.
    pub fn close(&self, id: StreamId) {
        self.open.borrow_mut().remove(&id);
    }

    /// Ends all streams. When this function returns, their programs have ended.
    pub async fn end(&self) {
        self.places.borrow_mut().clear();
        let mut tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        self.open.borrow_mut().clear();
        while tasks.join_next().await.is_some() {}
    }
}

/// Returns the message for a failure other than a missing program.
pub fn failed(failure: Failure) -> FromStream {
    FromStream::Failed {
        absent: false,
        failure,
    }
}

/// Number of messages that may still be sent without an acknowledgement.
#[derive(Debug)]
pub struct Window(Semaphore);

impl Default for Window {
    fn default() -> Self {
        Self(Semaphore::new(WINDOW))
    }
}

impl Window {
    /// Waits until one more message may be sent.
    pub async fn one(&self) {
        // Acquiring fails only for a closed semaphore, and this semaphore is never closed.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }

    /// Records an acknowledgement.
    pub fn answered(&self) {
        // An acknowledgement of a message that was never sent has no effect.
        if self.0.available_permits() < WINDOW {
            self.0.add_permits(1);
        }
    }
}
