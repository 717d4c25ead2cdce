//! One agent and the pipes to it, without any of the code that front ends use.

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
use tempfile::TempDir;

use super::copied::copied;
use super::processes::{Processes, readable};

/// How long an answer may take before it counts as none.
const PATIENCE: Duration = Duration::from_mins(1);

/// As whom the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// As whoever runs the tests.
    Same,
    /// As a user without privileges, which takes root to arrange.
    Unprivileged,
}

/// As whom it can be tried here.
pub fn users() -> Vec<User> {
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
    /// The program's file, for as long as it runs.
    _copy: Option<Arc<TempDir>>,
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // It may have ended; then there is only its status to collect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Conversation {
    pub fn start(user: User) -> Self {
        let copy = (user == User::Unprivileged).then(for_everybody);
        let mut command = match &copy {
            None => Command::new(assert_cmd::cargo::cargo_bin!("svclab-agent")),
            Some(directory) => {
                let mut command = Command::new("setpriv");
                command
                    .args(["--reuid=1000", "--regid=1000", "--clear-groups"])
                    .arg(directory.path().join("svclab-agent"));
                command
            }
        };
        let mut child = command
            // The directory of the tests may be closed to others.
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

    /// An agent that has said that it is ready.
    pub fn ready(user: User) -> Self {
        let mut conversation = Self::start(user);
        match conversation.hear() {
            Event::Ready { .. } => conversation,
            other => panic!("{other:?}"),
        }
    }

    pub fn say(&mut self, request: &Request) {
        let text = serde_json::to_vec(request).expect("JSON");
        let length = u32::try_from(text.len()).expect("a short request");
        self.say_bytes(&length.to_be_bytes());
        self.say_bytes(&text);
    }

    pub fn say_bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("an open pipe");
        input.write_all(bytes).expect("an agent that reads");
    }

    /// What it says next.
    pub fn hear(&mut self) -> Event {
        let mut length = [0; 4];
        self.read(&mut length);
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        self.read(&mut text);
        serde_json::from_slice(&text).expect("an event")
    }

    fn read(&mut self, into: &mut [u8]) {
        let deadline = Instant::now() + PATIENCE;
        let mut read = 0;
        while read < into.len() {
            assert!(readable(&self.output, deadline), "the agent says nothing");
            match self.output.read(&mut into[read..]).expect("a pipe") {
                0 => panic!("the agent has ended: {}", self.last_words()),
                more => read += more,
            }
        }
    }

    /// What it says next that is not about what it is doing.
    pub fn answer(&mut self) -> Event {
        loop {
            match self.hear() {
                Event::Step { .. } => {}
                other => return other,
            }
        }
    }

    pub fn await_step(&mut self, wanted: &str) {
        loop {
            match self.hear() {
                Event::Step { step, .. } if step == wanted => return,
                Event::Step { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Has a lab built. Returns by which descriptor each namespace is held.
    pub fn build(&mut self, lab: LabId, plan: Plan) -> BTreeMap<String, i32> {
        let plan = Box::new(plan);
        self.say(&Request::Build {
            lab,
            plan,
            standing: false,
        });
        match self.answer() {
            Event::Built {
                lab: built,
                descriptors,
                ..
            } if built == lab => descriptors,
            other => panic!("{other:?}"),
        }
    }

    /// The agent and every process below it.
    pub fn processes(&self) -> Processes {
        Processes::below(self.child.id())
    }

    /// Closes its input.
    pub fn hang_up(&mut self) {
        self.input = None;
    }

    /// Waits for its end. Returns its exit code and what it wrote to standard
    /// error.
    pub fn end(mut self) -> (Option<i32>, String) {
        let said = self.last_words();
        let status = self.child.wait().expect("a status");
        (status.code(), said)
    }

    fn last_words(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut errors = self.child.stderr.take().expect("a pipe");
        let mut said = Vec::new();
        let mut chunk = [0; 1024];
        loop {
            assert!(readable(&errors, deadline), "the agent does not end");
            match errors.read(&mut chunk).expect("a pipe") {
                0 => return String::from_utf8_lossy(&said).into_owned(),
                more => said.extend_from_slice(&chunk[..more]),
            }
        }
    }
}

/// The program where every user may read it, gone with the last who holds it.
fn for_everybody() -> Arc<TempDir> {
    static COPY: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut copy = COPY.lock().unwrap_or_else(PoisonError::into_inner);
    copy.upgrade().unwrap_or_else(|| {
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open.clone()).expect("permissions");
        let program = copied(directory.path());
        fs::set_permissions(program, open).expect("permissions");
        *copy = Arc::downgrade(&directory);
        directory
    })
}
