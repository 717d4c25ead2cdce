//! Writing to standard output, which may go away.

use std::io::{self, ErrorKind, IsTerminal as _, Write};

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

use super::exit::Exit;
use crate::report::{RunError, Trouble};
use crate::shortage;

/// Writes text to standard output. A reader that has seen enough is no error.
pub fn print(text: &str) -> Exit {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes a document to standard output as JSON, its last line ended.
pub fn print_json(document: &impl Serialize) -> Exit {
    match serde_json::to_string_pretty(document) {
        Ok(text) => print(&(text + "\n")),
        Err(error) => {
            eprintln!("error: {error}");
            Exit::Of(Trouble::Bug.exit_code())
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
            Exit::Of(3)
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

/// What a command ends with that the system gives nothing to work with.
pub fn refused(error: &io::Error) -> Exit {
    eprintln!("error: svclab cannot begin: {error}");
    if let Some(remedy) = shortage::remedy(error) {
        eprintln!("  what to do: {remedy}");
    }
    Exit::Of(3)
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
