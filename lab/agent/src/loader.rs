//! Programs that load rules and sets and stay: each batch is applied as it
//! arrives, so a change costs no start of a program.

use std::collections::HashMap;
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::child::Child;
use super::netns::NetNs;
use super::{batches, failure, program};
use svclab_model::protocol::Failure;

/// More than a C library keeps back of what a program prints into a pipe: what
/// is followed by so much has arrived.
const PUSH: usize = 8 << 10;

/// How often ipset is asked for its help after a batch: each answer is some
/// thousand bytes long, so three of them push the first one out.
const HELPS: usize = 3;

/// How long a program that has closed a pipe may take to end.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(5);

/// What ipset's help begins with.
const HELP: &[u8] = b"Usage";

/// How it is known that a batch was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The restore programs of iptables print comments when they are verbose,
    /// each at its turn (iptables v1.8.9, `iptables/xtables-restore.c`,
    /// `iptables/iptables-restore.c`).
    Restore,
    /// `ipset -` prints no comments; its help comes at its turn, too.
    Set,
}

/// A program that waits for the next batch.
pub struct Loader {
    namespace: String,
    program: String,
    manner: Manner,
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    errors: ChildStderr,
    /// How many batches it was given.
    batches: usize,
    /// How many lines: it numbers them from its start.
    lines: usize,
    /// What it printed and nobody waited for yet.
    printed: Vec<u8>,
    /// How often ipset's help was seen.
    helped: usize,
}

/// Programs that wait for more rules, by namespace and program.
pub type Loaders = HashMap<(String, String), Loader>;

impl Loader {
    /// Starts `ipset` or a restore program of iptables in a namespace.
    ///
    /// # Errors
    ///
    /// When the program is not there or cannot be started.
    pub fn start(ns: &NetNs, namespace: &str, program: &str) -> Result<Self, Failure> {
        let (manner, arguments): (_, &[&str]) = if program == "ipset" {
            (Manner::Set, &["-"])
        } else {
            (Manner::Restore, &["--noflush", "--verbose"])
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
            manner,
            child,
            input,
            output,
            errors,
            batches: 0,
            lines: 0,
            printed: Vec::new(),
            helped: 0,
        })
    }

    /// Has a batch applied. After an error the program is of no more use.
    ///
    /// # Errors
    ///
    /// When the program refuses a line: the failure then carries that line and
    /// the program's own message.
    pub async fn load(&mut self, batch: &str) -> Result<(), Failure> {
        self.batches += 1;
        let mark = format!("# batch {}\n", self.batches);
        let receipt = match self.manner {
            Manner::Restore => format!("{mark}#{}\n", ".".repeat(PUSH - 2)),
            Manner::Set => "help\n".repeat(HELPS),
        };
        let fed = feed(&mut self.input, batch, &receipt);
        let heard = hear(
            &mut self.output,
            &mut self.printed,
            match self.manner {
                Manner::Restore => Wanted::Words(mark.as_bytes()),
                Manner::Set => Wanted::Helps {
                    seen: &mut self.helped,
                    until: (self.batches - 1) * HELPS + 1,
                },
            },
        );
        let (fed, heard) = tokio::join!(fed, heard);
        let before = self.lines;
        self.lines += batch.lines().count() + receipt.lines().count();
        // A program that ends closes its pipes: its own words say more.
        let ended = fed.is_err() || !matches!(heard, Ok(true));
        let said = if ended {
            self.last_words().await
        } else {
            self.complaint()
        };
        if said.is_empty() && !ended {
            return Ok(());
        }
        Err(program::refused(
            &self.namespace,
            &self.program,
            said.trim(),
            batch,
            before,
        ))
    }

    /// What the program said of a batch that it went on from: ipset does.
    fn complaint(&mut self) -> String {
        let mut said = Vec::new();
        let mut piece = [0; 1024];
        // Its pipe does not block, and what was said was said before the receipt.
        while let Ok(length @ 1..) = nix::unistd::read(&self.errors, &mut piece) {
            said.extend_from_slice(&piece[..length]);
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    async fn last_words(&mut self) -> String {
        // It has closed a pipe and so is at its end, or will never get there.
        let mut said = Vec::new();
        let all = self.errors.read_to_end(&mut said);
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            self.child.kill();
        }
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// Hands a batch to the program that waits for it, which is started if there is
/// none.
///
/// # Errors
///
/// When the program cannot be started, or refuses a line.
pub async fn load(
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
    let parts = batches::for_program(&key.1, batch);
    match loaders.get_mut(&key) {
        Some(loader) => {
            for part in parts {
                loader.load(&part).await?;
            }
            Ok(())
        }
        None => Ok(()),
    }
}

/// What is waited for in a program's output.
enum Wanted<'a> {
    /// These words.
    Words(&'a [u8]),
    /// So many of ipset's helps, since it began.
    Helps { seen: &'a mut usize, until: usize },
}

async fn feed(input: &mut ChildStdin, batch: &str, receipt: &str) -> io::Result<()> {
    input.write_all(batch.as_bytes()).await?;
    if !batch.ends_with('\n') {
        input.write_all(b"\n").await?;
    }
    input.write_all(receipt.as_bytes()).await?;
    input.flush().await
}

/// Reads until what is wanted was printed. False at the end of the output.
async fn hear(
    output: &mut ChildStdout,
    printed: &mut Vec<u8>,
    mut wanted: Wanted<'_>,
) -> io::Result<bool> {
    loop {
        let word = match &wanted {
            Wanted::Words(words) => words,
            Wanted::Helps { .. } => HELP,
        };
        let met = printed
            .windows(word.len())
            .rposition(|window| window == word);
        match &mut wanted {
            Wanted::Words(_) if met.is_some() => {
                printed.clear();
                return Ok(true);
            }
            Wanted::Helps { seen, until } => {
                let windows = printed.windows(HELP.len());
                **seen += windows.filter(|window| *window == HELP).count();
                // A word that is not whole yet stays.
                let rest = printed.len().min(HELP.len() - 1);
                let whole = met.map_or(0, |at| at + HELP.len());
                printed.drain(..(printed.len() - rest).max(whole));
                if *seen >= until {
                    return Ok(true);
                }
            }
            Wanted::Words(_) => {}
        }
        if output.read_buf(printed).await? == 0 {
            return Ok(false);
        }
    }
}
