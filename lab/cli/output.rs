//! Writing to standard output, which may go away.

use std::io::{self, ErrorKind, IsTerminal as _, Write};

use anstream::{AutoStream, ColorChoice};

use super::exit::Exit;
use crate::shortage;

/// Writes text to standard output. A reader that has seen enough is no error.
pub fn print(text: &str) -> Exit {
    let mut out = io::stdout().lock();
    told(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What a command ends with after writing.
pub fn told(written: io::Result<()>) -> Exit {
    match written {
        Ok(()) => Exit::Success,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Exit::Success,
        Err(error) => {
            eprintln!("error: cannot write the output: {error}");
            Exit::Of(3)
        }
    }
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
