//! Attaches the standard streams of this process to a program in a lab.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::thread;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::live::{CallError, Hearing, Line, Saying, Told};
use svclab_model::protocol::Failure;
use svclab_model::protocol::stream::{
    CHUNK, End, FromStream, Size, Terminal, ToStream, WINDOW, Written,
};

nix::ioctl_read_bad!(get_size, nix::libc::TIOCGWINSZ, nix::libc::winsize);

/// Result of an attached program.
pub enum Outcome {
    /// The program started and ended.
    Ended(End),
    /// The program did not start.
    Unstarted {
        /// Whether the program does not exist.
        absent: bool,
        /// Error of the start.
        failure: Failure,
    },
}

/// Returns the terminal of this process. `None` unless both standard input and standard output are
/// a terminal: redirected output must not contain terminal sequences.
pub fn terminal() -> Option<Terminal> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return None;
    }
    Some(Terminal {
        kind: std::env::var("TERM").unwrap_or_else(|_| "dumb".to_owned()),
        size: size()?,
    })
}

fn size() -> Option<Size> {
    let mut size = nix::libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the kernel fills the structure, which outlives the call.
    unsafe { get_size(io::stdin().as_raw_fd(), &raw mut size) }.ok()?;
    Some(Size {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Terminal in raw mode. Dropping restores the previous mode.
struct Raw(Termios);

impl Raw {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.0);
    }
}

/// Forwards input, output and signals until the program ends.
///
/// # Errors
///
/// Returns an error if the daemon of the lab ended or refused the request.
pub async fn attach(line: Line, on_terminal: bool) -> Result<Outcome, CallError> {
    let (mut hearing, saying) = line.split();
    match hearing.next().await? {
        Told::Heard {
            word: FromStream::Opened,
        } => {}
        Told::Heard {
            word: FromStream::Failed { absent, failure },
        } => return Ok(Outcome::Unstarted { absent, failure }),
        _ => return Err(CallError::Nonsense),
    }
    let _raw = if on_terminal {
        Some(Raw::begin()?)
    } else {
        None
    };
    let mut signals = Signals::listen();
    let (written, mut events) = mpsc::unbounded_channel();
    let stdout = writer(Written::Stdout, io::stdout(), written.clone());
    let stderr = writer(Written::Stderr, io::stderr(), written);
    let mut attached = Attached {
        hearing,
        saying,
        outputs: Some([stdout, stderr]),
        unfed: 0,
    };
    let ended = attached.until_its_end(&mut signals, &mut events).await;
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

struct Attached {
    hearing: Hearing,
    saying: Saying,
    /// Channels to the writer threads of standard output and standard error.
    outputs: Option<[std::sync::mpsc::Sender<Vec<u8>>; 2]>,
    /// Number of input messages without acknowledgement.
    unfed: usize,
}

/// Result of writing one message.
struct Wrote {
    of: Written,
    /// Whether the reader is still connected.
    read: bool,
}

impl Attached {
    async fn until_its_end(
        &mut self,
        signals: &mut Signals,
        events: &mut mpsc::UnboundedReceiver<Wrote>,
    ) -> Result<Outcome, CallError> {
        let mut input = Some(reader());
        loop {
            let word = tokio::select! {
                told = self.hearing.next() => match told? {
                    Told::Heard { word } => match self.heard(word) {
                        Some(outcome) => return Ok(outcome),
                        None => continue,
                    },
                    _ => return Err(CallError::Nonsense),
                },
                Some(Wrote { of, read }) = events.recv() => if read {
                    ToStream::Took { of }
                } else {
                    ToStream::Unread { of }
                },
                chunk = next(&mut input), if self.unfed < WINDOW => if let Some(bytes) = chunk {
                    self.unfed += 1;
                    ToStream::Input { bytes }
                } else {
                    input = None;
                    ToStream::EndOfInput
                },
                heard = signals.next() => match heard {
                    Heard::Signal(number) => ToStream::Signal { number },
                    Heard::Resized => match size() {
                        Some(size) => ToStream::Resize { size },
                        None => continue,
                    },
                },
            };
            // If the daemon ended, the next receive reports the error.
            let _ = self.saying.say(&word).await;
        }
    }

    fn heard(&mut self, word: FromStream) -> Option<Outcome> {
        match word {
            FromStream::Output { of, bytes } => {
                if let Some([stdout, stderr]) = &self.outputs {
                    // The writer thread already reported a disconnected reader.
                    let _ = match of {
                        Written::Stdout => stdout.send(bytes),
                        Written::Stderr => stderr.send(bytes),
                    };
                }
                None
            }
            FromStream::Fed => {
                self.unfed = self.unfed.saturating_sub(1);
                None
            }
            FromStream::Ended { end } => Some(Outcome::Ended(end)),
            FromStream::Failed { absent, failure } => Some(Outcome::Unstarted { absent, failure }),
            FromStream::Opened | FromStream::Packets { .. } => None,
        }
    }
}

async fn next(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match input {
        Some(open) => open.recv().await,
        None => std::future::pending().await,
    }
}

/// Reads standard input on a separate thread, because a blocking read cannot be cancelled. The
/// thread ends with the process.
fn reader() -> mpsc::Receiver<Vec<u8>> {
    let (tell, told) = mpsc::channel(WINDOW);
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        // The standard library's handle is buffered, so this reads from a duplicate of the
        // descriptor.
        let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else {
            return;
        };
        let mut stdin = File::from(stdin);
        while let Ok(length @ 1..) = stdin.read(&mut chunk) {
            if tell.blocking_send(chunk[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    told
}

/// Writes output on a separate thread, so that a slow reader blocks nothing else.
fn writer(
    of: Written,
    mut out: impl io::Write + Send + 'static,
    wrote: mpsc::UnboundedSender<Wrote>,
) -> std::sync::mpsc::Sender<Vec<u8>> {
    let (give, given) = std::sync::mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        for bytes in given {
            let read = out.write_all(&bytes).and_then(|()| out.flush()).is_ok();
            let _ = wrote.send(Wrote { of, read });
            if !read {
                return;
            }
        }
    });
    give
}

/// Signals to forward to the program.
struct Signals {
    resized: Option<Signal>,
    others: Vec<(i32, Signal)>,
}

enum Heard {
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
            others: kinds.into_iter().filter_map(listen).collect(),
        }
    }

    async fn next(&mut self) -> Heard {
        let resized = async {
            match &mut self.resized {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        };
        let others = self.others.iter_mut().map(|(number, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *number
            })
        });
        tokio::select! {
            () = resized => Heard::Resized,
            (number, _, _) = futures_util::future::select_all(others) => Heard::Signal(number),
        }
    }
}
