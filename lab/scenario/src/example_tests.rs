//! The lab that is right, for tests that change one thing in it, and what a person
//! is told then.

use super::Scenario;
use svclab_diagnostic::source::{Source, Sources};
use svclab_diagnostic::{Diagnostic, Rendering};

/// The lab that is right; tests change one thing in it.
pub const EXAMPLE: &str = include_str!("example.yaml");

/// What loading a text says, errors and warnings, as a terminal shows it.
pub fn told(text: &str) -> String {
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

/// The example with one part replaced.
pub fn with(part: &str, replacement: &str) -> String {
    assert!(EXAMPLE.contains(part), "{part} is not in the example");
    EXAMPLE.replacen(part, replacement, 1)
}
