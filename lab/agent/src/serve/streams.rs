//! Runs the streams attached to a running lab: each in its own task, independent of other requests
//! to the lab.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::net::attach_point::AttachPoint;
use crate::program::exec;
use crate::runtime::client_stream::{SendToClient, failed_message};
use crate::runtime::failure;
use crate::watch::live_capture;
use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{FromStream, StreamId, StreamRequest, ToStream};

/// Streams of a lab.
#[derive(Default)]
pub(crate) struct Streams {
    /// Namespaces by name. Empty before the lab runs and after it ends.
    attach_points: RefCell<HashMap<String, AttachPoint>>,
    message_senders: RefCell<HashMap<StreamId, mpsc::UnboundedSender<ToStream>>>,
    tasks: RefCell<JoinSet<()>>,
}

impl Streams {
    /// Sets the namespaces of the running lab, which permits streams.
    pub(crate) fn set_attach_points(&self, places: HashMap<String, AttachPoint>) {
        *self.attach_points.borrow_mut() = places;
    }

    /// Opens a stream, which sends its messages with `send`.
    pub(crate) fn open(self: &Rc<Self>, id: StreamId, request: StreamRequest, send: SendToClient) {
        let (message_sender, message_receiver) = mpsc::unbounded_channel();
        if self.message_senders.borrow().contains_key(&id) {
            send(failed_message(failure::bug(format!(
                "stream {id} already exists"
            ))));
            return;
        }
        self.message_senders.borrow_mut().insert(id, message_sender);
        let streams = Rc::clone(self);
        let mut tasks = self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(async move {
            let last_message = match streams.attach(request, message_receiver, &send).await {
                Ok(last) => last,
                Err(failure) => failure,
            };
            streams.message_senders.borrow_mut().remove(&id);
            send(last_message);
        });
    }

    async fn attach(
        &self,
        request: StreamRequest,
        messages: mpsc::UnboundedReceiver<ToStream>,
        send: &SendToClient,
    ) -> Result<FromStream, FromStream> {
        match request {
            StreamRequest::Exec(request) => {
                let place = self
                    .attach_point(&request.namespace)
                    .map_err(failed_message)?;
                exec::run(&place.ns, request, messages, send).await
            }
            StreamRequest::Capture { targets: of } => {
                let taps = of
                    .into_iter()
                    .map(|request| {
                        let place = self.attach_point(&request.namespace)?;
                        live_capture::LiveCapture::open(&place, request)
                    })
                    .collect::<Result<Vec<_>, Failure>>();
                Ok(live_capture::run(taps.map_err(failed_message)?, messages, send).await)
            }
        }
    }

    fn attach_point(&self, namespace: &str) -> Result<AttachPoint, Failure> {
        self.attach_points
            .borrow()
            .get(namespace)
            .cloned()
            .ok_or_else(|| {
                failure::bug(format!(
                    "cannot attach to {namespace}: no such namespace in a running lab"
                ))
            })
    }

    /// Sends a message to a stream. A message to a closed stream is dropped.
    pub(crate) fn send(&self, id: StreamId, message: ToStream) {
        if let Some(message_sender) = self.message_senders.borrow().get(&id) {
            let _ = message_sender.send(message);
        }
    }

    /// Closes a stream whose client has disconnected.
    pub(crate) fn close(&self, id: StreamId) {
        self.message_senders.borrow_mut().remove(&id);
    }

    /// Ends all streams. When this function returns, their programs have ended.
    pub(crate) async fn end(&self) {
        self.attach_points.borrow_mut().clear();
        let mut tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        self.message_senders.borrow_mut().clear();
        while tasks.join_next().await.is_some() {}
    }
}
