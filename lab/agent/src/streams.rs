//! What is attached to a standing lab: each stream a task of its own, beside
//! whatever else the lab is asked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::netns::NetNs;
use super::{exec, failure, tap};
use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{FromStream, Opening, StreamId, ToStream, WINDOW};

/// A namespace of a standing lab, as far as one can be attached to it.
#[derive(Clone)]
pub struct Place {
    /// The namespace.
    pub ns: NetNs,
    /// Its interfaces by index.
    pub interfaces: HashMap<u32, String>,
}

/// The streams of a lab.
#[derive(Default)]
pub struct Streams {
    /// Empty until the lab stands, and when it goes.
    places: RefCell<HashMap<String, Place>>,
    open: RefCell<HashMap<StreamId, mpsc::UnboundedSender<ToStream>>>,
    tasks: RefCell<JoinSet<()>>,
}

/// By which a stream speaks.
pub type Say = Rc<dyn Fn(FromStream)>;

impl Streams {
    /// From now on the lab stands.
    pub fn stand(&self, places: HashMap<String, Place>) {
        *self.places.borrow_mut() = places;
    }

    /// Opens a stream, which speaks by `say`.
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

    /// Says something to a stream; one that is over does not hear it.
    pub fn tell(&self, id: StreamId, word: ToStream) {
        if let Some(tell) = self.open.borrow().get(&id) {
            let _ = tell.send(word);
        }
    }

    /// Nobody listens to a stream any more.
    pub fn close(&self, id: StreamId) {
        self.open.borrow_mut().remove(&id);
    }

    /// Ends all streams. When this returns, what was started for them has ended.
    pub async fn end(&self) {
        self.places.borrow_mut().clear();
        let mut tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        self.open.borrow_mut().clear();
        while tasks.join_next().await.is_some() {}
    }
}

/// A failure that has nothing to do with a program's not being there.
pub fn failed(failure: Failure) -> FromStream {
    FromStream::Failed {
        absent: false,
        failure,
    }
}

/// How many more messages may be sent that nobody has answered.
#[derive(Debug)]
pub struct Window(Semaphore);

impl Default for Window {
    fn default() -> Self {
        Self(Semaphore::new(WINDOW))
    }
}

impl Window {
    /// Waits until one more may be sent.
    pub async fn one(&self) {
        // It fails only for a semaphore that is closed, which nobody does.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }

    /// One has been answered.
    pub fn answered(&self) {
        // Who answers what was never sent gets no more for it.
        if self.0.available_permits() < WINDOW {
            self.0.add_permits(1);
        }
    }
}
