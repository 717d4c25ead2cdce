//! Connection of the front end to one agent.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::{FramedRead, FramedWrite};

use super::audience::Audience;
use super::drops;
use super::error::{KernelError, LostAgent, SILENT};
use super::memory;
use super::own_time;
use super::session::Session;
use svclab_diagnostic::printable::beginning;
use svclab_model::evidence::Surroundings;
use svclab_model::plan::Plan;
use svclab_model::protocol::stream::{FromStream, StreamId};
use svclab_model::protocol::{Event, LabId, Request, VERSION, event_framing, framing, read_event};

/// Maximum time between the end of an agent's stream and the agent's exit. An agent that is
/// killed earlier does not report its exit status.
const MAX_EXIT: Duration = Duration::from_secs(5);

/// Options of a connection to an agent.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    /// Maximum time until the agent is ready.
    pub ready: Duration,
    /// First request. `None` for an agent that starts without a request.
    pub greeting: Option<Request>,
    /// Keepalive requests. `None` for an agent whose end is visible without them.
    pub pulse: Option<Pulse>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pulse {
    pub every: Duration,
    /// Maximum silence of the agent before it is given up.
    pub silence: Duration,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            ready: Duration::from_mins(1),
            greeting: None,
            pulse: None,
        }
    }
}

/// Sender that kills the agent. The first task that kills the agent takes it.
type Kill = Arc<Mutex<Option<oneshot::Sender<()>>>>;

/// Connected agent that holds any number of labs. Dropping the last handle ends the agent and all
/// of its labs.
#[derive(Debug, Clone)]
pub struct Agent {
    pub(super) link: Arc<Link>,
    surroundings: Arc<Surroundings>,
    process: Option<u32>,
    /// Agent as this front end traces the drops of its labs. `None` if this front end does not
    /// trace them.
    pub(super) traced_as: Option<drops::Agent>,
}

#[derive(Debug)]
pub(super) struct Link {
    requests: mpsc::UnboundedSender<Request>,
    shared: Arc<Mutex<Shared>>,
    kill: Kill,
}

/// State that the reading task and the sessions share.
#[derive(Debug, Default)]
struct Shared {
    audience: Audience,
    last_step: Option<String>,
    lost: Option<LostAgent>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Agent {
    /// Connects to an agent. `obituary` completes after the agent has ended, with a description of
    /// the end and the standard error of the agent. `kill` ends the agent.
    pub(super) async fn new(
        events: impl AsyncRead + Unpin + Send + 'static,
        requests: impl AsyncWrite + Unpin + Send + 'static,
        obituary: impl Future<Output = (String, String)> + Send + 'static,
        kill: oneshot::Sender<()>,
        process: Option<u32>,
        manner: Manner,
    ) -> Result<Self, KernelError> {
        let ended = memory::ended_for_want();
        let mut events = FramedRead::new(events, event_framing());
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (ask, asked) = mpsc::unbounded_channel();
        tokio::spawn(write_on(FramedWrite::new(requests, framing()), asked));
        if let Some(greeting) = manner.greeting {
            let _ = ask.send(greeting);
        }
        let first = own_time::within(process, manner.ready, next(&mut events)).await;
        let first = first.map(|first| first.map(|first| first.map(|(event, _)| event)));
        let surroundings = match first {
            Some(Ok(Some(Event::Ready { protocol, .. }))) if protocol != VERSION => {
                return Err(KernelError::Protocol {
                    ours: VERSION,
                    theirs: protocol,
                });
            }
            Some(Ok(Some(Event::Ready { surroundings, .. }))) => surroundings,
            Some(Ok(Some(Event::Unable { failure }))) => return Err(KernelError::Unable(failure)),
            other => {
                let told = match other {
                    None => Some(format!(
                        "it was not ready after {} s",
                        manner.ready.as_secs()
                    )),
                    Some(Err(error)) => Some(format!("it spoke nonsense: {error}")),
                    Some(Ok(Some(_))) => {
                        Some("it began with something else than being ready".to_owned())
                    }
                    Some(Ok(None)) => None,
                };
                let mut obituary = pin!(obituary);
                let mut exit = None;
                if told.is_none() {
                    exit = tokio::time::timeout(MAX_EXIT, &mut obituary).await.ok();
                }
                drop(kill);
                let (how, said) = match exit {
                    Some(exit) => exit,
                    None => obituary.await,
                };
                let starved = told.is_none() && memory::was_short(ended, &how, &said);
                return Err(KernelError::Lost(LostAgent {
                    how: told.unwrap_or(how),
                    step: None,
                    said,
                    starved,
                }));
            }
        };
        let kill: Kill = Arc::new(Mutex::new(Some(kill)));
        if let Some(pulse) = manner.pulse {
            tokio::spawn(feel(ask.downgrade(), pulse.every));
        }
        tokio::spawn(read_on(
            events,
            Arc::clone(&shared),
            async move {
                let (how, said) = obituary.await;
                let starved = memory::was_short(ended, &how, &said);
                (how, said, starved)
            },
            manner.pulse.map(|pulse| (process, pulse.silence)),
            Arc::clone(&kill),
        ));
        let link = Link {
            requests: ask,
            shared,
            kill,
        };
        Ok(Self {
            link: Arc::new(link),
            surroundings: Arc::new(surroundings),
            process,
            traced_as: None,
        })
    }

    /// Connects to an agent that the caller has started. The end of `events` is the end of the
    /// agent.
    ///
    /// # Errors
    ///
    /// When the agent does not start as an agent of this version does.
    pub async fn connect(
        events: impl AsyncRead + Unpin + Send + 'static,
        requests: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, KernelError> {
        let (kill, _) = oneshot::channel();
        let obituary = async { ("it ended".to_owned(), String::new()) };
        Self::new(events, requests, obituary, kill, None, Manner::default()).await
    }

    /// Sets the agent as which this front end traces drops; `None` disables the trace.
    pub(super) fn traced_as(self, traced_as: Option<drops::Agent>) -> Self {
        Self { traced_as, ..self }
    }

    /// Returns the kernel and programs that the agent found.
    #[must_use]
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// Returns the ID of the process on this host that was started for the agent: that of the agent
    /// or that of the guest.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// Whether the agent is known to be lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.shared().lost.is_some()
    }

    /// Builds a plan. The lab runs until the session is dropped.
    ///
    /// # Errors
    ///
    /// When the agent cannot build the plan or was lost.
    pub async fn build(&self, plan: Plan) -> Result<Session, KernelError> {
        self.build_lab(plan, false).await
    }

    /// Builds a plan that will be changed. The programs that load its rules keep running and wait
    /// for more.
    ///
    /// # Errors
    ///
    /// When the agent cannot build the plan or was lost.
    pub async fn build_standing(&self, plan: Plan) -> Result<Session, KernelError> {
        self.build_lab(plan, true).await
    }

    async fn build_lab(&self, plan: Plan, standing: bool) -> Result<Session, KernelError> {
        let (id, said) = self.link.shared().audience.add_lab();
        let mut session = Session::new(self.clone(), id, said, &plan);
        session.build(plan, standing).await?;
        Ok(session)
    }
}

impl Link {
    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. A request to a lost agent is dropped; the task that waits for the answer
    /// receives the loss.
    pub(super) fn ask(&self, request: Request) {
        if let Some(lab) = request.lab().filter(|_| request.is_answered()) {
            self.shared().audience.ask(lab);
        }
        let _ = self.requests.send(request);
    }

    /// Assigns a number to a stream. Returns the receiver of its messages.
    pub(super) fn listen(&self) -> (StreamId, mpsc::Receiver<FromStream>) {
        let mut shared = self.shared();
        let (id, said) = shared.audience.add_stream();
        // A lost agent sends no messages.
        if shared.lost.is_some() {
            shared.audience.remove_stream(id);
        }
        (id, said)
    }

    /// Stops receiving messages of a stream.
    pub(super) fn cease(&self, stream: StreamId) {
        self.shared().audience.remove_stream(stream);
    }

    pub(super) fn forget(&self, lab: LabId) {
        self.shared().audience.remove_lab(lab);
    }

    /// Returns the loss of the agent after it stopped answering. `otherwise` is the description if
    /// none was recorded.
    pub(super) fn lost(&self, otherwise: &str) -> LostAgent {
        let shared = self.shared();
        shared.lost.clone().unwrap_or_else(|| LostAgent {
            how: otherwise.to_owned(),
            step: shared.last_step.clone(),
            said: String::new(),
            starved: false,
        })
    }

    pub(super) fn kill(&self) {
        end(&self.kill);
    }
}

fn end(kill: &Kill) {
    let kill = kill.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(kill) = kill {
        let _ = kill.send(());
    }
}

/// Sends a keepalive request at each interval, until the agent is no longer needed.
async fn feel(ask: mpsc::WeakUnboundedSender<Request>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        match ask.upgrade() {
            Some(ask) if ask.send(Request::Ping).is_ok() => {}
            _ => return,
        }
    }
}

/// Receives the next event. Returns it with its size in bytes.
async fn next(
    events: &mut FramedRead<impl AsyncRead + Unpin, tokio_util::codec::LengthDelimitedCodec>,
) -> std::io::Result<Option<(Event, usize)>> {
    match events.next().await {
        Some(Ok(frame)) => {
            let event = read_event(&frame).map_err(std::io::Error::other)?;
            Ok(Some((event, frame.len())))
        }
        // The other end of a socket ended while it had unread data.
        Some(Err(error)) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
        Some(Err(error)) => Err(error),
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
        // The reading task reports a broken pipe, with the cause.
        if out.send(Bytes::from(text)).await.is_err() {
            return;
        }
    }
}

async fn read_on(
    mut events: FramedRead<impl AsyncRead + Unpin, tokio_util::codec::LengthDelimitedCodec>,
    shared: Arc<Mutex<Shared>>,
    obituary: impl Future<Output = (String, String, bool)>,
    watched: Option<(Option<u32>, Duration)>,
    kill: Kill,
) {
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let nonsense = loop {
        let heard = match watched {
            None => next(&mut events).await,
            Some((process, silence)) => {
                let heard = own_time::within(process, silence, next(&mut events));
                if let Some(heard) = heard.await {
                    heard
                } else {
                    break Some(format!("{} {} s", SILENT[0], silence.as_secs()));
                }
            }
        };
        match heard {
            Ok(Some((event, size))) => {
                let mut shared = lock();
                match &event {
                    Event::Step { lab, step } => {
                        tracing::debug!(lab, "{step}");
                        shared.last_step = Some(beginning(step));
                    }
                    Event::Ready { .. } | Event::Unable { .. } => {
                        break Some("it began anew".to_owned());
                    }
                    _ => {}
                }
                if let Err(wrong) = shared.audience.hand_on(event, size) {
                    break Some(format!("it {wrong}"));
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(format!("it spoke nonsense: {}", beginning(&error))),
        }
    };
    if nonsense.is_some() {
        end(&kill);
    }
    let step = lock().last_step.clone();
    let (how, said, starved) = if let Some(how) = nonsense {
        (how, String::new(), false)
    } else {
        obituary.await
    };
    let lost = LostAgent {
        how,
        step,
        said,
        starved,
    };
    let mut shared = lock();
    shared.lost = Some(lost);
    shared.audience.clear();
}
