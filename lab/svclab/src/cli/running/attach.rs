//! Attaches the standard streams of this process to a program in a lab.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::thread;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::live::{CallError, DaemonConnection, DaemonReceiver, DaemonReply, DaemonSender};
use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{
    FromStream, MAX_CHUNK, MAX_UNACKNOWLEDGED, OutputStream, StreamEnd, Terminal, TerminalSize,
    ToStream,
};

nix::ioctl_read_bad!(get_size, nix::libc::TIOCGWINSZ, nix::libc::winsize);

/// Result of an attached program.
pub(crate) enum ProgramExit {
    /// The program started and ended.
    Ended(StreamEnd),
    /// The program did not start.
    NotStarted {
        /// Whether the program does not exist.
        is_missing: bool,
        failure: Failure,
    },
}

/// Returns the terminal of this process. `None` unless both standard input and standard output are
/// a terminal: redirected output must not contain terminal sequences.
pub(crate) fn current_terminal() -> Option<Terminal> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return None;
    }
    Some(Terminal {
        kind: std::env::var("TERM").unwrap_or_else(|_| "dumb".to_owned()),
        size: terminal_size()?,
    })
}

fn terminal_size() -> Option<TerminalSize> {
    let mut size = nix::libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the kernel fills the structure, which outlives the call.
    unsafe { get_size(io::stdin().as_raw_fd(), &raw mut size) }.ok()?;
    Some(TerminalSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Terminal in raw mode. Dropping restores the previous mode.
struct RawTerminal(Termios);

impl RawTerminal {
    fn enable() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.0);
    }
}

/// Forwards input, output and signals until the program ends.
pub(crate) async fn attach(
    line: DaemonConnection,
    on_terminal: bool,
) -> Result<ProgramExit, CallError> {
    let (mut receiver, sender) = line.split();
    match receiver.recv().await? {
        DaemonReply::StreamMessage {
            message: FromStream::Opened,
        } => {}
        DaemonReply::StreamMessage {
            message:
                FromStream::Failed {
                    program_missing: absent,
                    failure,
                },
        } => {
            return Ok(ProgramExit::NotStarted {
                is_missing: absent,
                failure,
            });
        }
        _ => return Err(CallError::UnexpectedReply),
    }
    let _raw = if on_terminal {
        Some(RawTerminal::enable()?)
    } else {
        None
    };
    let mut signals = Signals::listen();
    let (written, mut events) = mpsc::unbounded_channel();
    let stdout = spawn_writer(OutputStream::Stdout, io::stdout(), written.clone());
    let stderr = spawn_writer(OutputStream::Stderr, io::stderr(), written);
    let mut attached = AttachedProgram {
        receiver,
        sender,
        outputs: Some([stdout, stderr]),
        unacknowledged: 0,
    };
    let ended = attached.run_until_end(&mut signals, &mut events).await;
    // Write the remaining output, unless the user interrupts.
    attached.outputs = None;
    loop {
        tokio::select! {
            event = events.recv() => if event.is_none() { break },
            _ = signals.next() => break,
        }
    }
    ended
}

struct AttachedProgram {
    receiver: DaemonReceiver,
    sender: DaemonSender,
    /// Channels to the writer threads of standard output and standard error.
    outputs: Option<[std::sync::mpsc::Sender<Vec<u8>>; 2]>,
    /// Number of input messages without acknowledgement.
    unacknowledged: usize,
}

/// Result of writing one message.
struct WriteResult {
    stream: OutputStream,
    /// Whether the reader is still connected.
    has_reader: bool,
}

impl AttachedProgram {
    async fn run_until_end(
        &mut self,
        signals: &mut Signals,
        events: &mut mpsc::UnboundedReceiver<WriteResult>,
    ) -> Result<ProgramExit, CallError> {
        let mut input = Some(spawn_reader());
        loop {
            let message = tokio::select! {
                reply = self.receiver.recv() => match reply? {
                    DaemonReply::StreamMessage { message } => match self.handle_message(message) {
                        Some(outcome) => return Ok(outcome),
                        None => continue,
                    },
                    _ => return Err(CallError::UnexpectedReply),
                },
                Some(WriteResult { stream, has_reader }) = events.recv() => if has_reader {
                    ToStream::Ack { stream }
                } else {
                    ToStream::StopReading { stream }
                },
                chunk = next_chunk(&mut input), if self.unacknowledged < MAX_UNACKNOWLEDGED => if let Some(bytes) = chunk {
                    self.unacknowledged += 1;
                    ToStream::Input { bytes }
                } else {
                    input = None;
                    ToStream::EndOfInput
                },
                heard = signals.next() => match heard {
                    SignalEvent::Signal(number) => ToStream::Signal { number },
                    SignalEvent::Resized => match terminal_size() {
                        Some(size) => ToStream::Resize { size },
                        None => continue,
                    },
                },
            };
            // If the daemon ended, the next receive reports the error.
            let _ = self.sender.send(&message).await;
        }
    }

    fn handle_message(&mut self, message: FromStream) -> Option<ProgramExit> {
        match message {
            FromStream::Output { of, bytes } => {
                if let Some([stdout, stderr]) = &self.outputs {
                    // The writer thread already reported a disconnected reader.
                    let _ = match of {
                        OutputStream::Stdout => stdout.send(bytes),
                        OutputStream::Stderr => stderr.send(bytes),
                    };
                }
                None
            }
            FromStream::InputAck => {
                self.unacknowledged = self.unacknowledged.saturating_sub(1);
                None
            }
            FromStream::Ended { end } => Some(ProgramExit::Ended(end)),
            FromStream::Failed {
                program_missing: absent,
                failure,
            } => Some(ProgramExit::NotStarted {
                is_missing: absent,
                failure,
            }),
            FromStream::Opened | FromStream::Packets { .. } => None,
        }
    }
}

async fn next_chunk(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match input {
        Some(open) => open.recv().await,
        None => std::future::pending().await,
    }
}

/// Reads standard input on a separate thread, because a blocking read cannot be cancelled. The
/// thread ends with the process.
fn spawn_reader() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(MAX_UNACKNOWLEDGED);
    thread::spawn(move || {
        let mut chunk = vec![0; MAX_CHUNK];
        // The standard library's handle is buffered, so this reads from a duplicate of the
        // descriptor.
        let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else {
            return;
        };
        let mut stdin = File::from(stdin);
        while let Ok(length @ 1..) = stdin.read(&mut chunk) {
            if sender.blocking_send(chunk[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Writes output on a separate thread, so that a slow reader blocks nothing else.
fn spawn_writer(
    stream: OutputStream,
    mut out: impl io::Write + Send + 'static,
    results: mpsc::UnboundedSender<WriteResult>,
) -> std::sync::mpsc::Sender<Vec<u8>> {
    let (sender, receiver) = std::sync::mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        for bytes in receiver {
            let read = out.write_all(&bytes).and_then(|()| out.flush()).is_ok();
            let _ = results.send(WriteResult {
                stream,
                has_reader: read,
            });
            if !read {
                return;
            }
        }
    });
    sender
}

/// Signals to forward to the program.
struct Signals {
    resized: Option<Signal>,
    terminating: Vec<(i32, Signal)>,
}

enum SignalEvent {
    Signal(i32),
    Resized,
}

impl Signals {
    fn listen() -> Self {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ];
        let listen = |kind: SignalKind| Some((kind.as_raw_value(), signal(kind).ok()?));
        Self {
            resized: signal(SignalKind::window_change()).ok(),
            terminating: kinds.into_iter().filter_map(listen).collect(),
        }
    }

    async fn next(&mut self) -> SignalEvent {
        let resized = async {
            match &mut self.resized {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        };
        let others = self.terminating.iter_mut().map(|(number, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *number
            })
        });
        tokio::select! {
            () = resized => SignalEvent::Resized,
            (number, _, _) = futures_util::future::select_all(others) => SignalEvent::Signal(number),
        }
    }
}
