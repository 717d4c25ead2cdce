//! Converts cases that cannot run to results.

use super::{PrepareOptions, Prepared, prepare};
use crate::results::CaseResult;
use crate::run::select::SelectedLab;
use crate::run::summary::{first_error_location, summarize};
use crate::run::tasks::catch_panic_sync;
use svclab_diagnostic::Diagnostic;
use svclab_scenario::Case;

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
    let named = lab.rerun_name(case);
    if named != case.id {
        result.named = named;
    }
    Err(Box::new(InvalidCase {
        diagnostics,
        result,
    }))
}
