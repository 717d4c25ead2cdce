//! Runs programs such as kube-proxy in the background. Keeps the end of their output, and their
//! exit status.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::rc::Rc;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::net::netns::NetNs;
use crate::program;
use crate::program::child::Child;
use svclab_model::protocol::{Failure, ProgramStatus};

/// Maximum number of bytes kept of a program's output: the last ones.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Running program. Dropping the value kills the program.
pub(crate) struct BackgroundProgram {
    /// Task that waits for the exit of the program, and kills the program when aborted.
    tasks: JoinSet<()>,
    /// Dropping the sender makes the task kill the program and wait for its exit.
    kill_on_drop: oneshot::Sender<()>,
    state: Rc<RefCell<ProgramState>>,
}

#[derive(Default)]
struct ProgramState {
    output: Vec<u8>,
    /// Number of bytes no longer kept.
    dropped: usize,
    ended: Option<String>,
}

impl BackgroundProgram {
    /// Starts `program` in a namespace. `path` is the search path for the programs that it starts.
    pub(crate) fn start(
        ns: &NetNs,
        name: &str,
        program: &str,
        arguments: &[&str],
        path: &str,
    ) -> Result<Self, Failure> {
        ns.tenant().note_user_program();
        let child = program::start(ns, name, program, arguments, path)?;
        let life = Rc::<RefCell<ProgramState>>::default();
        let mut tasks = JoinSet::new();
        let (wanted, unwanted) = oneshot::channel();
        tasks.spawn_local(supervise(child, Rc::clone(&life), unwanted));
        Ok(Self {
            tasks,
            kill_on_drop: wanted,
            state: life,
        })
    }

    /// Returns the status and output of the program.
    pub(crate) fn status(&self) -> ProgramStatus {
        let life = self.state.borrow();
        ProgramStatus {
            ended: life.ended.clone(),
            output: String::from_utf8_lossy(&life.output).into_owned(),
        }
    }

    /// Returns the number of bytes that the program has printed.
    pub(crate) fn printed_bytes(&self) -> usize {
        let life = self.state.borrow();
        life.dropped + life.output.len()
    }

    /// Returns the kept output after the first `printed` bytes.
    pub(crate) fn printed_since(&self, printed: usize) -> String {
        let life = self.state.borrow();
        let begin = printed.saturating_sub(life.dropped).min(life.output.len());
        String::from_utf8_lossy(&life.output[begin..]).into_owned()
    }

    /// Kills the program. When this function returns, all its resources are released and the
    /// processes of its group have ended.
    pub(crate) async fn kill(self) {
        let Self {
            mut tasks,
            kill_on_drop: wanted,
            ..
        } = self;
        drop(wanted);
        while tasks.join_next().await.is_some() {}
    }
}

async fn supervise(
    mut child: Child,
    life: Rc<RefCell<ProgramState>>,
    unwanted: oneshot::Receiver<()>,
) {
    drop(child.stdin.take());
    let mut group = ProcessGroup::led_by(&child);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let end = async {
        tokio::select! {
            status = child.wait() => status,
            _ = unwanted => {
                group.kill();
                child.wait().await
            }
        }
    };
    // A process that the program started may still print after the program has exited.
    let ((), (), status) =
        tokio::join!(read_output(stdout, &life), read_output(stderr, &life), end);
    group.release();
    let outcome = status.map_or_else(
        |error| format!("exited, but its status cannot be read: {error}"),
        describe_exit,
    );
    life.borrow_mut().ended = Some(outcome);
}

/// Process group of a program. Dropping the value kills the group.
pub(crate) struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// Returns the group that a program leads.
    pub(crate) fn led_by(leader: &Child) -> Self {
        Self(leader.id())
    }

    fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Sends a signal to all processes of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(leader) = self.0 {
            // The processes may have ended already.
            let _ = killpg(leader, signal);
        }
    }

    /// Stops killing the group on drop: the leader has exited, and its process ID may be reused.
    pub(crate) fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn read_output(stream: Option<impl AsyncRead + Unpin>, life: &RefCell<ProgramState>) {
    let Some(mut stream) = stream else {
        return;
    };
    let mut chunk = vec![0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        let life = &mut *life.borrow_mut();
        life.output.extend_from_slice(&chunk[..length]);
        let excess = life.output.len().saturating_sub(MAX_OUTPUT_BYTES);
        life.output.drain(..excess);
        life.dropped += excess;
    }
}

fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "exited".to_owned(),
    }
}
