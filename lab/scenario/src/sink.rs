//! Collects diagnostics. A diagnostic that several cases produce is stored once.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;

/// Maximum number of stored errors, and of stored warnings. Further diagnostics are only counted,
/// which bounds the memory for a file with a million errors.
pub const MAX_DIAGNOSTICS: usize = 100;

/// Diagnostics in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Sink {
    errors: DiagnosticList,
    warnings: DiagnosticList,
    /// Hashes of message and span of all diagnostics.
    hashes: HashSet<u64>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct DiagnosticList {
    kept: Vec<Diagnostic>,
    omitted: usize,
}

impl Sink {
    /// Stores a diagnostic, unless one with the same message and span exists.
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        let span: Option<Span> = diagnostic.primary.as_ref().map(|label| label.span);
        let key = self.hasher.hash_one((&diagnostic.message, span));
        if !self.hashes.insert(key) {
            return;
        }
        let list = if diagnostic.is_error() {
            &mut self.errors
        } else {
            &mut self.warnings
        };
        if list.kept.len() < MAX_DIAGNOSTICS {
            list.kept.push(diagnostic);
        } else {
            list.omitted += 1;
        }
    }

    pub(crate) fn extend(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        for diagnostic in diagnostics {
            self.push(diagnostic);
        }
    }

    /// Whether there is at least one error.
    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.kept.is_empty()
    }

    /// Returns the first error, otherwise the first warning.
    pub(crate) fn into_first(self) -> Option<Diagnostic> {
        self.into_inner().into_iter().next()
    }

    /// Returns all errors, then all warnings, each in order of arrival.
    pub(crate) fn into_inner(self) -> Vec<Diagnostic> {
        let more = |count: usize, kind: &str| match count {
            0 => None,
            1 => Some(format!("and 1 more {kind}")),
            count => Some(format!("and {count} more {kind}s")),
        };
        let more_errors = more(self.errors.omitted, "error").map(Diagnostic::error);
        let more_warnings = more(self.warnings.omitted, "warning").map(Diagnostic::warning);
        let errors = self.errors.kept.into_iter().chain(more_errors);
        errors
            .chain(self.warnings.kept)
            .chain(more_warnings)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sink_many_diagnostics_counts_rest() {
        let mut sink = Sink::default();
        for number in 0..MAX_DIAGNOSTICS + 20 {
            sink.push(Diagnostic::warning(format!("odd {number}")));
            sink.push(Diagnostic::warning("odd 0"));
        }
        assert!(!sink.has_errors());
        for number in 0..=MAX_DIAGNOSTICS {
            sink.push(Diagnostic::error(format!("wrong {number}")));
        }
        assert!(sink.has_errors());
        let diagnostics = sink.into_inner();
        assert_eq!(diagnostics.len(), 2 * MAX_DIAGNOSTICS + 2);
        let (errors, warnings) = diagnostics.split_at(MAX_DIAGNOSTICS + 1);
        assert_eq!(errors[MAX_DIAGNOSTICS].message, "and 1 more error");
        assert!(errors.iter().all(Diagnostic::is_error));
        assert_eq!(warnings[MAX_DIAGNOSTICS].message, "and 20 more warnings");
        assert!(!warnings.iter().any(Diagnostic::is_error));
    }
}
