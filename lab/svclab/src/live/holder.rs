//! Who holds a lab: it answers on a socket, as often as somebody connects, until
//! the lab is to go or is lost.

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

/// How long those are waited for who are told that the lab is gone.
const FAREWELL: Duration = Duration::from_secs(2);

/// The name that a probe of a user's has in the plan.
const PROBE: &str = "probe";

/// What all connections share.
#[derive(Debug)]
pub struct Holder {
    about: Mutex<About>,
    standing: OnceLock<Standing>,
    down: watch::Sender<bool>,
    gone: watch::Sender<bool>,
}

/// A lab that stands.
#[derive(Debug)]
struct Standing {
    prepared: Prepared,
    opener: Opener,
    probes: mpsc::UnboundedSender<Trial>,
}

/// Probes that somebody waits for.
#[derive(Debug)]
struct Trial {
    probes: Vec<Probe>,
    watch: Watch,
    done: oneshot::Sender<Result<Evidence, KernelError>>,
}

/// Why a lab is not held any more.
#[derive(Debug)]
pub enum Ending {
    /// Somebody asked for it, by `svclab down`.
    Down,
    /// Whoever holds it was to end.
    Enough,
    /// It was lost.
    Lost(KernelError),
}

impl Holder {
    /// Of a lab that is going to be built.
    #[must_use]
    pub fn new(about: About) -> Arc<Self> {
        Arc::new(Self {
            about: Mutex::new(about),
            standing: OnceLock::new(),
            down: watch::channel(false).0,
            gone: watch::channel(false).0,
        })
    }

    /// What it holds.
    #[must_use]
    pub fn about(&self) -> About {
        self.about
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until somebody wants the lab to go.
    pub async fn down(&self) {
        // It fails when nobody can want it any more.
        let _ = self.down.subscribe().wait_for(|down| *down).await;
    }

    /// Answers who connects, until the lab is gone; what is attached goes on meanwhile.
    ///
    /// # Errors
    ///
    /// When the socket cannot be waited for.
    pub async fn answer(self: Arc<Self>, listener: UnixListener) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let mut talks = JoinSet::new();
        let mut gone = self.gone.subscribe();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    // Without a descriptor for it there is nobody to tell.
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
            // A panic ends this talk with an answer, and the holder in the end as a bug.
            Ok(ask) => caught(self.act(ask, &mut line))
                .await
                .and_then(|answer| answer),
            Err(error) => Err(error),
        };
        match answer {
            Ok(Some(Told::Gone)) => {
                let _ = say(&mut line.writing, &Told::Gone).await;
                // Who asked for it waits for the end of this process.
                std::mem::forget(line);
            }
            Ok(Some(told)) => drop(say(&mut line.writing, &told).await),
            Ok(None) => {}
            Err(error) => drop(say(&mut line.writing, &Told::Refused { error }).await),
        }
    }

    /// Does what is asked. What is left to say is returned.
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

    /// Passes on what a stream and who is attached to it have to say to each other.
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
            patience: None,
            after: None,
        };
        let probe = probe_of(cluster, &plan.namespaces, PROBE, &wanted, wish.patience);
        let probe = probe.map_err(|(_, error)| RunError {
            trouble: Trouble::Input,
            message: error.message,
            remedy: error.help,
        })?;
        let watch = match explain {
            // Who wants to see packets captures them.
            None => Watch::default(),
            Some(_) => Watch::everything(plan),
        };
        let evidence = self.attempt(standing, vec![probe.clone()], watch).await?;
        let book = Book::new(cluster, plan);
        let (mut observed, _) = observe(&evidence.attempts, PROBE, &book);
        // As of a run that expects nothing of them.
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

    /// Tries what the lab's file says is to be tried.
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
            if own.is_none_or(|own| own.patience.is_none()) {
                probe.patience = patience;
            }
        }
        let watch = Watch::everything(plan);
        let evidence = self.attempt(standing, probes.clone(), watch).await?;
        let kernel = self.about().kernel.unwrap_or_default();
        let prepared = &standing.prepared;
        Ok(explained(prepared, kernel, probes, &evidence, wanted, form))
    }

    /// What is seen of probes in the lab as it stands.
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

/// What is wanted, by who says it in this version.
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

/// Whether who connects is this user or root: whoever else could come by the
/// directory is turned away.
fn is_allowed(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

/// Holds a lab that has been built until it is to go, `enough` ends, or it is lost.
/// When this returns, nothing stands any more, and who asked has been told.
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
        // It ends with this process in any case.
        let _ = tokio::time::timeout(FAREWELL, session.end()).await;
    }
    holder.gone.send_replace(true);
    ending
}

impl Holder {
    /// The lab will not stand: who waits for its end is told.
    pub fn give_up(&self) {
        self.gone.send_replace(true);
    }

    /// The lab stands on that kernel, which is a guest's or this host's.
    pub fn stands_on(&self, kernel: &str, guest: bool) {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        about.kernel = Some(kernel.to_owned());
        about.guest = guest;
    }
}

/// Tries what is asked, one after the other, until the lab is lost.
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
            // What balancers find is not for here.
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
