//! Converts labs and cases that cannot run to results.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{PrepareOptions, Prepared, prepare};
use crate::results::{CaseResult, ErrorKind, FileLine, RunError};
use crate::run::select::{SelectedLab, rerun_name};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;
use svclab_scenario::Case;

/// Lab that cannot run.
#[derive(Debug, Clone)]
pub struct InvalidLab {
    /// Lab name: the name of its file.
    pub name: String,
    /// Name of the lab on the command line.
    pub cli_name: String,
    /// Path of the lab file.
    pub file: String,
    /// Files that the lab was read from.
    pub sources: Sources,
    /// Errors and warnings about the lab. Empty if reading the lab panicked.
    pub diagnostics: Vec<Diagnostic>,
    /// Summary of the errors.
    pub error: RunError,
    /// Location of the first error.
    pub location: FileLine,
}

impl InvalidLab {
    /// Returns the lab as a case without a verdict.
    #[must_use]
    pub fn to_case_result(&self) -> CaseResult {
        let mut result = CaseResult::without_verdict(&self.name, &self.name, self.error.clone());
        let rerun_name = rerun_name(&self.cli_name, &self.file);
        if rerun_name != self.name {
            result.named = rerun_name;
        }
        result.location = Some(self.location.clone());
        result
    }
}

/// Case that cannot be prepared.
#[derive(Debug, Clone)]
pub struct InvalidCase {
    /// Errors and warnings about the case. Empty if preparing the case panicked.
    pub diagnostics: Vec<Diagnostic>,
    /// Case without a verdict.
    pub result: CaseResult,
}

/// Prepares a case.
///
/// # Errors
///
/// When the case is invalid. A panic becomes an error of this case only, reported as a bug.
pub fn prepare_case(
    lab: &SelectedLab,
    case: &Case,
    options: PrepareOptions,
) -> Result<Prepared, Box<InvalidCase>> {
    let sources = &lab.scenario.sources;
    let (diagnostics, error) = match catch_panic_sync(|| prepare(lab, case, options)) {
        Ok(Ok(prepared)) => return Ok(prepared),
        Ok(Err(diagnostics)) => {
            let error = summarize(sources, &diagnostics);
            (diagnostics, error)
        }
        Err(error) => (Vec::new(), error),
    };
    let mut result = CaseResult::without_verdict(&case.lab, &case.id, error);
    result.location = first_error_location(sources, &diagnostics);
    let file = sources.iter().next();
    let file = file.map_or(Cow::default(), |(_, source)| source.path());
    let named = rerun_name(&lab.cli_name, &file);
    if named != case.lab {
        let rest = case.id.strip_prefix(&case.lab).unwrap_or_default();
        result.named = format!("{named}{rest}");
    }
    Err(Box::new(InvalidCase {
        diagnostics,
        result,
    }))
}

/// Runs `work` and converts a panic to an error.
pub(in crate::run) fn catch_panic_sync<T>(work: impl FnOnce() -> T) -> Result<T, RunError> {
    // The data that `work` used is not used again after a panic.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| RunError::panicked(payload.as_ref()))
}

/// Returns a summary with one line for each error. Each line except the first ends with its
/// location; [`first_error_location`] returns that of the first.
pub(in crate::run) fn summarize(sources: &Sources, diagnostics: &[Diagnostic]) -> RunError {
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
pub(in crate::run) fn first_error_location(
    sources: &Sources,
    diagnostics: &[Diagnostic],
) -> Option<FileLine> {
    let error = diagnostics.iter().find(|each| each.is_error())?;
    diagnostic_location(sources, error)
}

pub(super) fn diagnostic_location(sources: &Sources, diagnostic: &Diagnostic) -> Option<FileLine> {
    FileLine::from_span(sources, diagnostic.primary.as_ref()?.span)
}
