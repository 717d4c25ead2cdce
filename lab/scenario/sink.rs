//! Where diagnostics gather: each once, however many cases meet it.

use std::collections::HashSet;

use super::diagnostic::Diagnostic;
use super::source::Span;

/// Diagnostics in the order they were found.
#[derive(Debug, Default)]
pub(super) struct Sink {
    found: Vec<Diagnostic>,
    seen: HashSet<(String, Option<Span>)>,
}

impl Sink {
    /// Takes a diagnostic, unless one with the same message at the same place is
    /// there.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let place = diagnostic.primary.as_ref().map(|label| label.span);
        if self.seen.insert((diagnostic.message.clone(), place)) {
            self.found.push(diagnostic);
        }
    }

    /// Takes several.
    pub fn extend(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        for diagnostic in diagnostics {
            self.push(diagnostic);
        }
    }

    /// Whether there is an error among them.
    pub fn has_errors(&self) -> bool {
        self.found.iter().any(Diagnostic::is_error)
    }

    /// All of them, errors first, otherwise as they were found.
    pub fn into_inner(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|diagnostic| !diagnostic.is_error());
        self.found
    }
}
