//! A program that somebody is attached to while it runs: what it is to read is
//! passed on as it comes, and so is what it writes.

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

/// How long a terminal is listened to after its program has ended, if others hold
/// it: what was written last is on its way for a moment (Linux v6.12,
/// `drivers/tty/tty_buffer.c`, `flush_to_ldisc`).
const LINGER: Duration = Duration::from_millis(200);

/// A running program and the descriptors to it.
struct Running {
    child: Child,
    group: Group,
    input: Option<Stream>,
    outputs: Vec<(Written, Stream)>,
    /// Our end of its terminal, if it has one.
    terminal: Option<OwnedFd>,
}

/// Starts a program in a namespace and stays with it until it ends, or until
/// nobody listens any more; then it is killed.
///
/// # Errors
///
/// When it cannot be started, as it is told.
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
    // All at once, on this one thread: feeding ends with the program.
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
        // Nobody listens. What it holds is let go of, and its end waited for.
        drop(group);
        let _ = child.wait().await;
        return Ok(FromStream::Ended { end: End::Wish });
    };
    // What it left running in its group goes on until the lab is gone.
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
    // Some tell by it what they are to be.
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
    // Its terminal's other end must be its own alone.
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

/// Does what it is told, until nobody is there to tell any more.
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

/// Passes on what is to be read, for ever. What nobody reads any more is taken
/// all the same, so that nobody waits for its being read.
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

/// What one stream of a program writes, on its way.
struct Pump {
    of: Written,
    stream: RefCell<Option<Stream>>,
    window: Window,
    /// Whether nobody reads it.
    unread: watch::Sender<bool>,
}

impl Pump {
    /// Passes on all that is written until the stream ends, or the program does;
    /// what it wrote before its end is passed on, too.
    async fn run(&self, ended: watch::Receiver<bool>, is_terminal: bool, say: &Say) {
        let Some(stream) = self.stream.borrow_mut().take() else {
            return;
        };
        let mut unread = self.unread.subscribe();
        tokio::select! {
            () = self.pass(stream, ended, is_terminal, say) => {}
            // Its end of the pipe is closed with the stream.
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
                // A terminal whose other end is closed says EIO.
                Ok(0) | Err(_) => return,
                Ok(length) => tell(&chunk[..length]),
            }
        }
        // It has ended: what it wrote is there, whoever else may write on.
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
