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

use super::call::{Line, say};
use super::explained::explained;
use super::names::{capturable, namespace};
use super::talk::{Ask, Explained, Form, Greeting, Probed, Told, VERSION, Wish};
use svclab_judge::{Book, observe};
use svclab_model::evidence::Evidence;
use svclab_model::plan::{Delta, Probe, Watch};
use svclab_model::protocol::stream::{FromStream, Opening, ToStream};
use svclab_planner::build::probe_of;
use svclab_report::ps::{About, State};
use svclab_runner::kernel::{KernelError, Opener, Session};
use svclab_runner::results::{RunError, Trouble};
use svclab_runner::run::{Prepared, caught, no_such_probe, trouble};
use svclab_scenario::lab;

/// Maximum time for sending the last replies after the lab ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// Name of a user's probe in the plan.
const PROBE: &str = "probe";

/// State that all connections share.
#[derive(Debug)]
pub struct Holder {
    about: Mutex<About>,
    standing: OnceLock<Standing>,
    down: watch::Sender<bool>,
    gone: watch::Sender<bool>,
}

/// Lab that is running.
#[derive(Debug)]
struct Standing {
    prepared: Prepared,
    opener: Opener,
    probes: mpsc::UnboundedSender<Trial>,
}

/// Probes that a client waits for.
#[derive(Debug)]
struct Trial {
    probes: Vec<Probe>,
    watch: Watch,
    done: oneshot::Sender<Result<Evidence, KernelError>>,
}

/// Reason for the end of a running lab.
#[derive(Debug)]
pub enum Ending {
    /// A client requested it with `svclab down`.
    Down,
    /// The daemon's process was interrupted.
    Enough,
    /// The lab was lost.
    Lost(KernelError),
}

impl Holder {
    /// Creates the daemon of a lab that is about to be built.
    #[must_use]
    pub fn new(about: About) -> Arc<Self> {
        Arc::new(Self {
            about: Mutex::new(about),
            standing: OnceLock::new(),
            down: watch::channel(false).0,
            gone: watch::channel(false).0,
        })
    }

    /// Returns the description of the lab.
    #[must_use]
    pub fn about(&self) -> About {
        self.about
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until a client requests the end of the lab.
    pub async fn down(&self) {
        // `wait_for` fails only if the sender is dropped.
        let _ = self.down.subscribe().wait_for(|down| *down).await;
    }

    /// Serves clients until the lab ends. Attached streams continue in the meantime.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket cannot be polled.
    pub async fn answer(self: Arc<Self>, listener: UnixListener) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let mut talks = JoinSet::new();
        let mut gone = self.gone.subscribe();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    // Without a free descriptor, no reply can be sent.
                    if let Ok((stream, _)) = accepted && is_allowed(&stream) {
                        talks.spawn(Arc::clone(&self).talk(stream));
                    }
                }
                Some(_) = talks.join_next() => {}
                _ = gone.wait_for(|gone| *gone) => break,
            }
        }
        drop(listener);
        let farewell = async { while talks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
        Ok(())
    }

    async fn talk(self: Arc<Self>, stream: UnixStream) {
        let mut line = Line::new(stream);
        let asked = match line.reading.next().await {
            Some(Ok(frame)) => asked(&frame),
            _ => return,
        };
        let answer = match asked {
            // A panic ends this connection with a reply. In the end, the daemon exits with the code
            // for a bug.
            Ok(ask) => caught(self.act(ask, &mut line))
                .await
                .and_then(|answer| answer),
            Err(error) => Err(error),
        };
        match answer {
            Ok(Some(Told::Gone)) => {
                let _ = say(&mut line.writing, &Told::Gone).await;
                // The client waits until this process ends and closes the connection.
                std::mem::forget(line);
            }
            Ok(Some(told)) => drop(say(&mut line.writing, &told).await),
            Ok(None) => {}
            Err(error) => drop(say(&mut line.writing, &Told::Refused { error }).await),
        }
    }

    /// Executes a request, and returns the final reply if it is not sent yet.
    async fn act(&self, ask: Ask, line: &mut Line) -> Result<Option<Told>, RunError> {
        Ok(match ask {
            Ask::About => Some(Told::About {
                about: Box::new(self.about()),
            }),
            Ask::Down => {
                self.down.send_replace(true);
                let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
                Some(Told::Gone)
            }
            Ask::Probe { wish, explain } => {
                let probed = self.probe(wish, explain).await?;
                Some(Told::Probed {
                    probed: Box::new(probed),
                })
            }
            Ask::Explain {
                probe,
                patience,
                form,
            } => Some(Told::Explained {
                explained: self.explain(probe.as_deref(), patience, form).await?,
            }),
            Ask::Exec { mut exec } => {
                let standing = self.standing()?;
                let Prepared { plan, cluster, .. } = &standing.prepared;
                let found = namespace(plan, cluster, &exec.namespace)?;
                exec.namespace.clone_from(&found.name);
                tracing::info!("{} in {}", exec.program, exec.namespace);
                self.attach(standing, Opening::Exec(*exec), line).await?;
                None
            }
            Ask::Capture { of } => {
                let standing = self.standing()?;
                let Prepared { plan, cluster, .. } = &standing.prepared;
                let (of, interfaces) = capturable(plan, cluster, &of)?;
                if line.say(&Told::Capturing { interfaces }).await.is_ok() {
                    self.attach(standing, Opening::Capture { of }, line).await?;
                }
                None
            }
        })
    }

    fn standing(&self) -> Result<&Standing, RunError> {
        self.standing.get().ok_or_else(|| RunError {
            trouble: Trouble::Input,
            message: format!("{} is still being built", self.about().case),
            remedy: Some("try again when `svclab ps` says that it stands".to_owned()),
        })
    }

    /// Forwards messages between a stream of the lab and its client.
    async fn attach(
        &self,
        standing: &Standing,
        opening: Opening,
        line: &mut Line,
    ) -> Result<(), RunError> {
        let mut flow = standing.opener.open(opening);
        loop {
            tokio::select! {
                heard = flow.hear() => {
                    let word = heard.map_err(|error| trouble(&error))?;
                    let is_last =
                        matches!(word, FromStream::Ended { .. } | FromStream::Failed { .. });
                    let said = say(&mut line.writing, &Told::Heard { word }).await;
                    if is_last || said.is_err() {
                        return Ok(());
                    }
                }
                told = line.reading.next() => {
                    let Some(Ok(frame)) = told else {
                        return Ok(());
                    };
                    match serde_json::from_slice::<ToStream>(&frame) {
                        Ok(word) => flow.tell(word),
                        Err(_) => return Ok(()),
                    }
                }
            }
        }
    }

    async fn probe(&self, wish: Wish, explain: Option<Form>) -> Result<Probed, RunError> {
        let standing = self.standing()?;
        let Prepared { plan, cluster, .. } = &standing.prepared;
        let wanted = lab::Probe {
            across: None,
            from: wish.from,
            to: wish.to,
            protocol: wish.protocol,
            connections: wish.connections,
            bind: None,
            max_wait: None,
            after: None,
        };
        let probe = probe_of(cluster, &plan.namespaces, PROBE, &wanted, wish.patience);
        let probe = probe.map_err(|(_, error)| RunError {
            trouble: Trouble::Input,
            message: error.message,
            remedy: error.help,
        })?;
        let watch = match explain {
            // Users who need packets use `svclab capture`.
            None => Watch::default(),
            Some(_) => Watch::everything(plan),
        };
        let evidence = self.attempt(standing, vec![probe.clone()], watch).await?;
        let book = Book::new(cluster, plan);
        let (mut observed, _) = observe(&evidence.attempts, PROBE, &book);
        // Like a run without expectations for source ports.
        observed.source_ports.clear();
        Ok(Probed {
            from: probe.from.clone(),
            target: probe.to,
            observed,
            explained: explain.map(|form| {
                let kernel = self.about().kernel.unwrap_or_default();
                let probes = vec![probe];
                explained(&standing.prepared, kernel, probes, &evidence, None, form)
            }),
            attempts: evidence.attempts,
        })
    }

    /// Runs the probes of the lab's file.
    async fn explain(
        &self,
        wanted: Option<&str>,
        patience: Duration,
        form: Form,
    ) -> Result<Explained, RunError> {
        let standing = self.standing()?;
        let Prepared { plan, case, .. } = &standing.prepared;
        let mut probes = plan.probes.clone();
        if let Some(wanted) = wanted
            && !probes.iter().any(|probe| probe.name == wanted)
        {
            return Err(no_such_probe(wanted, &probes));
        }
        for probe in &mut probes {
            let own = case.spec.probes.get(&probe.name);
            if own.is_none_or(|own| own.max_wait.is_none()) {
                probe.patience = patience;
            }
        }
        let watch = Watch::everything(plan);
        let evidence = self.attempt(standing, probes.clone(), watch).await?;
        let kernel = self.about().kernel.unwrap_or_default();
        let prepared = &standing.prepared;
        Ok(explained(prepared, kernel, probes, &evidence, wanted, form))
    }

    /// Runs probes in the lab's current state and returns the evidence.
    async fn attempt(
        &self,
        standing: &Standing,
        probes: Vec<Probe>,
        watch: Watch,
    ) -> Result<Evidence, RunError> {
        let (done, outcome) = oneshot::channel();
        let trial = Trial {
            probes,
            watch,
            done,
        };
        let _ = standing.probes.send(trial);
        match outcome.await {
            Ok(evidence) => evidence.map_err(|error| trouble(&error)),
            Err(_) => Err(RunError {
                trouble: Trouble::Lost,
                message: "the lab was taken away before the probe ended".to_owned(),
                remedy: None,
            }),
        }
    }
}

/// Parses a request, and refuses clients of another version.
fn asked(frame: &[u8]) -> Result<Ask, RunError> {
    let bug = |message: String| RunError {
        trouble: Trouble::Bug,
        message,
        remedy: None,
    };
    let greeting: Greeting = serde_json::from_slice(frame)
        .map_err(|error| bug(format!("the holder was spoken to in another way: {error}")))?;
    if greeting.version != VERSION {
        return Err(RunError {
            trouble: Trouble::Input,
            message: format!(
                "the lab is held by another svclab, {}, which speaks version {VERSION} of the \
                 conversation and not {}",
                env!("CARGO_PKG_VERSION"),
                greeting.version
            ),
            remedy: Some(
                "end its holder, whose process `svclab ps` names, and build it anew".to_owned(),
            ),
        });
    }
    serde_json::from_value(greeting.ask).map_err(|error| {
        bug(format!(
            "the holder was asked for what it does not know: {error}"
        ))
    })
}

/// Whether the client is this user or root. Other users are refused even if they can access the
/// directory.
fn is_allowed(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

/// Keeps a built lab running until it is stopped, `enough` completes, or the lab is lost. When this
/// function returns, the lab is removed and all clients have their replies.
pub async fn hold(
    holder: &Holder,
    prepared: Prepared,
    mut session: Session,
    enough: impl Future<Output = ()>,
) -> Ending {
    let (probes, mut asked) = mpsc::unbounded_channel();
    let standing = Standing {
        prepared,
        opener: session.opener(),
        probes,
    };
    let _ = holder.standing.set(standing);
    holder
        .about
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .state = State::Standing;
    let ending = tokio::select! {
        error = try_all(&mut session, &mut asked) => Ending::Lost(error),
        () = holder.down() => Ending::Down,
        () = enough => Ending::Enough,
    };
    drop(asked);
    if !matches!(ending, Ending::Lost(_)) {
        // The lab ends with this process even if the wait times out.
        let _ = tokio::time::timeout(FAREWELL, session.end()).await;
    }
    holder.gone.send_replace(true);
    ending
}

impl Holder {
    /// Reports to waiting clients that the lab will not be built.
    pub fn give_up(&self) {
        self.gone.send_replace(true);
    }

    /// Records the kernel of the lab, which is that of a guest or of this host.
    pub fn stands_on(&self, kernel: &str, guest: bool) {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        about.kernel = Some(kernel.to_owned());
        about.guest = guest;
    }
}

/// Runs the requested probes one after the other, until the lab is lost.
async fn try_all(session: &mut Session, asked: &mut mpsc::UnboundedReceiver<Trial>) -> KernelError {
    loop {
        tokio::select! {
            Some(Trial { probes, watch, done }) = asked.recv() => {
                let tried = try_one(session, probes, watch).await;
                if let Err(error @ KernelError::Lost(_)) = &tried {
                    let error = error.clone();
                    let _ = done.send(tried);
                    return error;
                }
                let _ = done.send(tried);
            }
            // Backend health changes need no action here.
            turned = session.turned() => {
                if let Err(error) = turned {
                    return error;
                }
            }
        }
    }
}

async fn try_one(
    session: &mut Session,
    probes: Vec<Probe>,
    watch: Watch,
) -> Result<Evidence, KernelError> {
    let delta = Delta {
        probes: Some(probes),
        watch: Some(watch),
        ..Delta::default()
    };
    session.change(delta).await?;
    session.probe().await
}
