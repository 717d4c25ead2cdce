//! Implements `svclab capture`.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc;

use super::args::CaptureArguments;
use super::exit::Exit;
use super::interrupt::{Interrupts, drive};
use super::output::{refused, told};
use super::which::{uncalled, which};
use crate::live::{Ask, CallError, Hearing, Interface, Saying, Told, call};
use svclab_model::evidence::Packet;
use svclab_model::protocol::Fault;
use svclab_model::protocol::stream::{FromStream, ToStream, Written};
use svclab_report::pcapng::{Pcapng, whole_blocks};
use svclab_runner::results::{RunError, Trouble};

/// Writes packets to standard output as they arrive.
pub fn capture(arguments: &CaptureArguments) -> Exit {
    if io::stdout().is_terminal() {
        eprintln!("error: a capture is not for a terminal");
        eprintln!(
            "what to do: `svclab capture > FILE.pcapng`, or `svclab capture | wireshark -k -i -`"
        );
        return Exit::Input;
    }
    match drive(run(arguments)) {
        Ok(Ok(exit) | Err(exit)) => exit,
        Err(error) => refused(&error),
    }
}

/// Reason for the end of a capture.
enum Ending {
    /// The user interrupted the capture.
    Wish,
    /// The reader of standard output disconnected, or a write failed.
    Output,
    /// The lab was stopped.
    Away,
    /// The lab was lost, or the capture failed.
    Broken(CallError),
}

async fn run(arguments: &CaptureArguments) -> Result<Exit, Exit> {
    let (directory, lab) = which(arguments.which.lab.as_deref(), "--lab").await?;
    let mut interrupts = Interrupts::listen();
    let begun = async {
        let of = arguments.of.clone();
        let line = call(&directory, &lab.case, &Ask::Capture { of }).await?;
        let (mut hearing, saying) = line.split();
        match hearing.next().await? {
            Told::Capturing { interfaces } => Ok((hearing, saying, interfaces)),
            _ => Err(CallError::Nonsense),
        }
    };
    let (hearing, saying, interfaces) = begun.await.map_err(|error| uncalled(&error))?;
    let (say, events) = mpsc::unbounded_channel();
    watch_reader(say.clone());
    let writer = writer(interfaces, say);
    let mut capturing = Capturing {
        hearing,
        saying,
        events,
        writer: Some(writer),
        missed: 0,
        wrote: None,
    };
    let ending = capturing.until_its_end(&mut interrupts).await;
    Ok(capturing.tell(ending, &lab.case, &mut interrupts).await)
}

/// Event of the output threads.
enum Event {
    /// A batch of packets was written.
    Took,
    /// The reader disconnected.
    Unread,
    /// The writer thread ended.
    Over(Wrote),
}

/// Number of written packets and result of the writes.
struct Wrote {
    packets: u64,
    result: io::Result<()>,
}

struct Capturing {
    hearing: Hearing,
    saying: Saying,
    events: mpsc::UnboundedReceiver<Event>,
    writer: Option<std::sync::mpsc::Sender<Batch>>,
    missed: u64,
    wrote: Option<Wrote>,
}

/// Packets for the writer thread.
struct Batch {
    packets: Vec<Packet>,
    missed: u64,
}

impl Capturing {
    async fn until_its_end(&mut self, interrupts: &mut Interrupts) -> Ending {
        let mut wished = false;
        loop {
            tokio::select! {
                told = self.hearing.next() => match told {
                    Ok(Told::Heard { word: FromStream::Opened }) => {}
                    Ok(Told::Heard { word: FromStream::Packets { packets, missed } }) => {
                        self.missed += missed;
                        if let Some(writer) = &self.writer {
                            let _ = writer.send(Batch { packets, missed });
                        }
                    }
                    Ok(Told::Heard { word: FromStream::Ended { .. } }) => {
                        return if wished { Ending::Wish } else { Ending::Away };
                    }
                    Ok(Told::Heard { word: FromStream::Failed { failure, .. } }) => {
                        let trouble = match failure.fault {
                            Fault::Input => Trouble::Input,
                            Fault::Machine | Fault::Slow => Trouble::Machine,
                            Fault::Bug => Trouble::Bug,
                        };
                        return Ending::Broken(CallError::Refused(RunError {
                            trouble,
                            message: failure.message,
                            remedy: failure.remedy,
                        }));
                    }
                    Ok(_) => return Ending::Broken(CallError::Nonsense),
                    Err(error) => return Ending::Broken(error),
                },
                event = self.events.recv() => match event {
                    Some(Event::Took) => {
                        let took = ToStream::Took { of: Written::Stdout };
                        // If the daemon ended, the next receive reports the error.
                        let _ = self.saying.say(&took).await;
                    }
                    Some(Event::Over(wrote)) => {
                        self.wrote = Some(wrote);
                        return Ending::Output;
                    }
                    Some(Event::Unread) | None => return Ending::Output,
                },
                () = interrupts.next() => {
                    if wished {
                        return Ending::Wish;
                    }
                    wished = true;
                    let _ = self.saying.say(&ToStream::EndOfInput).await;
                }
            }
        }
    }

    /// Waits for the writer thread and prints a summary.
    async fn tell(mut self, ending: Ending, case: &str, interrupts: &mut Interrupts) -> Exit {
        self.writer = None;
        while self.wrote.is_none() {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(Event::Over(wrote)) => self.wrote = Some(wrote),
                    Some(_) => {}
                    None => break,
                },
                // A reader that does not read must not block an interrupt.
                () = interrupts.next() => break,
            }
        }
        let wrote = self.wrote.take();
        let packets = wrote.as_ref().map_or(0, |wrote| wrote.packets);
        let packets = match packets {
            1 => "1 packet".to_owned(),
            many => format!("{many} packets"),
        };
        if self.missed > 0 {
            eprintln!(
                "{} more came faster than they were read, and are not in the capture",
                self.missed
            );
        }
        match wrote.map(|wrote| wrote.result) {
            Some(Err(error)) if error.kind() != ErrorKind::BrokenPipe => {
                return told(&RunError {
                    trouble: Trouble::Machine,
                    message: format!("cannot write the capture: {error}"),
                    remedy: Some(format!(
                        "write it where there is room; what was written so far is whole: {packets}"
                    )),
                });
            }
            _ => {}
        }
        match ending {
            Ending::Wish => eprintln!("{packets}"),
            Ending::Output => eprintln!("{packets}; nobody reads any more"),
            Ending::Away => eprintln!("{packets}; {case} was taken away"),
            Ending::Broken(error) => {
                let exit = uncalled(&error);
                eprintln!("what was captured until then is whole: {packets}");
                return exit;
            }
        }
        Exit::Success
    }
}

/// Reports when the reader of standard output disconnects, even if nothing is written.
fn watch_reader(say: mpsc::UnboundedSender<Event>) {
    thread::spawn(move || {
        let stdout = io::stdout();
        // `poll` reports an error for a pipe without readers, and never for a file.
        let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        loop {
            match poll(&mut watched, PollTimeout::NONE) {
                Ok(_) => break,
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return,
            }
        }
        let _ = say.send(Event::Unread);
    });
}

/// Writes packets on a separate thread, so that a slow reader blocks nothing else.
fn writer(
    interfaces: Vec<Interface>,
    say: mpsc::UnboundedSender<Event>,
) -> std::sync::mpsc::Sender<Batch> {
    let (write, to_write) = std::sync::mpsc::channel::<Batch>();
    thread::spawn(move || {
        let mut packets = 0;
        let result = write_all(interfaces, &to_write, &mut packets, || {
            drop(say.send(Event::Took));
        });
        let _ = say.send(Event::Over(Wrote { packets, result }));
    });
    write
}

fn write_all(
    interfaces: Vec<Interface>,
    batches: &std::sync::mpsc::Receiver<Batch>,
    packets: &mut u64,
    took: impl Fn(),
) -> io::Result<()> {
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let interfaces = interfaces
        .into_iter()
        .map(|each| (each.namespace, each.name));
    let out = Whole {
        file: stdout,
        packets,
    };
    let mut pcapng = Pcapng::begin(out, interfaces)?;
    let mut missed = 0;
    for batch in batches {
        missed += batch.missed;
        for packet in &batch.packets {
            pcapng.packet(packet, None)?;
        }
        pcapng.flush()?;
        took();
    }
    if missed > 0 {
        pcapng.missed(missed)?;
        pcapng.flush()?;
    }
    Ok(())
}

/// Output file that contains only whole blocks, even after a failed write.
struct Whole<'a> {
    file: File,
    /// Number of packets in the file.
    packets: &'a mut u64,
}

impl Whole<'_> {
    /// Truncates the incomplete block at the end of a regular file.
    fn take_back(&mut self, torn: usize) {
        let Ok(about) = self.file.metadata() else {
            return;
        };
        let torn = u64::try_from(torn).unwrap_or(u64::MAX);
        if about.is_file() && torn > 0 {
            // The block may start before this write, but its incomplete part is at the end of the
            // file.
            let _ = self.file.set_len(about.len().saturating_sub(torn));
        }
    }
}

impl Write for Whole<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    /// Writes whole blocks.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            match self.file.write(&bytes[written..]) {
                Ok(0) if written < bytes.len() => break Err(ErrorKind::WriteZero.into()),
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
            if written == bytes.len() {
                break Ok(());
            }
        };
        let (whole, packets) = whole_blocks(&bytes[..written]);
        *self.packets += packets;
        self.take_back(written - whole);
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
