//! Writing to standard output and standard error, which may go away.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

use super::exit::Exit;
use svclab_diagnostic::printable::{self, printable, styled};
use svclab_diagnostic::shortage;
use svclab_report::inert;
use svclab_runner::results::RunError;

/// Whether GitHub's runner reads standard error.
static IS_READ_BY_RUNNER: AtomicBool = AtomicBool::new(false);

/// Keeps the lines of standard error from being commands to GitHub's runner, which
/// reads it like standard output.
pub fn defuse_messages() {
    IS_READ_BY_RUNNER.store(true, Ordering::Relaxed);
}

/// Writes a line to standard error without the control characters that it holds.
/// `eprintln!` of all commands is this function. A reader that has gone is no error.
pub fn message(text: fmt::Arguments<'_>) {
    let _ = Messages.write_all(format!("{text}\n").as_bytes());
}

/// Standard error for whole lines of text, without their control characters.
pub struct Messages;

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let text = if has_colour_on_stderr() {
            styled(&text)
        } else {
            printable(&text).into_owned()
        };
        let text = if IS_READ_BY_RUNNER.load(Ordering::Relaxed) {
            text.split_inclusive('\n').map(inert).collect()
        } else {
            text
        };
        io::stderr().write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Whether standard error takes colours.
pub fn has_colour_on_stderr() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes what clap says: help and version to standard output, errors, which repeat
/// arguments, to standard error.
pub fn usage(error: &clap::Error) -> Exit {
    let text = error.render();
    if !error.use_stderr() {
        let text = if colour() {
            text.ansi().to_string()
        } else {
            text.to_string()
        };
        return print(&text);
    }
    let text = if has_colour_on_stderr() {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    message(format_args!("{}", text.trim_end_matches('\n')));
    Exit::Input
}

/// Writes text to standard output, without control characters but svclab's own colours
/// where they are wanted. A reader that has seen enough is no error.
pub fn print(text: &str) -> Exit {
    if colour() {
        print_safe(&styled(text))
    } else {
        print_safe(&printable(text))
    }
}

fn print_safe(text: &str) -> Exit {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes a document to standard output as JSON, its last line ended.
pub fn print_json(document: &impl Serialize) -> Exit {
    match serde_json::to_string_pretty(document) {
        Ok(text) => print_safe(&(printable::json(&text) + "\n")),
        Err(error) => {
            eprintln!("error: {error}");
            Exit::Bug
        }
    }
}

/// What a command ends with after writing.
pub fn written(written: io::Result<()>) -> Exit {
    match written {
        Ok(()) => Exit::Success,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Exit::Success,
        Err(error) => {
            eprintln!("error: cannot write the output: {error}");
            Exit::Machine
        }
    }
}

/// Tells of an error and what to do about it.
pub fn told(error: &RunError) -> Exit {
    eprintln!("error: {}", error.message);
    if let Some(remedy) = &error.remedy {
        eprintln!("what to do: {}", remedy.replace('\n', "\n            "));
    }
    Exit::Of(error.trouble.exit_code())
}

/// Prints a note to standard error, which may be closed.
pub fn note(text: &str) {
    eprintln!("note: {text}");
}

/// What a command ends with that the system gives nothing to work with.
pub fn refused(error: &io::Error) -> Exit {
    eprintln!("error: svclab cannot begin: {error}");
    if let Some(remedy) = shortage::remedy(error) {
        eprintln!("  what to do: {remedy}");
    }
    Exit::Machine
}

/// Whether standard output takes colours.
pub fn colour() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// How wide standard output is, in columns.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    if io::stdout().is_terminal() {
        columns.unwrap_or(100)
    } else {
        100
    }
}
