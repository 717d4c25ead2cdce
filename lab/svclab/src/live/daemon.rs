//! Daemon of a running lab: serves requests on a socket until the lab is stopped or lost.

use std::future::Future;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::client::{DaemonConnection, send_message};
use super::explanation::render_explanation;
use super::messages::{
    ClientRequest, DaemonReply, Greeting, OutputForm, ProbeReport, ProbeRequest, RenderedJourneys,
    VERSION,
};
use super::names::{find_namespace, resolve_capture};
use svclab_judge::{AddressBook, summarize};
use svclab_model::evidence::Evidence;
use svclab_model::plan::{Delta, EvidenceRequest, Probe};
use svclab_model::protocol::stream::{FromStream, StreamRequest, ToStream};
use svclab_planner::build::plan_probe;
use svclab_report::ps::{LabInfo, State};
use svclab_runner::kernel::{KernelError, Session, StreamOpener};
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{Prepared, catch_panic, to_run_error, unknown_probe_error};
use svclab_scenario::lab;

/// Maximum time for sending the last replies after the lab ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Name of a user's probe in the plan.
const USER_PROBE_NAME: &str = "probe";

/// State that all connections share.
#[derive(Debug)]
pub struct LabDaemon {
    info: Mutex<LabInfo>,
    running_lab: OnceLock<RunningLab>,
    down: watch::Sender<bool>,
    removed: watch::Sender<bool>,
}

/// Lab that is running.
#[derive(Debug)]
struct RunningLab {
    prepared: Prepared,
    opener: StreamOpener,
    probes: mpsc::UnboundedSender<ProbeJob>,
}

/// Probes that a client waits for.
#[derive(Debug)]
struct ProbeJob {
    probes: Vec<Probe>,
    watch: EvidenceRequest,
    reply: oneshot::Sender<Result<Evidence, KernelError>>,
}

/// Reason for the end of a running lab.
#[derive(Debug)]
pub enum LabEnd {
    /// A client requested it with `svclab down`.
    Down,
    /// The daemon's process was interrupted.
    Interrupted,
    /// The lab was lost.
    Lost(KernelError),
}

impl LabDaemon {
    /// Creates the daemon of a lab that is about to be built.
    #[must_use]
    pub fn new(about: LabInfo) -> Arc<Self> {
        Arc::new(Self {
            info: Mutex::new(about),
            running_lab: OnceLock::new(),
            down: watch::channel(false).0,
            removed: watch::channel(false).0,
        })
    }

    /// Returns the description of the lab.
    #[must_use]
    pub fn info(&self) -> LabInfo {
        self.info
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until a client requests the end of the lab.
    pub async fn wait_for_down(&self) {
        // `wait_for` fails only if the sender is dropped.
        let _ = self.down.subscribe().wait_for(|down| *down).await;
    }

    /// Serves clients until the lab ends. Attached streams continue in the meantime.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket cannot be polled.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let mut clients = JoinSet::new();
        let mut gone = self.removed.subscribe();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    // Without a free descriptor, no reply can be sent.
                    if let Ok((stream, _)) = accepted && is_allowed_peer(&stream) {
                        clients.spawn(Arc::clone(&self).serve_client(stream));
                    }
                }
                Some(_) = clients.join_next() => {}
                _ = gone.wait_for(|gone| *gone) => break,
            }
        }
        drop(listener);
        let farewell = async { while clients.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, farewell).await;
        Ok(())
    }

    async fn serve_client(self: Arc<Self>, stream: UnixStream) {
        let mut line = DaemonConnection::new(stream);
        let request = match line.reading.next().await {
            Some(Ok(frame)) => parse_request(&frame),
            _ => return,
        };
        let answer = match request {
            // A panic ends this connection with a reply. In the end, the daemon exits with the code
            // for a bug.
            Ok(ask) => catch_panic(self.handle_request(ask, &mut line))
                .await
                .and_then(|answer| answer),
            Err(error) => Err(error),
        };
        match answer {
            Ok(Some(DaemonReply::Removed)) => {
                let _ = send_message(&mut line.writing, &DaemonReply::Removed).await;
                // The client waits until this process ends and closes the connection.
                std::mem::forget(line);
            }
            Ok(Some(reply)) => drop(send_message(&mut line.writing, &reply).await),
            Ok(None) => {}
            Err(error) => {
                drop(send_message(&mut line.writing, &DaemonReply::Refused { error }).await);
            }
        }
    }

    /// Executes a request, and returns the final reply if it is not sent yet.
    async fn handle_request(
        &self,
        ask: ClientRequest,
        line: &mut DaemonConnection,
    ) -> Result<Option<DaemonReply>, RunError> {
        Ok(match ask {
            ClientRequest::About => Some(DaemonReply::About {
                info: Box::new(self.info()),
            }),
            ClientRequest::Down => {
                self.down.send_replace(true);
                let _ = self.removed.subscribe().wait_for(|gone| *gone).await;
                Some(DaemonReply::Removed)
            }
            ClientRequest::Probe {
                request: wish,
                explain,
            } => {
                let probed = self.run_probe(wish, explain).await?;
                Some(DaemonReply::Probed {
                    probed: Box::new(probed),
                })
            }
            ClientRequest::Explain {
                probe,
                max_wait: patience,
                form,
            } => Some(DaemonReply::Explained {
                explained: self
                    .explain_probes(probe.as_deref(), patience, form)
                    .await?,
            }),
            ClientRequest::Exec { mut exec } => {
                let running = self.running_lab()?;
                let Prepared { plan, cluster, .. } = &running.prepared;
                let target = find_namespace(plan, cluster, &exec.namespace)?;
                exec.namespace.clone_from(&target.name);
                tracing::info!("{} in {}", exec.program, exec.namespace);
                self.attach(running, StreamRequest::Exec(*exec), line)
                    .await?;
                None
            }
            ClientRequest::Capture { targets: of } => {
                let running = self.running_lab()?;
                let Prepared { plan, cluster, .. } = &running.prepared;
                let (of, interfaces) = resolve_capture(plan, cluster, &of)?;
                if line
                    .send(&DaemonReply::CaptureStarted { interfaces })
                    .await
                    .is_ok()
                {
                    self.attach(running, StreamRequest::Capture { targets: of }, line)
                        .await?;
                }
                None
            }
        })
    }

    fn running_lab(&self) -> Result<&RunningLab, RunError> {
        self.running_lab.get().ok_or_else(|| RunError {
            kind: ErrorKind::Input,
            message: format!("{} is still being built", self.info().case),
            remedy: Some("try again when `svclab ps` shows its kernel".to_owned()),
        })
    }

    /// Forwards messages between a stream of the lab and its client.
    async fn attach(
        &self,
        running: &RunningLab,
        opening: StreamRequest,
        line: &mut DaemonConnection,
    ) -> Result<(), RunError> {
        let mut flow = running.opener.open(opening);
        loop {
            tokio::select! {
                heard = flow.recv() => {
                    let message = heard.map_err(|error| to_run_error(&error))?;
                    let is_last =
                        matches!(message, FromStream::Ended { .. } | FromStream::Failed { .. });
                    let result = send_message(&mut line.writing, &DaemonReply::StreamMessage { message }).await;
                    if is_last || result.is_err() {
                        return Ok(());
                    }
                }
                frame = line.reading.next() => {
                    let Some(Ok(frame)) = frame else {
                        return Ok(());
                    };
                    match serde_json::from_slice::<ToStream>(&frame) {
                        Ok(word) => flow.send(word),
                        Err(_) => return Ok(()),
                    }
                }
            }
        }
    }

    async fn run_probe(
        &self,
        wish: ProbeRequest,
        explain: Option<OutputForm>,
    ) -> Result<ProbeReport, RunError> {
        let running = self.running_lab()?;
        let Prepared { plan, cluster, .. } = &running.prepared;
        let spec = lab::Probe {
            across: None,
            from: wish.from,
            to: wish.to,
            protocol: wish.protocol,
            connections: wish.connections,
            bind: None,
            max_wait: None,
            after: None,
        };
        let probe = plan_probe(
            cluster,
            &plan.namespaces,
            USER_PROBE_NAME,
            &spec,
            wish.max_wait,
        );
        let probe = probe.map_err(|(_, error)| RunError {
            kind: ErrorKind::Input,
            message: error.message,
            remedy: error.help,
        })?;
        let watch = match explain {
            // Users who need packets use `svclab capture`.
            None => EvidenceRequest::default(),
            Some(_) => EvidenceRequest::everything(plan),
        };
        let evidence = self.run_probes(running, vec![probe.clone()], watch).await?;
        let book = AddressBook::new(cluster, plan);
        let (mut observed, _) = summarize(&evidence.attempts, USER_PROBE_NAME, &book);
        // Like a run without expectations for source ports.
        observed.source_ports.clear();
        Ok(ProbeReport {
            from: probe.namespace.clone(),
            target: probe.target,
            observed,
            explained: explain.map(|form| {
                let kernel = self.info().kernel.unwrap_or_default();
                let probes = vec![probe];
                render_explanation(&running.prepared, kernel, probes, &evidence, None, form)
            }),
            attempts: evidence.attempts,
        })
    }

    /// Runs the probes of the lab's file.
    async fn explain_probes(
        &self,
        probe_name: Option<&str>,
        patience: Duration,
        form: OutputForm,
    ) -> Result<RenderedJourneys, RunError> {
        let running = self.running_lab()?;
        let Prepared { plan, case, .. } = &running.prepared;
        let mut probes = plan.probes.clone();
        if let Some(wanted) = probe_name
            && !probes.iter().any(|probe| probe.name == wanted)
        {
            return Err(unknown_probe_error(wanted, &probes));
        }
        for probe in &mut probes {
            let spec = case.spec.probes.get(&probe.name);
            if spec.is_none_or(|own| own.max_wait.is_none()) {
                probe.max_wait = patience;
            }
        }
        let watch = EvidenceRequest::everything(plan);
        let evidence = self.run_probes(running, probes.clone(), watch).await?;
        let kernel = self.info().kernel.unwrap_or_default();
        let prepared = &running.prepared;
        Ok(render_explanation(
            prepared, kernel, probes, &evidence, probe_name, form,
        ))
    }

    /// Runs probes in the lab's current state and returns the evidence.
    async fn run_probes(
        &self,
        running: &RunningLab,
        probes: Vec<Probe>,
        watch: EvidenceRequest,
    ) -> Result<Evidence, RunError> {
        let (done, outcome) = oneshot::channel();
        let trial = ProbeJob {
            probes,
            watch,
            reply: done,
        };
        let _ = running.probes.send(trial);
        match outcome.await {
            Ok(evidence) => evidence.map_err(|error| to_run_error(&error)),
            Err(_) => Err(RunError {
                kind: ErrorKind::Lost,
                message: "the lab was stopped before the probe ended".to_owned(),
                remedy: None,
            }),
        }
    }
}

/// Parses a request, and refuses clients of another version.
fn parse_request(frame: &[u8]) -> Result<ClientRequest, RunError> {
    let bug = |message: String| RunError {
        kind: ErrorKind::Bug,
        message,
        remedy: None,
    };
    let greeting: Greeting = serde_json::from_slice(frame)
        .map_err(|error| bug(format!("invalid message to the lab daemon: {error}")))?;
    if greeting.version != VERSION {
        return Err(RunError {
            kind: ErrorKind::Input,
            message: format!(
                "the lab daemon is from another svclab, {}, with protocol version {VERSION} instead \
                 of {}",
                env!("CARGO_PKG_VERSION"),
                greeting.version
            ),
            remedy: Some(
                "end the daemon, whose process ID `svclab ps` shows, and start the lab again"
                    .to_owned(),
            ),
        });
    }
    serde_json::from_value(greeting.request)
        .map_err(|error| bug(format!("unknown request to the lab daemon: {error}")))
}

/// Whether the client is this user or root. Other users are refused even if they can access the
/// directory.
fn is_allowed_peer(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

/// Keeps a built lab running until it is stopped, `enough` completes, or the lab is lost. When this
/// function returns, the lab is removed and all clients have their replies.
pub async fn serve_lab(
    holder: &LabDaemon,
    prepared: Prepared,
    mut session: Session,
    interrupted: impl Future<Output = ()>,
) -> LabEnd {
    let (probes, mut jobs) = mpsc::unbounded_channel();
    let running = RunningLab {
        prepared,
        opener: session.opener(),
        probes,
    };
    let _ = holder.running_lab.set(running);
    holder
        .info
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .state = State::Running;
    let ending = tokio::select! {
        error = run_jobs(&mut session, &mut jobs) => LabEnd::Lost(error),
        () = holder.wait_for_down() => LabEnd::Down,
        () = interrupted => LabEnd::Interrupted,
    };
    drop(jobs);
    if !matches!(ending, LabEnd::Lost(_)) {
        // The lab ends with this process even if the wait times out.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, session.remove()).await;
    }
    holder.removed.send_replace(true);
    ending
}

impl LabDaemon {
    /// Reports to waiting clients that the lab will not be built.
    pub fn report_build_failed(&self) {
        self.removed.send_replace(true);
    }

    /// Records the kernel of the lab, which is that of a guest or of this host.
    pub fn set_kernel(&self, kernel: &str, guest: bool) {
        let mut about = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        about.kernel = Some(kernel.to_owned());
        about.guest = guest;
    }
}

/// Runs the requested probes one after the other, until the lab is lost.
async fn run_jobs(
    session: &mut Session,
    asked: &mut mpsc::UnboundedReceiver<ProbeJob>,
) -> KernelError {
    loop {
        tokio::select! {
            Some(ProbeJob { probes, watch, reply }) = asked.recv() => {
                let tried = run_job(session, probes, watch).await;
                if let Err(error @ KernelError::Lost(_)) = &tried {
                    let error = error.clone();
                    let _ = reply.send(tried);
                    return error;
                }
                let _ = reply.send(tried);
            }
            // Backend health changes need no action here.
            turned = session.next_health_change() => {
                if let Err(error) = turned {
                    return error;
                }
            }
        }
    }
}

async fn run_job(
    session: &mut Session,
    probes: Vec<Probe>,
    watch: EvidenceRequest,
) -> Result<Evidence, KernelError> {
    let delta = Delta {
        probes: Some(probes),
        evidence: Some(watch),
        ..Delta::default()
    };
    session.change(delta).await?;
    session.probe().await
}
