//! Converts labs that cannot run to results.

use super::rerun_name;
use crate::results::{CaseResult, FileLine, RunError};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;

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
