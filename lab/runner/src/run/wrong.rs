//! Converts labs and cases that cannot run to results.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::prepare::{Prepared, Wishes, prepare};
use super::select::{Chosen, name_to_run_again};
use crate::results::{CaseResult, Place, RunError, Trouble};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;
use svclab_scenario::Case;

/// Lab that cannot run.
#[derive(Debug, Clone)]
pub struct WrongLab {
    /// Lab name: the name of its file.
    pub name: String,
    /// Name of the lab on the command line.
    pub named: String,
    /// Path of the lab file.
    pub file: String,
    /// Files that the lab was read from.
    pub sources: Sources,
    /// Errors and warnings about the lab. Empty if reading the lab panicked.
    pub diagnostics: Vec<Diagnostic>,
    /// Summary of the errors.
    pub error: RunError,
    /// Location of the first error.
    pub place: Place,
}

impl WrongLab {
    /// Returns the lab as a case without a verdict.
    #[must_use]
    pub fn result(&self) -> CaseResult {
        let mut result = CaseResult::without_verdict(&self.name, &self.name, self.error.clone());
        let named = name_to_run_again(&self.named, &self.file);
        if named != self.name {
            result.named = named;
        }
        result.place = Some(self.place.clone());
        result
    }
}

/// Case that cannot be prepared.
#[derive(Debug, Clone)]
pub struct WrongCase {
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
pub fn prepare_or_tell(
    lab: &Chosen,
    case: &Case,
    wishes: Wishes,
) -> Result<Prepared, Box<WrongCase>> {
    let sources = &lab.scenario.sources;
    let (diagnostics, error) = match guarded(|| prepare(lab, case, wishes)) {
        Ok(Ok(prepared)) => return Ok(prepared),
        Ok(Err(diagnostics)) => {
            let error = in_short(sources, &diagnostics);
            (diagnostics, error)
        }
        Err(error) => (Vec::new(), error),
    };
    let mut result = CaseResult::without_verdict(&case.lab, &case.id, error);
    result.place = place(sources, &diagnostics);
    let file = sources.iter().next();
    let file = file.map_or(Cow::default(), |(_, source)| source.path());
    let named = name_to_run_again(&lab.named, &file);
    if named != case.lab {
        let rest = case.id.strip_prefix(&case.lab).unwrap_or_default();
        result.named = format!("{named}{rest}");
    }
    Err(Box::new(WrongCase {
        diagnostics,
        result,
    }))
}

/// Runs `work` and converts a panic to an error.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, RunError> {
    // The data that `work` used is not used again after a panic.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| RunError::panicked(payload.as_ref()))
}

/// Returns a summary with one line for each error. Each line except the first ends with its
/// location; [`place`] returns that of the first.
pub(super) fn in_short(sources: &Sources, diagnostics: &[Diagnostic]) -> RunError {
    let errors = || diagnostics.iter().filter(|each| each.is_error());
    let lines = errors().enumerate().map(|(number, error)| {
        let at = place_of(sources, error).filter(|_| number > 0);
        let at = at.map_or_else(String::new, |at| format!(" ({at})"));
        format!("{}{at}", error.message)
    });
    let mut helps: Vec<&str> = Vec::new();
    for help in errors().flat_map(|error| &error.help) {
        if !helps.contains(&help.as_str()) {
            helps.push(help);
        }
    }
    RunError {
        trouble: Trouble::Input,
        message: lines.collect::<Vec<_>>().join("\n"),
        remedy: (!helps.is_empty()).then(|| helps.join("\n")),
    }
}

/// Returns the location of the first error. `None` if the error concerns a whole file.
pub(super) fn place(sources: &Sources, diagnostics: &[Diagnostic]) -> Option<Place> {
    let error = diagnostics.iter().find(|each| each.is_error())?;
    place_of(sources, error)
}

fn place_of(sources: &Sources, diagnostic: &Diagnostic) -> Option<Place> {
    let span = diagnostic.primary.as_ref()?.span;
    Some(Place {
        file: sources.get(span.file)?.name().to_owned(),
        line: span.line,
    })
}
