//! Labs and cases that cannot be run, as the results of a run have them.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::prepare::{Prepared, Wishes, prepare};
use super::select::{Chosen, name_to_run_again};
use crate::results::{CaseResult, Place, RunError, Trouble};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;
use svclab_scenario::Case;

/// A lab that cannot be run.
#[derive(Debug, Clone)]
pub struct WrongLab {
    /// The lab's name: that of its file.
    pub name: String,
    /// How the lab is named on the command line.
    pub named: String,
    /// The path of its file.
    pub file: String,
    /// The files that it was read from.
    pub sources: Sources,
    /// What is wrong with it, errors and warnings; nothing where reading it panicked.
    pub diagnostics: Vec<Diagnostic>,
    /// The same in a few words.
    pub error: RunError,
    /// Where the first error is.
    pub place: Place,
}

impl WrongLab {
    /// The lab as a case without a verdict.
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

/// A case that cannot be prepared.
#[derive(Debug, Clone)]
pub struct WrongCase {
    /// What is wrong with it, errors and warnings; nothing where preparing it panicked.
    pub diagnostics: Vec<Diagnostic>,
    /// The case without a verdict.
    pub result: CaseResult,
}

/// Prepares a case.
///
/// # Errors
///
/// What is wrong with the case. A panic is a bug that only this case has.
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

/// Does work whose panic is an error.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, RunError> {
    // What it worked on is not used again.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| RunError::panicked(payload.as_ref()))
}

/// The errors of a lab in a few words each: the first is where [`place`] says.
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

/// Where the first error is; `None` where it is about a file as a whole.
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
