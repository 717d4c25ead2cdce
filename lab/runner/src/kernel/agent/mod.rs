//! Connection of the front end to one agent.

mod audience;
pub(crate) mod blocking;
pub(crate) mod cpu_wait;
pub(super) mod drops;
mod evidence_check;
mod lab_drops;
pub mod program;
pub(super) mod session;
pub(super) mod stream;

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

use super::error::{KernelError, LostAgent, SILENCE_PREFIXES};
use super::out_of_memory;
use audience::Dispatcher;
use session::{BuildOptions, Session};
use svclab_diagnostic::printable::format_beginning;
use svclab_model::evidence::Environment;
use svclab_model::plan::Plan;
use svclab_model::protocol::stream::{FromStream, StreamId};
use svclab_model::protocol::{
    Event, LabId, Request, VERSION, event_framing, read_event, request_framing,
};

/// Maximum time between the end of an agent's stream and the agent's exit. An agent that is
/// killed earlier does not report its exit status.
const MAX_EXIT: Duration = Duration::from_secs(5);

/// Options of a connection to an agent.
#[derive(Debug, Clone)]
pub(super) struct ConnectOptions {
    /// Maximum time until the agent is ready.
    pub max_start: Duration,
    /// First request. `None` for an agent that starts without a request.
    pub first_request: Option<Request>,
    /// Keepalive requests. `None` for an agent whose end is visible without them.
    pub keepalive: Option<Keepalive>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Keepalive {
    pub interval: Duration,
    /// Maximum silence of the agent before it is given up.
    pub max_silence: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            max_start: Duration::from_mins(1),
            first_request: None,
            keepalive: None,
        }
    }
}

/// Sender that kills the agent. The first task that kills the agent takes it.
type KillSwitch = Arc<Mutex<Option<oneshot::Sender<()>>>>;

/// Connected agent that holds any number of labs. Dropping the last handle ends the agent and all
/// of its labs.
#[derive(Debug, Clone)]
pub struct Agent {
    pub(super) link: Arc<AgentLink>,
    environment: Arc<Environment>,
    process: Option<u32>,
    /// Agent as this front end traces the drops of its labs. `None` if this front end does not
    /// trace them.
    pub(super) traced_as: Option<drops::HostAgent>,
}

#[derive(Debug)]
pub(super) struct AgentLink {
    requests: mpsc::UnboundedSender<Request>,
    shared: Arc<Mutex<Shared>>,
    kill: KillSwitch,
}

/// State that the reading task and the sessions share.
#[derive(Debug, Default)]
struct Shared {
    audience: Dispatcher,
    last_step: Option<String>,
    lost: Option<LostAgent>,
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Agent {
    /// Connects to an agent. `exit_info` completes after the agent has ended, with a description of
    /// the end and the standard error of the agent. `kill` ends the agent.
    pub(super) async fn new(
        events: impl AsyncRead + Unpin + Send + 'static,
        requests: impl AsyncWrite + Unpin + Send + 'static,
        exit_info: impl Future<Output = (String, String)> + Send + 'static,
        kill: oneshot::Sender<()>,
        process: Option<u32>,
        options: ConnectOptions,
    ) -> Result<Self, KernelError> {
        let oom_kills_before = out_of_memory::oom_kill_count();
        let mut events = FramedRead::new(events, event_framing());
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (request_sender, request_receiver) = mpsc::unbounded_channel();
        tokio::spawn(write_requests(
            FramedWrite::new(requests, request_framing()),
            request_receiver,
        ));
        if let Some(greeting) = options.first_request {
            let _ = request_sender.send(greeting);
        }
        let first =
            cpu_wait::within_cpu_time(process, options.max_start, next_event(&mut events)).await;
        let first = first.map(|first| first.map(|first| first.map(|(event, _)| event)));
        let environment = match first {
            Some(Ok(Some(Event::Ready { protocol, .. }))) if protocol != VERSION => {
                return Err(KernelError::ProtocolVersion {
                    own_version: VERSION,
                    agent_version: protocol,
                });
            }
            Some(Ok(Some(Event::Ready {
                environment: surroundings,
                ..
            }))) => surroundings,
            Some(Ok(Some(Event::StartFailed { failure }))) => {
                return Err(KernelError::AgentSetup(failure));
            }
            other => {
                let cause = match other {
                    None => Some(format!("not ready after {} s", options.max_start.as_secs())),
                    Some(Err(error)) => Some(format!("invalid message: {error}")),
                    Some(Ok(Some(_))) => {
                        Some("its first message does not report that it is ready".to_owned())
                    }
                    Some(Ok(None)) => None,
                };
                let mut exit_info = pin!(exit_info);
                let mut exit = None;
                if cause.is_none() {
                    exit = tokio::time::timeout(MAX_EXIT, &mut exit_info).await.ok();
                }
                drop(kill);
                let (exit_cause, stderr) = match exit {
                    Some(exit) => exit,
                    None => exit_info.await,
                };
                let is_out_of_memory = cause.is_none()
                    && out_of_memory::is_out_of_memory(oom_kills_before, &exit_cause, &stderr);
                return Err(KernelError::Lost(LostAgent {
                    cause: cause.unwrap_or(exit_cause),
                    last_step: None,
                    stderr,
                    is_out_of_memory,
                }));
            }
        };
        let kill: KillSwitch = Arc::new(Mutex::new(Some(kill)));
        if let Some(keepalive) = options.keepalive {
            tokio::spawn(send_keepalives(
                request_sender.downgrade(),
                keepalive.interval,
            ));
        }
        tokio::spawn(read_events(
            events,
            Arc::clone(&shared),
            async move {
                let (cause, stderr) = exit_info.await;
                let is_out_of_memory =
                    out_of_memory::is_out_of_memory(oom_kills_before, &cause, &stderr);
                (cause, stderr, is_out_of_memory)
            },
            options
                .keepalive
                .map(|keepalive| (process, keepalive.max_silence)),
            Arc::clone(&kill),
        ));
        let link = AgentLink {
            requests: request_sender,
            shared,
            kill,
        };
        Ok(Self {
            link: Arc::new(link),
            environment: Arc::new(environment),
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
        let exit_info = async { ("connection closed".to_owned(), String::new()) };
        Self::new(
            events,
            requests,
            exit_info,
            kill,
            None,
            ConnectOptions::default(),
        )
        .await
    }

    /// Sets the agent as which this front end traces drops; `None` disables the trace.
    pub(super) fn with_drop_trace(self, traced_as: Option<drops::HostAgent>) -> Self {
        Self { traced_as, ..self }
    }

    /// Returns the kernel and programs that the agent found.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.environment
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
        self.build_with(plan, BuildOptions::default()).await
    }

    /// Builds a plan that will be changed. The programs that load its rules keep running and wait
    /// for more.
    ///
    /// # Errors
    ///
    /// When the agent cannot build the plan or was lost.
    pub async fn build_changeable(&self, plan: Plan) -> Result<Session, KernelError> {
        let options = BuildOptions {
            accepts_changes: true,
            ..BuildOptions::default()
        };
        self.build_with(plan, options).await
    }

    /// Builds a plan with options. The lab runs until the session is dropped.
    ///
    /// # Errors
    ///
    /// When the agent cannot build the plan or was lost.
    pub async fn build_with(
        &self,
        plan: Plan,
        options: BuildOptions,
    ) -> Result<Session, KernelError> {
        let (id, receiver) = self.link.shared().audience.add_lab();
        let mut session = Session::new(self.clone(), id, receiver, &plan);
        session.build(plan, options).await?;
        Ok(session)
    }
}

impl AgentLink {
    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. A request to a lost agent is dropped; the task that waits for the answer
    /// receives the loss.
    pub(super) fn send(&self, request: Request) {
        if let Some(lab) = request.lab().filter(|_| request.is_answered()) {
            self.shared().audience.expect_answer(lab);
        }
        let _ = self.requests.send(request);
    }

    /// Assigns a number to a stream. Returns the receiver of its messages.
    pub(super) fn add_stream(&self) -> (StreamId, mpsc::Receiver<FromStream>) {
        let mut shared = self.shared();
        let (id, receiver) = shared.audience.add_stream();
        // A lost agent sends no messages.
        if shared.lost.is_some() {
            shared.audience.remove_stream(id);
        }
        (id, receiver)
    }

    /// Stops receiving messages of a stream.
    pub(super) fn remove_stream(&self, stream: StreamId) {
        self.shared().audience.remove_stream(stream);
    }

    pub(super) fn remove_lab(&self, lab: LabId) {
        self.shared().audience.remove_lab(lab);
    }

    /// Returns the loss of the agent after it stopped answering. `default_cause` is the
    /// description if none was recorded.
    pub(super) fn loss(&self, default_cause: &str) -> LostAgent {
        let shared = self.shared();
        shared.lost.clone().unwrap_or_else(|| LostAgent {
            cause: default_cause.to_owned(),
            last_step: shared.last_step.clone(),
            stderr: String::new(),
            is_out_of_memory: false,
        })
    }

    pub(super) fn kill(&self) {
        kill_agent(&self.kill);
    }
}

fn kill_agent(kill: &KillSwitch) {
    let kill = kill.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(kill) = kill {
        let _ = kill.send(());
    }
}

/// Sends a keepalive request at each interval, until the agent is no longer needed.
async fn send_keepalives(requests: mpsc::WeakUnboundedSender<Request>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        match requests.upgrade() {
            Some(requests) if requests.send(Request::Ping).is_ok() => {}
            _ => return,
        }
    }
}

/// Receives the next event. Returns it with its size in bytes.
async fn next_event(
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

async fn write_requests(
    mut out: FramedWrite<impl AsyncWrite + Unpin, tokio_util::codec::LengthDelimitedCodec>,
    mut requests: mpsc::UnboundedReceiver<Request>,
) {
    while let Some(request) = requests.recv().await {
        let Ok(text) = serde_json::to_vec(&request) else {
            return;
        };
        // The reading task reports a broken pipe, with the cause.
        if out.send(Bytes::from(text)).await.is_err() {
            return;
        }
    }
}

async fn read_events(
    mut events: FramedRead<impl AsyncRead + Unpin, tokio_util::codec::LengthDelimitedCodec>,
    shared: Arc<Mutex<Shared>>,
    exit_info: impl Future<Output = (String, String, bool)>,
    silence_limit: Option<(Option<u32>, Duration)>,
    kill: KillSwitch,
) {
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let violation = loop {
        let event = match silence_limit {
            None => next_event(&mut events).await,
            Some((process, silence)) => {
                let received = cpu_wait::within_cpu_time(process, silence, next_event(&mut events));
                if let Some(event) = received.await {
                    event
                } else {
                    break Some(format!("{} {} s", SILENCE_PREFIXES[0], silence.as_secs()));
                }
            }
        };
        match event {
            Ok(Some((event, size))) => {
                let mut shared = lock();
                match &event {
                    Event::Step { lab, step } => {
                        tracing::debug!(lab, "{step}");
                        shared.last_step = Some(format_beginning(step));
                    }
                    Event::Ready { .. } | Event::StartFailed { .. } => {
                        break Some("unexpected start message".to_owned());
                    }
                    _ => {}
                }
                if let Err(violation) = shared.audience.dispatch(event, size) {
                    break Some(violation);
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(format!("invalid message: {}", format_beginning(&error))),
        }
    };
    if violation.is_some() {
        kill_agent(&kill);
    }
    let step = lock().last_step.clone();
    let (cause, stderr, is_out_of_memory) = if let Some(cause) = violation {
        (cause, String::new(), false)
    } else {
        exit_info.await
    };
    let lost = LostAgent {
        cause,
        last_step: step,
        stderr,
        is_out_of_memory,
    };
    let mut shared = lock();
    shared.lost = Some(lost);
    shared.audience.clear();
}
