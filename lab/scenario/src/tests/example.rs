//! Valid example lab for tests that change one part of it, and the rendered diagnostics of the
//! result.

use crate::Scenario;
use svclab_diagnostic::source::{Source, Sources};
use svclab_diagnostic::{Diagnostic, Rendering};

/// Valid example lab.
pub(crate) const EXAMPLE: &str = include_str!("../example.yaml");

/// Loads a lab and renders its errors and warnings for a terminal.
pub(crate) fn load_diagnostics(text: &str) -> String {
    let source = match Source::from_bytes("example.yaml", text.into()) {
        Ok(source) => source,
        Err(error) => {
            return Diagnostic::from(error).render(&Sources::default(), Rendering::default());
        }
    };
    let sources = Sources::from(source);
    let diagnostics = match Scenario::load(&sources) {
        Ok((_, warnings)) => warnings,
        Err(errors) => errors,
    };
    let rendered: Vec<String> = diagnostics
        .iter()
        .map(|diagnostic| diagnostic.render(&sources, Rendering::default()))
        .collect();
    rendered.join("\n\n")
}

/// Replaces one part of the example.
pub(crate) fn example_with(part: &str, replacement: &str) -> String {
    assert!(EXAMPLE.contains(part), "{part} is not in the example");
    EXAMPLE.replacen(part, replacement, 1)
}
