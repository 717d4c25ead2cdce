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

use crate::net::netns::NetNs;
use crate::program;
use crate::program::background::ProcessGroup;
use crate::program::child::Child;
use crate::program::launch::LaunchError;
use crate::program::terminal;
use crate::runtime::client_stream::{SendToClient, Window, failed_message};
use crate::runtime::failure;
use crate::runtime::stream::Stream;
use svclab_model::protocol::stream::{
    Exec, FromStream, MAX_CHUNK, OutputStream, StreamEnd, ToStream,
};
use svclab_model::protocol::{Failure, FailureKind};

/// Time limit for reading the terminal after the program has exited, if other processes hold it
/// open. The last output can arrive slightly later (Linux v6.12, `drivers/tty/tty_buffer.c`,
/// `flush_to_ldisc`).
const TERMINAL_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Running program and the descriptors to it.
struct StartedProgram {
    child: Child,
    group: ProcessGroup,
    input: Option<Stream>,
    outputs: Vec<(OutputStream, Stream)>,
    /// Master side of the program's terminal, if it has one.
    terminal: Option<OwnedFd>,
}

/// Starts a program in a namespace and returns when it exits. When the client disconnects, the
/// function kills the program.
///
/// # Errors
///
/// When the program cannot be started. The error is the message for the client.
pub(crate) async fn run(
    ns: &NetNs,
    request: Exec,
    messages: mpsc::UnboundedReceiver<ToStream>,
    send: &SendToClient,
) -> Result<FromStream, FromStream> {
    let StartedProgram {
        mut child,
        mut group,
        input,
        outputs,
        terminal,
    } = start(ns, &request)?;
    send(FromStream::Opened);
    let is_terminal = terminal.is_some();
    let (input_sender, input_receiver) = mpsc::unbounded_channel();
    let (has_exited, exit_watch) = watch::channel(false);
    let pumps: Vec<Rc<OutputForwarder>> = outputs
        .into_iter()
        .map(|(of, stream)| {
            Rc::new(OutputForwarder {
                output: of,
                stream: RefCell::new(Some(stream)),
                window: Window::default(),
                unread: watch::channel(false).0,
            })
        })
        .collect();
    let forward_outputs = async {
        let forwards = pumps
            .iter()
            .map(|pump| pump.run(exit_watch.clone(), is_terminal, send));
        futures_util::future::join_all(forwards).await;
    };
    let handle_messages = handle_messages(messages, &pumps, &group, terminal, input_sender);
    let wait_for_exit = async {
        let status = child.wait().await;
        let _ = has_exited.send(true);
        status
    };
    // All futures run on this thread. Forwarding the input stops when the program exits.
    let status = {
        let forward_inputs = forward_input(input, input_receiver, send);
        let work = async { tokio::join!(wait_for_exit, forward_outputs).0 };
        tokio::select! {
            status = work => Some(status),
            () = handle_messages => None,
            () = forward_inputs => unreachable!("forwarding the input never ends by itself"),
        }
    };
    let Some(status) = status else {
        // The client has disconnected. Kill the program's group and wait for its exit.
        drop(group);
        let _ = child.wait().await;
        return Ok(FromStream::Ended {
            end: StreamEnd::CaptureEnded,
        });
    };
    // Other processes of its group continue until the lab is removed.
    group.release();
    match status {
        Ok(status) => Ok(FromStream::Ended {
            end: end_from_status(status),
        }),
        Err(error) => Err(failed_message(failure::host(
            format!("cannot wait for {}: {error}", request.program),
            &error,
        ))),
    }
}

fn end_from_status(status: ExitStatus) -> StreamEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => StreamEnd::Status { code },
        (None, Some(number)) => StreamEnd::Signal { number },
        (None, None) => StreamEnd::Status { code: 0 },
    }
}

fn start(ns: &NetNs, request: &Exec) -> Result<StartedProgram, FromStream> {
    let Exec {
        namespace, program, ..
    } = request;
    let found = program::find(program).ok_or_else(|| program_not_found(program))?;
    let mut launch = program::launch(ns, &found);
    // Some programs select their function by this name.
    launch.argv = vec![program.clone()];
    launch.argv.extend(request.arguments.iter().cloned());
    let mut set = |name: &str, value: &str| {
        launch.environment.insert(name.to_owned(), value.to_owned());
    };
    set("HOME", "/");
    set("LANG", "C.UTF-8");
    for (name, value) in &request.environment {
        set(name, value);
    }
    let start_failure = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => program_not_found(program),
        _ => failed_message(failure::host(
            format!("cannot start {program}: {error}"),
            &error,
        )),
    };
    let terminal_master = if let Some(wanted) = &request.terminal {
        set("TERM", &wanted.kind);
        let (ours, theirs) = terminal::open_pair(wanted.size).map_err(|error| {
            let message = format!("cannot open a terminal for {program}: {error}");
            failed_message(failure::host(message, &error))
        })?;
        launch.terminal = Some(theirs);
        Some(ours)
    } else {
        None
    };
    ns.tenant().note_attached_program();
    let mut child = launch.start(ns).map_err(|refusal| match refusal {
        LaunchError::Namespace(error) => failed_message(failure::cannot_enter(namespace, &error)),
        LaunchError::Program(error) => start_failure(error),
    })?;
    // The process must hold the only descriptor of the terminal's slave side.
    drop(launch);
    let group = ProcessGroup::led_by(&child);
    let mut streams = || -> io::Result<_> {
        if let Some(ours) = &terminal_master {
            let (input, output) = (ours.try_clone()?, ours.try_clone()?);
            let outputs = vec![(OutputStream::Stdout, Stream::new(output)?)];
            return Ok((Some(Stream::new(input)?), outputs));
        }
        let (input, stdout, stderr) = (
            child.stdin.take().map(ChildStdin::into_owned_fd),
            child.stdout.take().map(ChildStdout::into_owned_fd),
            child.stderr.take().map(ChildStderr::into_owned_fd),
        );
        let mut outputs = Vec::new();
        for (of, pipe) in [
            (OutputStream::Stdout, stdout),
            (OutputStream::Stderr, stderr),
        ] {
            if let Some(pipe) = pipe {
                outputs.push((of, Stream::new(pipe?)?));
            }
        }
        let input = input.transpose()?.map(Stream::new).transpose()?;
        Ok((input, outputs))
    };
    let (input, outputs) = streams().map_err(start_failure)?;
    Ok(StartedProgram {
        child,
        group,
        input,
        outputs,
        terminal: terminal_master,
    })
}

fn program_not_found(program: &str) -> FromStream {
    FromStream::Failed {
        program_missing: true,
        failure: Failure {
            kind: FailureKind::Input,
            message: format!("the lab has no program {program}"),
            remedy: Some(
                "use a program of this machine under /usr, /bin or /sbin, in a guest one of those \
                 that `svclab up --help` lists, or add a program with `svclab up --program PATH`"
                    .to_owned(),
            ),
            rejected: None,
        },
    }
}

/// Handles the messages of the client until the client disconnects.
async fn handle_messages(
    mut messages: mpsc::UnboundedReceiver<ToStream>,
    pumps: &[Rc<OutputForwarder>],
    group: &ProcessGroup,
    terminal: Option<OwnedFd>,
    feed: mpsc::UnboundedSender<Option<Vec<u8>>>,
) {
    let pump = |of: OutputStream| pumps.iter().find(|pump| pump.output == of);
    while let Some(message) = messages.recv().await {
        match message {
            ToStream::Input { bytes } => drop(feed.send(Some(bytes))),
            ToStream::EndOfInput => drop(feed.send(None)),
            ToStream::Ack { stream: of } => {
                if let Some(pump) = pump(of) {
                    pump.window.acknowledge();
                }
            }
            ToStream::StopReading { stream: of } => {
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
async fn forward_input(
    mut input: Option<Stream>,
    mut chunks: mpsc::UnboundedReceiver<Option<Vec<u8>>>,
    send: &SendToClient,
) {
    while let Some(bytes) = chunks.recv().await {
        let Some(bytes) = bytes else {
            input = None;
            continue;
        };
        if let Some(open) = &mut input
            && open.write_all(&bytes).await.is_err()
        {
            input = None;
        }
        send(FromStream::InputAck);
    }
    std::future::pending::<()>().await;
}

/// Forwarding of one output stream of a program.
struct OutputForwarder {
    output: OutputStream,
    stream: RefCell<Option<Stream>>,
    window: Window,
    /// Whether the client has stopped reading the stream.
    unread: watch::Sender<bool>,
}

impl OutputForwarder {
    /// Forwards the output until the stream ends or the program exits, including all output before
    /// the exit.
    async fn run(&self, ended: watch::Receiver<bool>, is_terminal: bool, say: &SendToClient) {
        let Some(stream) = self.stream.borrow_mut().take() else {
            return;
        };
        let mut unread = self.unread.subscribe();
        tokio::select! {
            () = self.forward(stream, ended, is_terminal, say) => {}
            // Dropping the stream closes its end of the pipe.
            _ = unread.wait_for(|unread| *unread) => {}
        }
    }

    async fn forward(
        &self,
        mut stream: Stream,
        mut ended: watch::Receiver<bool>,
        is_terminal: bool,
        say: &SendToClient,
    ) {
        let mut chunk = vec![0; MAX_CHUNK];
        let send_output = |bytes: &[u8]| {
            say(FromStream::Output {
                of: self.output,
                bytes: bytes.to_vec(),
            });
        };
        loop {
            self.window.acquire().await;
            let read = tokio::select! {
                biased;
                read = stream.read(&mut chunk) => read,
                _ = ended.wait_for(|ended| *ended) => break,
            };
            match read {
                // Reading from a terminal whose slave side is closed returns EIO.
                Ok(0) | Err(_) => return,
                Ok(length) => send_output(&chunk[..length]),
            }
        }
        // The program has exited. Its output is already in the stream, even if other processes
        // still write to the stream.
        loop {
            let read = match stream.read_now(&mut chunk) {
                Ok(None) if is_terminal => {
                    match tokio::time::timeout(TERMINAL_DRAIN_TIMEOUT, stream.read(&mut chunk))
                        .await
                    {
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
            send_output(&chunk[..read]);
            self.window.acquire().await;
        }
    }
}
