//! Loads rules and sets through programs that stay running. A program applies each batch on
//! arrival, so that a change does not start a program.

use std::collections::{HashMap, VecDeque};
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::net::netns::NetNs;
use crate::program;
use crate::program::child::Child;
use crate::rules::batches;
use crate::runtime::failure;
use svclab_model::protocol::Failure;

/// Number of bytes that exceeds the C library's output buffer for a pipe. Output followed by this
/// many bytes has arrived.
const FLUSH_BYTES: usize = 8 << 10;

/// Number of help requests to ipset after a batch. Each response has some thousand bytes, so that
/// three of them flush the first one.
const HELP_REQUESTS: usize = 3;

/// Time limit for a program to exit after it closes a pipe.
const EXIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// First word of ipset's help.
const HELP_START: &[u8] = b"Usage";

/// Method to detect that a batch was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoaderKind {
    /// The restore programs of iptables print comments in verbose mode, each in sequence with the
    /// rules (iptables v1.8.9, `iptables/xtables-restore.c`, `iptables/iptables-restore.c`).
    Restore,
    /// `ipset -` does not print comments, but prints its help in sequence.
    Set,
}

/// Program that waits for the next batch.
pub(crate) struct Loader {
    namespace: String,
    program: String,
    kind: LoaderKind,
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    errors: ChildStderr,
    /// Number of batches sent.
    batches: usize,
    /// Number of lines sent. The program numbers lines from its start.
    lines: usize,
    /// Output of the program that was not processed yet.
    printed: Vec<u8>,
    /// Number of help texts seen from ipset.
    helps_seen: usize,
}

/// Programs that wait for more rules, by namespace and program name.
pub(crate) type Loaders = HashMap<(String, String), Loader>;

impl Loader {
    /// Starts `ipset` or a restore program of iptables in a namespace.
    ///
    /// # Errors
    ///
    /// When the program does not exist or cannot be started.
    pub(crate) fn start(ns: &NetNs, namespace: &str, program: &str) -> Result<Self, Failure> {
        let (manner, arguments): (_, &[&str]) = if program == "ipset" {
            (LoaderKind::Set, &["-"])
        } else {
            (LoaderKind::Restore, &["--noflush", "--verbose"])
        };
        let mut child = program::start(ns, namespace, program, arguments, program::PATH)?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failure::bug(format!("{program} was started without pipes")));
        };
        Ok(Self {
            namespace: namespace.to_owned(),
            program: program.to_owned(),
            kind: manner,
            child,
            input,
            output,
            errors,
            batches: 0,
            lines: 0,
            printed: Vec::new(),
            helps_seen: 0,
        })
    }

    /// Applies an input, in as many parts as necessary. After an error, the program is unusable.
    ///
    /// # Errors
    ///
    /// When the program rejects a line. The failure contains the line and the program's message.
    pub(crate) async fn load(&mut self, ns: &NetNs, input: &str) -> Result<(), Failure> {
        let mut parts = VecDeque::from(batches::split_for_program(&self.program, input));
        while let Some(part) = parts.pop_front() {
            let Err(failure) = self.load_batch(&part.text).await else {
                continue;
            };
            let rest = part.divide(&self.program, &failure);
            let rest = rest.ok_or_else(|| part.locate(failure))?;
            rest.into_iter()
                .rev()
                .for_each(|part| parts.push_front(part));
            // A restore program exits at the first error.
            *self = Self::start(ns, &self.namespace, &self.program)?;
        }
        Ok(())
    }

    /// Applies a batch.
    async fn load_batch(&mut self, batch: &str) -> Result<(), Failure> {
        self.batches += 1;
        let marker = format!("# batch {}\n", self.batches);
        let marker_input = match self.kind {
            LoaderKind::Restore => format!("{marker}#{}\n", ".".repeat(FLUSH_BYTES - 2)),
            LoaderKind::Set => "help\n".repeat(HELP_REQUESTS),
        };
        let feeding = write_batch(&mut self.input, batch, &marker_input);
        let reading = read_until(
            &mut self.output,
            &mut self.printed,
            match self.kind {
                LoaderKind::Restore => ExpectedOutput::Text(marker.as_bytes()),
                LoaderKind::Set => ExpectedOutput::Helps {
                    seen: &mut self.helps_seen,
                    until: (self.batches - 1) * HELP_REQUESTS + 1,
                },
            },
        );
        let (fed, heard) = tokio::join!(feeding, reading);
        let before = self.lines;
        self.lines += batch.lines().count() + marker_input.lines().count();
        // A program that exits closes its pipes. Its error message is more precise than the error
        // of the pipe.
        let ended = fed.is_err() || !matches!(heard, Ok(true));
        let message = if ended {
            self.read_final_errors().await
        } else {
            self.read_errors()
        };
        if message.is_empty() && !ended {
            return Ok(());
        }
        Err(program::input_rejected(
            &self.namespace,
            &self.program,
            message.trim(),
            batch,
            before,
        ))
    }

    /// Returns the errors of a batch after which the program continues, as ipset does.
    fn read_errors(&mut self) -> String {
        let mut message = Vec::new();
        let mut piece = [0; 1024];
        // The pipe is non-blocking, and the program prints its errors before the marker.
        while let Ok(length @ 1..) = nix::unistd::read(&self.errors, &mut piece) {
            message.extend_from_slice(&piece[..length]);
        }
        String::from_utf8_lossy(&message).into_owned()
    }

    async fn read_final_errors(&mut self) -> String {
        // The program has closed a pipe. Either it is exiting, or it never will.
        let mut message = Vec::new();
        let read = self.errors.read_to_end(&mut message);
        if tokio::time::timeout(EXIT_TIMEOUT, read).await.is_err() {
            self.child.kill();
        }
        String::from_utf8_lossy(&message).into_owned()
    }
}

/// Sends a batch to the waiting program, which is started if necessary.
///
/// # Errors
///
/// When the program cannot be started or rejects a line.
pub(crate) async fn load(
    loaders: &mut Loaders,
    ns: &NetNs,
    name: &str,
    program: String,
    batch: &str,
) -> Result<(), Failure> {
    if batch.is_empty() {
        return Ok(());
    }
    let key = (name.to_owned(), program);
    if !loaders.contains_key(&key) {
        let loader = Loader::start(ns, name, &key.1)?;
        loaders.insert(key.clone(), loader);
    }
    match loaders.get_mut(&key) {
        Some(loader) => loader.load(ns, batch).await,
        None => Ok(()),
    }
}

/// Expected part of a program's output.
enum ExpectedOutput<'a> {
    /// This text.
    Text(&'a [u8]),
    /// Number of ipset's help texts since the start of the program.
    Helps { seen: &'a mut usize, until: usize },
}

async fn write_batch(input: &mut ChildStdin, batch: &str, receipt: &str) -> io::Result<()> {
    input.write_all(batch.as_bytes()).await?;
    if !batch.ends_with('\n') {
        input.write_all(b"\n").await?;
    }
    input.write_all(receipt.as_bytes()).await?;
    input.flush().await
}

/// Reads until the expected output appears. Returns `false` at the end of the output.
async fn read_until(
    output: &mut ChildStdout,
    printed: &mut Vec<u8>,
    mut expected: ExpectedOutput<'_>,
) -> io::Result<bool> {
    loop {
        let word = match &expected {
            ExpectedOutput::Text(words) => words,
            ExpectedOutput::Helps { .. } => HELP_START,
        };
        let position = printed
            .windows(word.len())
            .rposition(|window| window == word);
        match &mut expected {
            ExpectedOutput::Text(_) if position.is_some() => {
                printed.clear();
                return Ok(true);
            }
            ExpectedOutput::Helps { seen, until } => {
                let windows = printed.windows(HELP_START.len());
                **seen += windows.filter(|window| *window == HELP_START).count();
                // An incomplete word stays in the buffer.
                let rest = printed.len().min(HELP_START.len() - 1);
                let whole = position.map_or(0, |at| at + HELP_START.len());
                printed.drain(..(printed.len() - rest).max(whole));
                if *seen >= until {
                    return Ok(true);
                }
            }
            ExpectedOutput::Text(_) => {}
        }
        if output.read_buf(printed).await? == 0 {
            return Ok(false);
        }
    }
}
