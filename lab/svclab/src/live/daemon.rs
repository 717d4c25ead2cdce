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
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::client::{DaemonConnection, send_message};
use super::messages::{ClientRequest, DaemonReply, Greeting, VERSION};
use super::names::{find_namespace, resolve_capture};
use super::probes::{RunningLab, run_jobs};
use svclab_model::protocol::stream::{FromStream, StreamRequest, ToStream};
use svclab_report::ps::{LabInfo, State};
use svclab_runner::kernel::{KernelError, Session};
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{Prepared, catch_panic, to_run_error};

/// Maximum time for sending the last replies after the lab ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct LabDaemon {
    info: Mutex<LabInfo>,
    running_lab: OnceLock<RunningLab>,
    down: watch::Sender<bool>,
    removed: watch::Sender<bool>,
}

/// Reason for the end of a running lab.
#[derive(Debug)]
pub(crate) enum LabEnd {
    /// A client requested it with `svclab down`.
    Down,
    /// The daemon's process was interrupted.
    Interrupted,
    Lost(KernelError),
}

impl LabDaemon {
    pub(crate) fn new(about: LabInfo) -> Arc<Self> {
        Arc::new(Self {
            info: Mutex::new(about),
            running_lab: OnceLock::new(),
            down: watch::channel(false).0,
            removed: watch::channel(false).0,
        })
    }

    /// Returns the description of the lab.
    pub(crate) fn info(&self) -> LabInfo {
        self.info
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Reports to waiting clients that the lab will not be built.
    pub(crate) fn report_build_failed(&self) {
        self.removed.send_replace(true);
    }

    /// Records the kernel of the lab, which is that of a guest or of this host.
    pub(crate) fn set_kernel(&self, kernel: &str, guest: bool) {
        let mut about = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        about.kernel = Some(kernel.to_owned());
        about.guest = guest;
    }

    /// Waits until a client requests the end of the lab.
    pub(crate) async fn wait_for_down(&self) {
        // `wait_for` fails only if the sender is dropped.
        let _ = self.down.subscribe().wait_for(|down| *down).await;
    }

    /// Serves clients until the lab ends. Attached streams continue in the meantime.
    pub(crate) async fn serve(self: Arc<Self>, listener: UnixListener) -> io::Result<()> {
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
            ClientRequest::Probe { request, explain } => {
                let lab = self.running_lab()?;
                let report = lab.run_probe(request, explain).await?;
                Some(DaemonReply::Probed {
                    probed: Box::new(report),
                })
            }
            ClientRequest::Explain {
                probe,
                max_wait,
                form,
            } => {
                let lab = self.running_lab()?;
                let explained = lab.explain_probes(probe.as_deref(), max_wait, form).await?;
                Some(DaemonReply::Explained { explained })
            }
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
            ClientRequest::Capture { targets } => {
                let running = self.running_lab()?;
                let Prepared { plan, cluster, .. } = &running.prepared;
                let (targets, interfaces) = resolve_capture(plan, cluster, &targets)?;
                if line
                    .send(&DaemonReply::CaptureStarted { interfaces })
                    .await
                    .is_ok()
                {
                    self.attach(running, StreamRequest::Capture { targets }, line)
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
pub(crate) async fn serve_lab(
    daemon: &LabDaemon,
    prepared: Prepared,
    mut session: Session,
    interrupted: impl Future<Output = ()>,
) -> LabEnd {
    let (probes, mut jobs) = mpsc::unbounded_channel();
    let running = RunningLab {
        prepared,
        kernel: daemon.info().kernel.unwrap_or_default(),
        opener: session.opener(),
        probes,
    };
    let _ = daemon.running_lab.set(running);
    daemon
        .info
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .state = State::Running;
    let ending = tokio::select! {
        error = run_jobs(&mut session, &mut jobs) => LabEnd::Lost(error),
        () = daemon.wait_for_down() => LabEnd::Down,
        () = interrupted => LabEnd::Interrupted,
    };
    drop(jobs);
    if !matches!(ending, LabEnd::Lost(_)) {
        // The lab ends with this process even if the wait times out.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, session.remove()).await;
    }
    daemon.removed.send_replace(true);
    ending
}
