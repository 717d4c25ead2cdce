//! The front end's side of the conversation with one agent.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::{FramedRead, FramedWrite};

use super::error::{KernelError, LostAgent};
use super::session::Session;
use crate::evidence::Surroundings;
use crate::plan::Plan;
use crate::protocol::{Event, LabId, Request, VERSION, framing};

/// How long an agent may take to make itself a place.
const READY: Duration = Duration::from_mins(1);

/// A connected agent that holds any number of labs. Dropping the last handle to
/// it ends it, and everything in it with it.
#[derive(Debug, Clone)]
pub struct Agent {
    pub(super) link: Arc<Link>,
    surroundings: Arc<Surroundings>,
    process: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Link {
    requests: mpsc::UnboundedSender<Request>,
    shared: Arc<Mutex<Shared>>,
    next: AtomicU32,
    kill: Mutex<Option<oneshot::Sender<()>>>,
}

/// What the reading task and the sessions share.
#[derive(Debug, Default)]
struct Shared {
    labs: HashMap<LabId, mpsc::UnboundedSender<Event>>,
    last_step: Option<String>,
    lost: Option<LostAgent>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Agent {
    /// Takes up the conversation. `obituary` ends when the agent has, and says
    /// how, and what it wrote to standard error; `kill` ends it.
    pub(super) async fn new(
        events: impl AsyncRead + Unpin + Send + 'static,
        requests: impl AsyncWrite + Unpin + Send + 'static,
        obituary: impl Future<Output = (String, String)> + Send + 'static,
        kill: oneshot::Sender<()>,
        process: Option<u32>,
    ) -> Result<Self, KernelError> {
        let mut events = FramedRead::new(events, framing());
        let shared = Arc::new(Mutex::new(Shared::default()));
        let first = tokio::time::timeout(READY, next(&mut events)).await;
        let surroundings = match first {
            Ok(Ok(Some(Event::Ready { protocol, .. }))) if protocol != VERSION => {
                return Err(KernelError::Protocol {
                    ours: VERSION,
                    theirs: protocol,
                });
            }
            Ok(Ok(Some(Event::Ready { surroundings, .. }))) => surroundings,
            Ok(Ok(Some(Event::Unable { failure }))) => return Err(KernelError::Unable(failure)),
            other => {
                let how = match other {
                    Err(_) => Some(format!("it was not ready after {} s", READY.as_secs())),
                    Ok(Err(error)) => Some(format!("it spoke nonsense: {error}")),
                    Ok(Ok(Some(_))) => {
                        Some("it began with something else than being ready".to_owned())
                    }
                    Ok(Ok(None)) => None,
                };
                drop(kill);
                let (ended, said) = obituary.await;
                return Err(KernelError::Lost(LostAgent {
                    how: how.unwrap_or(ended),
                    step: None,
                    said,
                }));
            }
        };
        let (ask, asked) = mpsc::unbounded_channel();
        tokio::spawn(write_on(FramedWrite::new(requests, framing()), asked));
        tokio::spawn(read_on(events, Arc::clone(&shared), obituary));
        let link = Link {
            requests: ask,
            shared,
            next: AtomicU32::new(0),
            kill: Mutex::new(Some(kill)),
        };
        Ok(Self {
            link: Arc::new(link),
            surroundings: Arc::new(surroundings),
            process,
        })
    }

    /// The kernel and programs it found.
    #[must_use]
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// The process that was started for it, where it is one on this host.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// Whether it is known to be gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.shared().lost.is_some()
    }

    /// Builds a plan and lets it stand until the session is dropped.
    ///
    /// # Errors
    ///
    /// What the agent could not do, or how it was lost.
    pub async fn build(&self, plan: Plan) -> Result<Session, KernelError> {
        let id = self.link.next.fetch_add(1, Ordering::Relaxed);
        let (say, said) = mpsc::unbounded_channel();
        self.link.shared().labs.insert(id, say);
        let mut session = Session::new(self.clone(), id, said, &plan);
        session.build(plan).await?;
        Ok(session)
    }
}

impl Link {
    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. One to a lost agent is forgotten: who waits for its
    /// answer learns of the loss.
    pub(super) fn ask(&self, request: Request) {
        let _ = self.requests.send(request);
    }

    pub(super) fn forget(&self, lab: LabId) {
        self.shared().labs.remove(&lab);
    }

    /// How the agent was lost, once nobody answers any more.
    pub(super) fn lost(&self, otherwise: &str) -> LostAgent {
        let shared = self.shared();
        shared.lost.clone().unwrap_or_else(|| LostAgent {
            how: otherwise.to_owned(),
            step: shared.last_step.clone(),
            said: String::new(),
        })
    }

    pub(super) fn kill(&self) {
        let kill = self
            .kill
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(kill) = kill {
            let _ = kill.send(());
        }
    }
}

async fn next(
    events: &mut FramedRead<impl AsyncRead + Unpin, tokio_util::codec::LengthDelimitedCodec>,
) -> std::io::Result<Option<Event>> {
    match events.next().await {
        Some(frame) => Ok(Some(serde_json::from_slice(&frame?)?)),
        None => Ok(None),
    }
}

async fn write_on(
    mut out: FramedWrite<impl AsyncWrite + Unpin, tokio_util::codec::LengthDelimitedCodec>,
    mut asked: mpsc::UnboundedReceiver<Request>,
) {
    while let Some(request) = asked.recv().await {
        let Ok(text) = serde_json::to_vec(&request) else {
            return;
        };
        // A broken pipe shows on the reading side, with the reason.
        if out.send(Bytes::from(text)).await.is_err() {
            return;
        }
    }
}

async fn read_on(
    mut events: FramedRead<impl AsyncRead + Unpin, tokio_util::codec::LengthDelimitedCodec>,
    shared: Arc<Mutex<Shared>>,
    obituary: impl Future<Output = (String, String)>,
) {
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let nonsense = loop {
        match next(&mut events).await {
            Ok(Some(event)) => {
                let mut shared = lock();
                match &event {
                    Event::Step { lab, step } => {
                        tracing::debug!(lab, "{step}");
                        shared.last_step = Some(step.clone());
                    }
                    Event::Built { lab, .. }
                    | Event::Probed { lab, .. }
                    | Event::Gone { lab }
                    | Event::Failed { lab, .. } => {
                        // A session that is gone waits for nothing.
                        if let Some(session) = shared.labs.get(lab) {
                            let _ = session.send(event);
                        }
                    }
                    Event::Ready { .. } | Event::Unable { .. } => {
                        break Some("it began anew".to_owned());
                    }
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(format!("it spoke nonsense: {error}")),
        }
    };
    let step = lock().last_step.clone();
    let (how, said) = if let Some(how) = nonsense {
        (how, String::new())
    } else {
        obituary.await
    };
    let lost = LostAgent { how, step, said };
    let mut shared = lock();
    shared.lost = Some(lost);
    shared.labs.clear();
}
