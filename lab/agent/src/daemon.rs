//! Programs that are started and let run, such as a kube-proxy: what they say
//! last is kept, and how they ended.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::rc::Rc;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::child::Child;
use super::netns::NetNs;
use super::program;
use svclab_model::protocol::{Failure, Running};

/// How much of what a program says is kept, in bytes: the last of it.
const KEPT: usize = 64 << 10;

/// A running program. Dropping it kills it.
pub struct Daemon {
    /// What waits for its end, and kills it if it is dropped before.
    tasks: JoinSet<()>,
    /// Has it killed, and its end waited for, when it is dropped.
    wanted: oneshot::Sender<()>,
    life: Rc<RefCell<Life>>,
}

#[derive(Default)]
struct Life {
    said: Vec<u8>,
    /// Number of bytes that are no longer kept.
    dropped: usize,
    ended: Option<String>,
}

impl Daemon {
    /// Starts `program` in a namespace; what it calls itself is looked for in `path`.
    ///
    /// # Errors
    ///
    /// When the program is not there or cannot be started.
    pub fn start(
        ns: &NetNs,
        name: &str,
        program: &str,
        arguments: &[&str],
        path: &str,
    ) -> Result<Self, Failure> {
        ns.tenant().runs();
        let child = program::start(ns, name, program, arguments, path)?;
        let life = Rc::<RefCell<Life>>::default();
        let mut tasks = JoinSet::new();
        let (wanted, unwanted) = oneshot::channel();
        tasks.spawn_local(live(child, Rc::clone(&life), unwanted));
        Ok(Self {
            tasks,
            wanted,
            life,
        })
    }

    /// How it is.
    pub fn look(&self) -> Running {
        let life = self.life.borrow();
        Running {
            ended: life.ended.clone(),
            said: String::from_utf8_lossy(&life.said).into_owned(),
        }
    }

    /// Number of bytes that it has printed.
    pub fn printed(&self) -> usize {
        let life = self.life.borrow();
        life.dropped + life.said.len()
    }

    /// What it printed after so many bytes, as far as that is kept.
    pub fn printed_since(&self, printed: usize) -> String {
        let life = self.life.borrow();
        let begin = printed.saturating_sub(life.dropped).min(life.said.len());
        String::from_utf8_lossy(&life.said[begin..]).into_owned()
    }

    /// Kills it. When this returns, it has let go of all that it held, and what it
    /// had started has ended.
    pub async fn end(self) {
        let Self {
            mut tasks, wanted, ..
        } = self;
        drop(wanted);
        while tasks.join_next().await.is_some() {}
    }
}

async fn live(mut child: Child, life: Rc<RefCell<Life>>, unwanted: oneshot::Receiver<()>) {
    drop(child.stdin.take());
    let mut group = Group::of(&child);
    let (said, complained) = (child.stdout.take(), child.stderr.take());
    let end = async {
        tokio::select! {
            status = child.wait() => status,
            _ = unwanted => {
                group.kill();
                child.wait().await
            }
        }
    };
    // A program that it started may speak on when it has ended itself.
    let ((), (), status) = tokio::join!(listen(said, &life), listen(complained, &life), end);
    group.release();
    let how = status.map_or_else(|error| format!("it was lost: {error}"), how);
    life.borrow_mut().ended = Some(how);
}

/// A program and all that it started, which is killed when this is dropped.
pub struct Group(Option<Pid>);

impl Group {
    /// The group that a program leads.
    pub fn of(leader: &Child) -> Self {
        Self(leader.id())
    }

    fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Sends a signal to all of it.
    pub fn signal(&self, signal: Signal) {
        if let Some(leader) = self.0 {
            // Those that have ended need not be.
            let _ = killpg(leader, signal);
        }
    }

    /// Lets it be: its leader has ended, and its number may become another's.
    pub fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn listen(stream: Option<impl AsyncRead + Unpin>, life: &RefCell<Life>) {
    let Some(mut stream) = stream else {
        return;
    };
    let mut chunk = vec![0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        let life = &mut *life.borrow_mut();
        life.said.extend_from_slice(&chunk[..length]);
        let beyond = life.said.len().saturating_sub(KEPT);
        life.said.drain(..beyond);
        life.dropped += beyond;
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}
