//! A program in a lab, attached to the streams of this process: what it reads and
//! writes is passed through as it comes.

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

/// How a program ended, or why it did not begin.
pub enum Outcome {
    /// It ended.
    Ended(End),
    /// There is no such program, or it cannot be started.
    Unstarted {
        /// Whether there is none.
        absent: bool,
        /// Why.
        failure: Failure,
    },
}

/// The terminal that this process talks to, if it does in both directions: a program
/// whose output goes elsewhere is to write it as it is.
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

/// A terminal whose keys are passed on as they are; as before when this is dropped.
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

/// Passes on what is read and written until the program ends.
///
/// # Errors
///
/// When the holder of the lab is gone, or said no.
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
    // What is still to be written is written, unless the user does not wait.
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
    /// What takes what is to be written, to standard output and standard error.
    outputs: Option<[std::sync::mpsc::Sender<Vec<u8>>; 2]>,
    /// How many messages of input have not been answered.
    unfed: usize,
}

/// What came of something that was to be written.
struct Wrote {
    of: Written,
    /// Whether somebody reads on.
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
            // Who is gone shows on the other side.
            let _ = self.saying.say(&word).await;
        }
    }

    fn heard(&mut self, word: FromStream) -> Option<Outcome> {
        match word {
            FromStream::Output { of, bytes } => {
                if let Some([stdout, stderr]) = &self.outputs {
                    // Whose reader is gone has said so.
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

/// Reads standard input on a thread of its own, which ends with the process: a read
/// cannot be given up.
fn reader() -> mpsc::Receiver<Vec<u8>> {
    let (tell, told) = mpsc::channel(WINDOW);
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        // Without the buffer that is before it otherwise.
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

/// Writes on a thread of its own, so that a slow reader keeps nothing else waiting.
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

/// What this process is told by signals.
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
