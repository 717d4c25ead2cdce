//! Starts a program that tries to escape ([`super::program`]) in each way in which an agent starts
//! programs, beside a program of another lab.

use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use svclab_model::plan::{CommandLimits, Namespace, NodeCommand, Plan};
use svclab_model::protocol::stream::{
    Exec, FromStream, StreamEnd, StreamRequest, Terminal, TerminalSize, ToStream,
};
use svclab_runner::kernel::{Agent, KernelError, Session};

use super::program::{self, CALLER_KEY, ProgramIdentity};

/// Argument that makes this program run the attempts.
pub const RUN_ATTEMPTS: &str = "program-inside";

/// Argument that makes this program wait until it is killed.
pub const WAIT_FOREVER: &str = "program-waits";

/// Namespace of each lab.
const NODE: &str = "node-1";

/// Whether two programs belong to two labs of one agent with privileges of the initial user
/// namespace. Each must have an unprivileged user and group of its own.
pub fn are_isolated_on_host(first: &ProgramIdentity, second: &ProgramIdentity) -> bool {
    let is_due = |whose: &ProgramIdentity| whose.user > 61_184 && whose.group == whose.user;
    is_due(first)
        && is_due(second)
        && first.user != second.user
        && first.pid_namespace == second.pid_namespace
}

/// Gives this process a session keyring with a key, like a login.
///
/// # Panics
///
/// When the kernel has keyrings but refuses to create one.
pub fn join_keyring_with_key() {
    let name = CString::new(CALLER_KEY).expect("text");
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: the calls read texts that outlive them.
    let added = unsafe {
        // KEYCTL_JOIN_SESSION_KEYRING; -3 below is the session keyring.
        libc::syscall(libc::SYS_keyctl, 1, none);
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            name.as_ptr(),
            c"secret".as_ptr(),
            6,
            -3,
        )
    };
    let has_none = Errno::last() == Errno::ENOSYS;
    assert!(added >= 0 || has_none, "{}", Errno::last());
}

fn lab(typed: Vec<NodeCommand>) -> Plan {
    Plan {
        namespaces: vec![Namespace {
            name: NODE.to_owned(),
            ..Namespace::default()
        }],
        commands: typed,
        ..Plan::default()
    }
}

/// Returns a `byHand` command that runs this program.
fn node_command(program: &str, word: &str, time: Duration) -> NodeCommand {
    NodeCommand {
        namespace: NODE.to_owned(),
        command: vec![program.to_owned(), word.to_owned()],
        input: String::new(),
        limits: CommandLimits {
            max_time: time,
            ..CommandLimits::default()
        },
    }
}

/// Returns the attempts that were not refused, one a line. Also checks that the programs of two
/// labs are isolated from each other.
///
/// # Errors
///
/// When the agent is lost or cannot start the program.
pub async fn find_escapes(
    agent: &Agent,
    program: &Path,
    are_isolated: fn(&ProgramIdentity, &ProgramIdentity) -> bool,
) -> Result<Vec<String>, KernelError> {
    let program = program.display().to_string();
    let mut complaints = Vec::new();
    let mut other_session = agent.build(lab(Vec::new())).await?;
    let theirs = run(&mut other_session, &program).await?;
    other_session
        .start(NODE, "other", &program, &[WAIT_FOREVER.to_owned()])
        .await?;

    // As `byHand`, which fails if the program fails.
    let tries = node_command(&program, RUN_ATTEMPTS, CommandLimits::default().max_time);
    let mut session = match agent.build(lab(vec![tries])).await {
        Ok(session) => session,
        Err(KernelError::RequestFailed(failure)) => {
            complaints.push(format!("byHand: {failure}"));
            agent.build(lab(Vec::new())).await?
        }
        Err(lost) => return Err(lost),
    };
    let mut whose = Vec::new();
    for (way, output) in [
        ("loader", run(&mut session, &program).await?),
        ("kube-proxy", start_and_wait(&mut session, &program).await?),
        ("exec", exec(&session, &program, None).await?),
        ("shell", exec(&session, &program, Some(terminal())).await?),
    ] {
        match program::parse_report(&output) {
            Ok(one) => whose.push(one),
            Err(said) => complaints.push(format!("{way}: {said}")),
        }
    }
    whose.dedup();
    match (&whose[..], program::parse_report(&theirs)) {
        ([own], Ok(theirs)) if are_isolated(own, &theirs) => {}
        (own, theirs) => complaints.push(format!("programs are {own:?}, others {theirs:?}")),
    }
    // The agent still answers requests, and sends nothing else.
    session.probe().await?;
    session.remove().await?;
    // Ending the programs of one lab must not end those of another.
    let late = node_command(&program, WAIT_FOREVER, Duration::from_millis(10));
    if agent.build(lab(vec![late])).await.is_ok() {
        complaints.push("an endless command did not fail".to_owned());
    }
    let running = other_session.program_status("other").await?;
    if let Some(ended) = running.ended {
        complaints.push(format!("the program of another lab ended: {ended}"));
    }
    other_session.remove().await?;
    Ok(complaints)
}

async fn run(session: &mut Session, program: &str) -> Result<String, KernelError> {
    let finished = session.run(NODE, program, &[RUN_ATTEMPTS], "").await?;
    Ok(finished.stdout + &finished.stderr)
}

/// Starts the program like a kube-proxy and returns its output.
async fn start_and_wait(session: &mut Session, program: &str) -> Result<String, KernelError> {
    session
        .start(NODE, "own", program, &[RUN_ATTEMPTS.to_owned()])
        .await?;
    loop {
        let running = session.program_status("own").await?;
        if running.ended.is_some() {
            return Ok(running.output);
        }
    }
}

fn terminal() -> Terminal {
    Terminal {
        kind: "dumb".to_owned(),
        size: TerminalSize {
            rows: 24,
            columns: 200,
        },
    }
}

async fn exec(
    session: &Session,
    program: &str,
    terminal: Option<Terminal>,
) -> Result<String, KernelError> {
    let mut stream = session.opener().open(StreamRequest::Exec(Exec {
        namespace: NODE.to_owned(),
        program: program.to_owned(),
        arguments: vec![RUN_ATTEMPTS.to_owned()],
        terminal,
        environment: Vec::new(),
    }));
    let mut output = Vec::new();
    loop {
        match stream.recv().await? {
            FromStream::Output { of, bytes } => {
                output.extend(bytes);
                stream.send(ToStream::Ack { stream: of });
            }
            FromStream::Ended { end } => {
                if end != (StreamEnd::Status { code: 0 }) {
                    output.extend(format!("{end:?}").bytes());
                }
                return Ok(String::from_utf8_lossy(&output).into_owned());
            }
            FromStream::Failed { failure, .. } => return Err(KernelError::RequestFailed(failure)),
            FromStream::Opened | FromStream::InputAck | FromStream::Packets { .. } => {}
        }
    }
}
