//! Communicates with an agent over its pipes, without any code of the front end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use svclab_model::plan::Plan;
use svclab_model::protocol::{Event, LabId, Request};
use svclab_test_support::programs::{agent, copy_programs};
use tempfile::TempDir;

use super::processes::{Processes, wait_until_readable};

/// Maximum time to wait for an answer.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// User that the agent runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The user that runs the tests.
    Same,
    /// A user without privileges; starting the agent needs root.
    Unprivileged,
}

/// Returns the users that the tests can run an agent as.
pub fn test_users() -> Vec<User> {
    if geteuid().is_root() {
        vec![User::Same, User::Unprivileged]
    } else {
        vec![User::Same]
    }
}

pub struct Conversation {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// Directory of the copied program, kept while the program runs.
    _copy: Option<Arc<TempDir>>,
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // If the agent has ended, only its status remains to collect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Conversation {
    pub fn start(user: User) -> Self {
        let copy = (user == User::Unprivileged).then(shared_copy);
        let mut command = match &copy {
            None => Command::new(agent()),
            Some(directory) => {
                let mut command = Command::new("setpriv");
                command
                    .args(["--reuid=1000", "--regid=1000", "--clear-groups"])
                    .arg(directory.path().join("svclab-agent"));
                command
            }
        };
        let mut child = command
            // The current directory of the tests may be closed to other users.
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("an agent");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Self {
            child,
            input,
            output: output.expect("a pipe"),
            _copy: copy,
        }
    }

    /// Starts an agent and waits until it is ready.
    pub fn start_ready(user: User) -> Self {
        let mut conversation = Self::start(user);
        match conversation.recv() {
            Event::Ready { .. } => conversation,
            other => panic!("{other:?}"),
        }
    }

    pub fn send(&mut self, request: &Request) {
        let text = serde_json::to_vec(request).expect("JSON");
        let length = u32::try_from(text.len()).expect("a short request");
        self.send_bytes(&length.to_be_bytes());
        self.send_bytes(&text);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("an open pipe");
        input.write_all(bytes).expect("the agent reads its input");
    }

    /// Receives the next event.
    pub fn recv(&mut self) -> Event {
        let mut length = [0; 4];
        self.read(&mut length);
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        self.read(&mut text);
        serde_json::from_slice(&text).expect("an event")
    }

    fn read(&mut self, buffer: &mut [u8]) {
        let deadline = Instant::now() + MAX_WAIT;
        let mut read = 0;
        while read < buffer.len() {
            assert!(
                wait_until_readable(&self.output, deadline),
                "the agent sends nothing"
            );
            match self.output.read(&mut buffer[read..]).expect("a pipe") {
                0 => panic!("the agent has ended: {}", self.read_stderr()),
                more => read += more,
            }
        }
    }

    /// Receives the next event that is not a progress step.
    pub fn recv_answer(&mut self) -> Event {
        loop {
            match self.recv() {
                Event::Step { .. } => {}
                other => return other,
            }
        }
    }

    pub fn await_step(&mut self, wanted: &str) {
        loop {
            match self.recv() {
                Event::Step { step, .. } if step == wanted => return,
                Event::Step { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Builds a lab. Returns the agent's descriptor of each namespace.
    pub fn build(&mut self, lab: LabId, plan: Plan) -> BTreeMap<String, i32> {
        let plan = Box::new(plan);
        self.send(&Request::Build {
            lab,
            plan,
            accepts_changes: false,
            is_profiled: false,
        });
        match self.recv_answer() {
            Event::Built {
                lab: built,
                descriptors,
                ..
            } if built == lab => descriptors,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the agent and all its descendants.
    pub fn processes(&self) -> Processes {
        Processes::below(self.child.id())
    }

    /// Closes the agent's input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits until the agent ends. Returns its exit code and its standard error.
    pub fn wait_for_end(mut self) -> (Option<i32>, String) {
        let stderr = self.read_stderr();
        let status = self.child.wait().expect("a status");
        (status.code(), stderr)
    }

    fn read_stderr(&mut self) -> String {
        let deadline = Instant::now() + MAX_WAIT;
        let mut errors = self.child.stderr.take().expect("a pipe");
        let mut output = Vec::new();
        let mut chunk = [0; 1024];
        loop {
            assert!(
                wait_until_readable(&errors, deadline),
                "the agent does not end"
            );
            match errors.read(&mut chunk).expect("a pipe") {
                0 => return String::from_utf8_lossy(&output).into_owned(),
                more => output.extend_from_slice(&chunk[..more]),
            }
        }
    }
}

/// Copies the program to a directory that every user can read. The last user of the directory
/// deletes it.
fn shared_copy() -> Arc<TempDir> {
    static COPY: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut copy = COPY.lock().unwrap_or_else(PoisonError::into_inner);
    copy.upgrade().unwrap_or_else(|| {
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open.clone()).expect("permissions");
        let program = copy_programs(directory.path());
        fs::set_permissions(program, open).expect("permissions");
        *copy = Arc::downgrade(&directory);
        directory
    })
}
