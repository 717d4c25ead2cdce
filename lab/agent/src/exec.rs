//! Runs a program attached to a client: forwards the client's input to the program and the
//! program's output to the client.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};

use super::child::Child;
use super::daemon::Group;
use super::failure;
use super::launch::Refusal;
use super::netns::NetNs;
use super::program;
use super::stream::Stream;
use super::streams::{Say, Window, failed};
use super::terminal;
use svclab_model::protocol::stream::{CHUNK, End, Exec, FromStream, ToStream, Written};
use svclab_model::protocol::{Failure, Fault};

/// Time limit for reading the terminal after the program has exited, if other processes hold it
/// open. The last output can arrive slightly later (Linux v6.12, `drivers/tty/tty_buffer.c`,
/// `flush_to_ldisc`).
const LINGER: Duration = Duration::from_millis(200);

/// Running program and the descriptors to it.
struct Running {
    child: Child,
    group: Group,
    input: Option<Stream>,
    outputs: Vec<(Written, Stream)>,
    /// Master side of the program's terminal, if it has one.
    terminal: Option<OwnedFd>,
}

/// Starts a program in a namespace and returns when it exits. When the client disconnects, the
/// function kills the program.
///
/// # Errors
///
/// When the program cannot be started. The error is the message for the client.
pub async fn run(
    ns: &NetNs,
    wanted: Exec,
    told: mpsc::UnboundedReceiver<ToStream>,
    say: &Say,
) -> Result<FromStream, FromStream> {
    let Running {
        mut child,
        mut group,
        input,
        outputs,
        terminal,
    } = start(ns, &wanted)?;
    say(FromStream::Opened);
    let is_terminal = terminal.is_some();
    let (feed, food) = mpsc::unbounded_channel();
    let (ended, end) = watch::channel(false);
    let pumps: Vec<Rc<Pump>> = outputs
        .into_iter()
        .map(|(of, stream)| {
            Rc::new(Pump {
                of,
                stream: RefCell::new(Some(stream)),
                window: Window::default(),
                unread: watch::channel(false).0,
            })
        })
        .collect();
    let pumping = async {
        let each = pumps
            .iter()
            .map(|pump| pump.run(end.clone(), is_terminal, say));
        futures_util::future::join_all(each).await;
    };
    let obeying = obey(told, &pumps, &group, terminal, feed);
    let living = async {
        let status = child.wait().await;
        let _ = ended.send(true);
        status
    };
    // All futures run on this thread. Forwarding the input stops when the program exits.
    let status = {
        let feeding = pass_on(input, food, say);
        let work = async { tokio::join!(living, pumping).0 };
        tokio::select! {
            status = work => Some(status),
            () = obeying => None,
            () = feeding => unreachable!("feeding never ends by itself"),
        }
    };
    let Some(status) = status else {
        // The client has disconnected. Kill the program's group and wait for its exit.
        drop(group);
        let _ = child.wait().await;
        return Ok(FromStream::Ended { end: End::Wish });
    };
    // Other processes of its group continue until the lab is removed.
    group.release();
    match status {
        Ok(status) => Ok(FromStream::Ended { end: how(status) }),
        Err(error) => Err(failed(failure::machine(
            format!("{} was lost: {error}", wanted.program),
            &error,
        ))),
    }
}

fn how(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Status { code },
        (None, Some(number)) => End::Signal { number },
        (None, None) => End::Status { code: 0 },
    }
}

fn start(ns: &NetNs, wanted: &Exec) -> Result<Running, FromStream> {
    let Exec {
        namespace, program, ..
    } = wanted;
    let found = program::find(program).ok_or_else(|| absent(program))?;
    let mut launch = program::launch(ns, &found);
    // Some programs select their function by this name.
    launch.words = vec![program.clone()];
    launch.words.extend(wanted.arguments.iter().cloned());
    let mut set = |name: &str, value: &str| {
        launch.environment.insert(name.to_owned(), value.to_owned());
    };
    set("HOME", "/");
    set("LANG", "C.UTF-8");
    for (name, value) in &wanted.environment {
        set(name, value);
    }
    let unstarted = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => absent(program),
        _ => failed(failure::machine(
            format!("cannot start {program}: {error}"),
            &error,
        )),
    };
    let own = if let Some(wanted) = &wanted.terminal {
        set("TERM", &wanted.kind);
        let (ours, theirs) = terminal::open_pair(wanted.size).map_err(|error| {
            let message = format!("cannot open a terminal for {program}: {error}");
            failed(failure::machine(message, &error))
        })?;
        launch.terminal = Some(theirs);
        Some(ours)
    } else {
        None
    };
    ns.tenant().runs();
    let mut child = launch.start(ns).map_err(|refusal| match refusal {
        Refusal::Inside(error) => failed(failure::entering(namespace, &error)),
        Refusal::Program(error) => unstarted(error),
    })?;
    // The process must hold the only descriptor of the terminal's slave side.
    drop(launch);
    let group = Group::of(&child);
    let mut streams = || -> io::Result<_> {
        if let Some(ours) = &own {
            let (input, output) = (ours.try_clone()?, ours.try_clone()?);
            let outputs = vec![(Written::Stdout, Stream::new(output)?)];
            return Ok((Some(Stream::new(input)?), outputs));
        }
        let (input, stdout, stderr) = (
            child.stdin.take().map(ChildStdin::into_owned_fd),
            child.stdout.take().map(ChildStdout::into_owned_fd),
            child.stderr.take().map(ChildStderr::into_owned_fd),
        );
        let mut outputs = Vec::new();
        for (of, pipe) in [(Written::Stdout, stdout), (Written::Stderr, stderr)] {
            if let Some(pipe) = pipe {
                outputs.push((of, Stream::new(pipe?)?));
            }
        }
        let input = input.transpose()?.map(Stream::new).transpose()?;
        Ok((input, outputs))
    };
    let (input, outputs) = streams().map_err(unstarted)?;
    Ok(Running {
        child,
        group,
        input,
        outputs,
        terminal: own,
    })
}

fn absent(program: &str) -> FromStream {
    FromStream::Failed {
        absent: true,
        failure: Failure {
            fault: Fault::Input,
            message: format!("there is no program {program} in the lab"),
            remedy: Some(
                "a lab has this machine's programs under /usr, /bin and /sbin, in a guest those that \
                 `svclab up --help` names; `svclab up --program PATH` gives it others"
                    .to_owned(),
            ),
            rejected: None,
        },
    }
}

/// Handles the messages of the client until the client disconnects.
async fn obey(
    mut told: mpsc::UnboundedReceiver<ToStream>,
    pumps: &[Rc<Pump>],
    group: &Group,
    terminal: Option<OwnedFd>,
    feed: mpsc::UnboundedSender<Option<Vec<u8>>>,
) {
    let pump = |of: Written| pumps.iter().find(|pump| pump.of == of);
    while let Some(word) = told.recv().await {
        match word {
            ToStream::Input { bytes } => drop(feed.send(Some(bytes))),
            ToStream::EndOfInput => drop(feed.send(None)),
            ToStream::Took { of } => {
                if let Some(pump) = pump(of) {
                    pump.window.answered();
                }
            }
            ToStream::Unread { of } => {
                if let Some(pump) = pump(of) {
                    pump.unread.send_replace(true);
                }
            }
            ToStream::Resize { size } => {
                if let Some(terminal) = &terminal {
                    let _ = terminal::resize(terminal, size);
                }
            }
            ToStream::Signal { number } => {
                if let Ok(signal) = Signal::try_from(number) {
                    group.signal(signal);
                }
            }
        }
    }
}

/// Forwards the input to the program, without end. Input that the program no longer reads is
/// discarded, so that the client does not wait for acknowledgements.
async fn pass_on(
    mut input: Option<Stream>,
    mut food: mpsc::UnboundedReceiver<Option<Vec<u8>>>,
    say: &Say,
) {
    while let Some(bytes) = food.recv().await {
        let Some(bytes) = bytes else {
            input = None;
            continue;
        };
        if let Some(open) = &mut input
            && open.write_all(&bytes).await.is_err()
        {
            input = None;
        }
        say(FromStream::Fed);
    }
    std::future::pending::<()>().await;
}

/// Forwarding of one output stream of a program.
struct Pump {
    of: Written,
    stream: RefCell<Option<Stream>>,
    window: Window,
    /// Whether the client has stopped reading the stream.
    unread: watch::Sender<bool>,
}

impl Pump {
    /// Forwards the output until the stream ends or the program exits, including all output before
    /// the exit.
    async fn run(&self, ended: watch::Receiver<bool>, is_terminal: bool, say: &Say) {
        let Some(stream) = self.stream.borrow_mut().take() else {
            return;
        };
        let mut unread = self.unread.subscribe();
        tokio::select! {
            () = self.pass(stream, ended, is_terminal, say) => {}
            // Dropping the stream closes its end of the pipe.
            _ = unread.wait_for(|unread| *unread) => {}
        }
    }

    async fn pass(
        &self,
        mut stream: Stream,
        mut ended: watch::Receiver<bool>,
        is_terminal: bool,
        say: &Say,
    ) {
        let mut chunk = vec![0; CHUNK];
        let tell = |bytes: &[u8]| {
            say(FromStream::Output {
                of: self.of,
                bytes: bytes.to_vec(),
            });
        };
        loop {
            self.window.one().await;
            let read = tokio::select! {
                biased;
                read = stream.read(&mut chunk) => read,
                _ = ended.wait_for(|ended| *ended) => break,
            };
            match read {
                // Reading from a terminal whose slave side is closed returns EIO.
                Ok(0) | Err(_) => return,
                Ok(length) => tell(&chunk[..length]),
            }
        }
        // The program has exited. Its output is already in the stream, even if other processes
        // still write to the stream.
        loop {
            let read = match stream.read_now(&mut chunk) {
                Ok(None) if is_terminal => {
                    match tokio::time::timeout(LINGER, stream.read(&mut chunk)).await {
                        Ok(Ok(length)) => length,
                        _ => return,
                    }
                }
                Ok(Some(length)) => length,
                Ok(None) | Err(_) => return,
            };
            if read == 0 {
                return;
            }
            tell(&chunk[..read]);
            self.window.one().await;
        }
    }
}
