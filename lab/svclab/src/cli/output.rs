//! Writes to standard output and standard error, either of which may be closed.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum as _;
use serde::Serialize;

use super::args::ColorMode;
use super::error::{CliError, InvalidInput, OutputError};
use svclab_diagnostic::printable::{self, printable, styled};
use svclab_diagnostic::source::Sources;
use svclab_diagnostic::{Diagnostic, Rendering};
use svclab_report::{TerminalWidth, inert};
use svclab_runner::results::RunError;
use svclab_scenario::MAX_DIAGNOSTICS;

/// Whether GitHub's runner reads standard output and standard error.
static IS_READ_BY_RUNNER: AtomicBool = AtomicBool::new(false);

/// Prevents GitHub's runner from interpreting lines of text as commands. The runner reads standard
/// error like standard output.
pub(crate) fn disable_runner_commands() {
    IS_READ_BY_RUNNER.store(true, Ordering::Relaxed);
}

/// Whether GitHub's runner reads the output.
pub(crate) fn is_read_by_runner() -> bool {
    IS_READ_BY_RUNNER.load(Ordering::Relaxed)
}

/// Writes a line to standard error without control characters. A disconnected reader is not an
/// error.
pub(crate) fn print_message(text: fmt::Arguments<'_>) {
    let _ = Messages.write_all(format!("{text}\n").as_bytes());
}

/// Standard error for whole lines of text, without control characters.
pub(crate) struct Messages;

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let text = if has_colour_on_stderr() {
            styled(&text)
        } else {
            printable(&text).into_owned()
        };
        io::stderr().write_all(without_commands(text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Whether standard error supports colours; see [`has_colour_on_stdout`].
fn has_colour_on_stderr() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

/// Prints the error that ends a command.
pub(crate) fn print_error(error: &CliError) {
    match error {
        CliError::WithExitCode { error, .. } => print_error(error),
        CliError::Usage(error) => {
            let text = error.render();
            let text = if has_colour_on_stderr() {
                text.ansi().to_string()
            } else {
                text.to_string()
            };
            print_message(format_args!("{}", text.trim_end_matches('\n')));
        }
        CliError::InvalidInput(inputs) => {
            for InvalidInput {
                sources,
                diagnostics,
            } in inputs
            {
                print_diagnostics(sources, diagnostics);
            }
        }
        CliError::Interrupted | CliError::Stopped { .. } => print_message(format_args!("{error}")),
        _ => {
            let diagnostic = Diagnostic::error(error.to_string());
            print_diagnostic(&diagnostic.with_optional_help(error.help()));
            if let CliError::Capture { written, .. } = error {
                print_message(format_args!(
                    "the capture is valid up to the error: {written}"
                ));
            }
        }
    }
}

/// Prints the error of one of several cases.
pub(crate) fn print_case_error(case: &str, error: &RunError) {
    let diagnostic = Diagnostic::error(format!("{case}: {}", error.message));
    print_diagnostic(&diagnostic.with_optional_help(error.remedy.clone()));
}

/// Prints a diagnostic without a position.
fn print_diagnostic(diagnostic: &Diagnostic) {
    print_message(format_args!(
        "{}",
        diagnostic.render(&Sources::default(), rendering())
    ));
}

/// Prints diagnostics to standard error: at most [`MAX_DIAGNOSTICS`] errors and as many warnings.
/// Adds the number of remaining diagnostics.
pub(crate) fn print_diagnostics(sources: &Sources, diagnostics: &[Diagnostic]) {
    let limit = |is_error: bool| {
        let same_severity = diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.is_error() == is_error);
        let count = same_severity.count();
        // A list that was already truncated ends with an extra entry that states the number of the
        // rest.
        let is_cut = count > MAX_DIAGNOSTICS + 1;
        (count, if is_cut { MAX_DIAGNOSTICS } else { count })
    };
    let limits = [limit(false), limit(true)];
    let mut shown = [0; 2];
    for diagnostic in diagnostics {
        let kind = usize::from(diagnostic.is_error());
        if shown[kind] < limits[kind].1 {
            shown[kind] += 1;
            let text = diagnostic.render(sources, rendering());
            print_message(format_args!("{}\n", text.trim_end()));
        }
    }
    for (kind, (count, max)) in ["warnings", "errors"].into_iter().zip(limits) {
        if max < count {
            print_message(format_args!("and {} more {kind}\n", count - max));
        }
    }
}

/// Returns the options for rendering diagnostics: coloured if standard error has colours.
fn rendering() -> Rendering {
    Rendering {
        colour: has_colour_on_stderr(),
        ..Rendering::default()
    }
}

pub(crate) fn print_note(text: &str) {
    print_message(format_args!("note: {text}"));
}

/// Writes text to standard output without control characters, except for svclab's own colours if
/// they are enabled. A disconnected reader is not an error.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let text = if has_colour_on_stdout() {
        styled(text)
    } else {
        printable(text).into_owned()
    };
    print_safe(&without_commands(text))
}

/// Changes lines that GitHub's runner would interpret, if it reads the output.
fn without_commands(text: String) -> String {
    if is_read_by_runner() {
        text.split_inclusive('\n').map(inert).collect()
    } else {
        text
    }
}

/// Writes the help or version text of clap to standard output.
pub(crate) fn print_usage(text: &clap::builder::StyledStr) -> Result<(), OutputError> {
    if has_colour_on_stdout() {
        print(&text.ansi().to_string())
    } else {
        print(&text.to_string())
    }
}

/// Writes text of svclab itself to standard output, unchanged. A disconnected reader is not an
/// error.
pub(crate) fn print_safe(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    check_output(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes a document to standard output as JSON with a final newline.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), OutputError> {
    let text = serde_json::to_string_pretty(document)?;
    print_safe(&(printable::escape_json(&text) + "\n"))
}

/// Checks the result of a write to standard output. A disconnected reader is not an error.
pub(crate) fn check_output(written: io::Result<()>) -> Result<(), OutputError> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(OutputError::Write(error)),
        _ => Ok(()),
    }
}

/// Sets whether outputs have colours.
pub(crate) fn set_color(mode: ColorMode) {
    let choice = match mode {
        ColorMode::Auto => ColorChoice::Auto,
        ColorMode::Always => ColorChoice::Always,
        ColorMode::Never => ColorChoice::Never,
    };
    choice.write_global();
}

/// Sets whether outputs have colours from arguments that clap does not accept, or that request
/// help. Arguments after `--` belong to another program.
pub(crate) fn set_color_of_unparsed(arguments: &[OsString]) {
    let own = arguments.split(|argument| argument == "--").next();
    let mut own = own.unwrap_or_default().iter().map(|word| word.to_str());
    let mut last = None;
    while let Some(word) = own.next() {
        last = match word {
            Some("--color") => own.next().flatten(),
            Some(word) => word.strip_prefix("--color=").or(last),
            None => last,
        };
    }
    if let Some(mode) = last.and_then(|mode| ColorMode::from_str(mode, false).ok()) {
        set_color(mode);
    }
}

/// Whether standard output supports colours: as `--color` says, otherwise according to `NO_COLOR`,
/// `CLICOLOR_FORCE`, `CLICOLOR` and the terminal (`AutoStream::choice` of anstream).
pub(crate) fn has_colour_on_stdout() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Returns the width of standard output in columns: 100 unless it is a terminal.
pub(crate) fn output_width() -> usize {
    const DEFAULT: usize = 100;
    terminal_width().0.unwrap_or(DEFAULT)
}

/// Returns the width of the terminal of standard output, if it is one. `COLUMNS` precedes the width
/// of the terminal.
pub(crate) fn terminal_width() -> TerminalWidth {
    if !io::stdout().is_terminal() {
        return TerminalWidth::default();
    }
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|columns| columns.parse().ok());
    let terminal = || {
        let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
        Some(usize::from(width.0)).filter(|width| *width > 0)
    };
    TerminalWidth(columns.or_else(terminal))
}
