//! Summarizes the diagnostics of a lab or case that cannot run.

use crate::results::{ErrorKind, FileLine, RunError};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;

/// Returns a summary with one line for each error. Each line except the first ends with its
/// location; [`first_error_location`] returns that of the first.
pub(super) fn summarize(sources: &Sources, diagnostics: &[Diagnostic]) -> RunError {
    let errors = || diagnostics.iter().filter(|each| each.is_error());
    let lines = errors().enumerate().map(|(number, error)| {
        let location = diagnostic_location(sources, error).filter(|_| number > 0);
        let location_text = location.map_or_else(String::new, |at| format!(" ({at})"));
        format!("{}{location_text}", error.message)
    });
    let mut helps: Vec<&str> = Vec::new();
    for help in errors().flat_map(|error| &error.help) {
        if !helps.contains(&help.as_str()) {
            helps.push(help);
        }
    }
    RunError {
        kind: ErrorKind::Input,
        message: lines.collect::<Vec<_>>().join("\n"),
        remedy: (!helps.is_empty()).then(|| helps.join("\n")),
    }
}

/// Returns the location of the first error. `None` if the error concerns a whole file.
pub(super) fn first_error_location(
    sources: &Sources,
    diagnostics: &[Diagnostic],
) -> Option<FileLine> {
    let error = diagnostics.iter().find(|each| each.is_error())?;
    diagnostic_location(sources, error)
}

pub(super) fn diagnostic_location(sources: &Sources, diagnostic: &Diagnostic) -> Option<FileLine> {
    FileLine::from_span(sources, diagnostic.primary.as_ref()?.span)
}
