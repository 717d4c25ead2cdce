//! Implements `svclab capture`.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc;

use crate::cli::args::CaptureArguments;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::input::running_lab::find_running_lab;
use crate::cli::interrupt::{Interrupts, block_on};
use crate::cli::output::print_message;
use crate::live::{
    CallError, ClientRequest, DaemonReceiver, DaemonReply, DaemonSender, Interface, request_daemon,
};
use svclab_model::evidence::Packet;
use svclab_model::protocol::stream::{FromStream, OutputStream, ToStream};
use svclab_report::pcapng::{Pcapng, whole_blocks};
use svclab_runner::kernel::KernelError;
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::to_run_error;

/// Writes packets to standard output as they arrive.
pub(crate) fn capture(arguments: &CaptureArguments) -> CommandResult {
    if io::stdout().is_terminal() {
        return Err(CliError::refused(
            "cannot write a capture to a terminal",
            "`svclab capture > FILE.pcapng`, or `svclab capture | wireshark -k -i -`",
        ));
    }
    block_on(run(arguments))?
}

/// Reason for the end of a capture.
enum Ending {
    /// The user interrupted the capture.
    Interrupted,
    /// The reader of standard output disconnected, or a write failed.
    OutputClosed,
    /// The lab was stopped.
    LabStopped,
    /// The lab was lost, or the capture failed.
    Failed(CallError),
}

async fn run(arguments: &CaptureArguments) -> CommandResult {
    let (directory, lab) = find_running_lab(arguments.which.lab.as_deref(), "--lab").await?;
    let mut interrupts = Interrupts::listen();
    let targets = arguments.targets.clone();
    let line = request_daemon(&directory, &lab.case, &ClientRequest::Capture { targets }).await?;
    let (mut receiver, sender) = line.split();
    let DaemonReply::CaptureStarted { interfaces } = receiver.recv().await? else {
        return Err(CallError::UnexpectedReply.into());
    };
    let (event_sender, events) = mpsc::unbounded_channel();
    spawn_reader_watch(event_sender.clone());
    let writer = spawn_writer(interfaces, event_sender);
    let mut capturing = CaptureSession {
        receiver,
        sender,
        events,
        writer: Some(writer),
        missed: 0,
        summary: None,
    };
    let ending = capturing.run_until_end(&mut interrupts).await;
    capturing.finish(ending, &lab.case, &mut interrupts).await
}

/// Event of the output threads.
enum CaptureEvent {
    /// A batch of packets was written.
    BatchWritten,
    /// The reader disconnected.
    ReaderClosed,
    /// The writer thread ended.
    WriterEnded(WriteSummary),
}

/// Number of written packets and result of the writes.
struct WriteSummary {
    packets: u64,
    result: io::Result<()>,
}

struct CaptureSession {
    receiver: DaemonReceiver,
    sender: DaemonSender,
    events: mpsc::UnboundedReceiver<CaptureEvent>,
    writer: Option<std::sync::mpsc::Sender<Batch>>,
    missed: u64,
    summary: Option<WriteSummary>,
}

/// Packets for the writer thread.
struct Batch {
    packets: Vec<Packet>,
    missed: u64,
}

impl CaptureSession {
    async fn run_until_end(&mut self, interrupts: &mut Interrupts) -> Ending {
        let mut is_interrupted = false;
        loop {
            tokio::select! {
                reply = self.receiver.recv() => match reply {
                    Ok(DaemonReply::StreamMessage { message: FromStream::Opened }) => {}
                    Ok(DaemonReply::StreamMessage { message: FromStream::Packets { packets, missed } }) => {
                        self.missed += missed;
                        if let Some(writer) = &self.writer {
                            let _ = writer.send(Batch { packets, missed });
                        }
                    }
                    Ok(DaemonReply::StreamMessage { message: FromStream::Ended { .. } }) => {
                        return if is_interrupted { Ending::Interrupted } else { Ending::LabStopped };
                    }
                    Ok(DaemonReply::StreamMessage { message: FromStream::Failed { failure, .. } }) => {
                        let error = to_run_error(&KernelError::RequestFailed(failure));
                        return Ending::Failed(CallError::Refused(error));
                    }
                    Ok(_) => return Ending::Failed(CallError::UnexpectedReply),
                    Err(error) => return Ending::Failed(error),
                },
                event = self.events.recv() => match event {
                    Some(CaptureEvent::BatchWritten) => {
                        let took = ToStream::Ack { stream: OutputStream::Stdout };
                        // If the daemon ended, the next receive reports the error.
                        let _ = self.sender.send(&took).await;
                    }
                    Some(CaptureEvent::WriterEnded(wrote)) => {
                        self.summary = Some(wrote);
                        return Ending::OutputClosed;
                    }
                    Some(CaptureEvent::ReaderClosed) | None => return Ending::OutputClosed,
                },
                () = interrupts.next() => {
                    if is_interrupted {
                        return Ending::Interrupted;
                    }
                    is_interrupted = true;
                    let _ = self.sender.send(&ToStream::EndOfInput).await;
                }
            }
        }
    }

    /// Waits for the writer thread and prints a summary.
    async fn finish(
        mut self,
        ending: Ending,
        case: &str,
        interrupts: &mut Interrupts,
    ) -> CommandResult {
        self.writer = None;
        while self.summary.is_none() {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(CaptureEvent::WriterEnded(wrote)) => self.summary = Some(wrote),
                    Some(_) => {}
                    None => break,
                },
                // A reader that does not read must not block an interrupt.
                () = interrupts.next() => break,
            }
        }
        let wrote = self.summary.take();
        let packets = wrote.as_ref().map_or(0, |wrote| wrote.packets);
        let packets = match packets {
            1 => "1 packet".to_owned(),
            many => format!("{many} packets"),
        };
        if self.missed > 0 {
            print_message(format_args!(
                "{} more arrived faster than they were read and are not in the capture",
                self.missed
            ));
        }
        if let Some(WriteSummary {
            result: Err(error), ..
        }) = wrote
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(CliError::Run(RunError {
                kind: ErrorKind::Machine,
                message: format!("cannot write the capture: {error}"),
                remedy: Some(format!(
                    "write to a disk with free space; the capture is valid up to the error: \
                     {packets}"
                )),
            }));
        }
        match ending {
            Ending::Interrupted => print_message(format_args!("{packets}")),
            Ending::OutputClosed => {
                print_message(format_args!("{packets}; the reader closed the output"));
            }
            Ending::LabStopped => print_message(format_args!("{packets}; {case} was stopped")),
            Ending::Failed(source) => {
                return Err(CliError::Capture {
                    source,
                    written: packets,
                });
            }
        }
        Ok(Outcome::SUCCESS)
    }
}

/// Reports when the reader of standard output disconnects, even if nothing is written.
fn spawn_reader_watch(say: mpsc::UnboundedSender<CaptureEvent>) {
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
        let _ = say.send(CaptureEvent::ReaderClosed);
    });
}

/// Writes packets on a separate thread, so that a slow reader blocks nothing else.
fn spawn_writer(
    interfaces: Vec<Interface>,
    say: mpsc::UnboundedSender<CaptureEvent>,
) -> std::sync::mpsc::Sender<Batch> {
    let (write, to_write) = std::sync::mpsc::channel::<Batch>();
    thread::spawn(move || {
        let mut packets = 0;
        let result = write_batches(interfaces, &to_write, &mut packets, || {
            drop(say.send(CaptureEvent::BatchWritten));
        });
        let _ = say.send(CaptureEvent::WriterEnded(WriteSummary { packets, result }));
    });
    write
}

fn write_batches(
    interfaces: Vec<Interface>,
    batches: &std::sync::mpsc::Receiver<Batch>,
    packets: &mut u64,
    on_written: impl Fn(),
) -> io::Result<()> {
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let interfaces = interfaces
        .into_iter()
        .map(|each| (each.namespace, each.name));
    let out = WholeBlockFile {
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
        on_written();
    }
    if missed > 0 {
        pcapng.write_missed(missed)?;
        pcapng.flush()?;
    }
    Ok(())
}

/// Output file that contains only whole blocks, even after a failed write.
struct WholeBlockFile<'a> {
    file: File,
    /// Number of packets in the file.
    packets: &'a mut u64,
}

impl WholeBlockFile<'_> {
    /// Truncates the incomplete block at the end of a regular file.
    fn truncate_incomplete(&mut self, incomplete: usize) {
        let Ok(metadata) = self.file.metadata() else {
            return;
        };
        let torn = u64::try_from(incomplete).unwrap_or(u64::MAX);
        if metadata.is_file() && torn > 0 {
            // The block may start before this write, but its incomplete part is at the end of the
            // file.
            let _ = self.file.set_len(metadata.len().saturating_sub(torn));
        }
    }
}

impl Write for WholeBlockFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    /// Writes whole blocks.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            match self.file.write(&bytes[written..]) {
                Ok(0) if written < bytes.len() => break Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => written += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
            if written == bytes.len() {
                break Ok(());
            }
        };
        let (whole, packets) = whole_blocks(&bytes[..written]);
        *self.packets += packets;
        self.truncate_incomplete(written - whole);
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
