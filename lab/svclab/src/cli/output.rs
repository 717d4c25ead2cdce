//! Writes to standard output and standard error, either of which may be closed.

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

/// Prevents GitHub's runner from interpreting lines of standard error as commands. The runner reads
/// standard error like standard output.
pub fn disable_runner_commands() {
    IS_READ_BY_RUNNER.store(true, Ordering::Relaxed);
}

/// Writes a line to standard error without control characters. `eprintln!` in all commands calls
/// this function. A disconnected reader is not an error.
pub fn print_message(text: fmt::Arguments<'_>) {
    let _ = Messages.write_all(format!("{text}\n").as_bytes());
}

/// Standard error for whole lines of text, without control characters.
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

/// Whether standard error supports colours.
pub fn has_colour_on_stderr() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes a message of clap: help and version to standard output, errors to standard error.
pub fn print_usage(error: &clap::Error) -> Exit {
    let text = error.render();
    if !error.use_stderr() {
        let text = if has_colour_on_stdout() {
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
    print_message(format_args!("{}", text.trim_end_matches('\n')));
    Exit::Input
}

/// Writes text to standard output without control characters, except for svclab's own colours if
/// they are enabled. A disconnected reader is not an error.
pub fn print(text: &str) -> Exit {
    if has_colour_on_stdout() {
        print_safe(&styled(text))
    } else {
        print_safe(&printable(text))
    }
}

fn print_safe(text: &str) -> Exit {
    let mut out = io::stdout().lock();
    write_exit(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes a document to standard output as JSON with a final newline.
pub fn print_json(document: &impl Serialize) -> Exit {
    match serde_json::to_string_pretty(document) {
        Ok(text) => print_safe(&(printable::escape_json(&text) + "\n")),
        Err(error) => {
            eprintln!("error: {error}");
            Exit::Bug
        }
    }
}

/// Returns the exit code for the result of a write.
pub fn write_exit(written: io::Result<()>) -> Exit {
    match written {
        Ok(()) => Exit::Success,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Exit::Success,
        Err(error) => {
            eprintln!("error: cannot write the output: {error}");
            Exit::Machine
        }
    }
}

/// Prints an error with its help, and returns its exit code.
pub fn print_error(error: &RunError) -> Exit {
    eprintln!("error: {}", error.message);
    if let Some(remedy) = &error.remedy {
        eprintln!("help: {}", remedy.replace('\n', "\n      "));
    }
    Exit::Code(error.kind.exit_code())
}

/// Prints a note to standard error.
pub fn print_note(text: &str) {
    eprintln!("note: {text}");
}

/// Prints an error of the system at the start of a command, and returns its exit code.
pub fn print_start_error(error: &io::Error) -> Exit {
    eprintln!("error: svclab cannot start: {error}");
    if let Some(remedy) = shortage::remedy(error) {
        eprintln!("  help: {remedy}");
    }
    Exit::Machine
}

/// Whether standard output supports colours.
pub fn has_colour_on_stdout() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Returns the width of standard output in columns: 100 unless it is a terminal and `COLUMNS` is
/// set.
pub fn output_width() -> usize {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    if io::stdout().is_terminal() {
        columns.unwrap_or(100)
    } else {
        100
    }
}
