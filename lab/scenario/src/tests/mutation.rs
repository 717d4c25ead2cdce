//! Tests that any mutation of a file loads or gives a diagnostic, and that the diagnostic can be
//! rendered.

use proptest::prelude::*;

use crate::Scenario;
use svclab_diagnostic::Rendering;
use svclab_diagnostic::source::{Source, Sources};

const EXAMPLE: &str = include_str!("../example.yaml");

/// Fragments with a meaning in YAML or in a lab.
const FRAGMENTS: [&str; 24] = [
    "", "\n", " ", "\t", ":", "- ", "---\n", "[", "]", "{", "}", "\"", "'", "&a ", "*a", "!!int ",
    "<<: ", "null", "-1", "1e999", "é", "\u{1b}", "\u{feff}", "\r\n",
];

/// Returns an offset in the example on a character boundary.
fn char_boundary(offset: usize) -> usize {
    EXAMPLE.floor_char_boundary(offset % (EXAMPLE.len() + 1))
}

fn load(text: String) -> Result<usize, String> {
    let Ok(source) = Source::from_bytes("example.yaml", text.into_bytes()) else {
        return Err("not a text".to_owned());
    };
    let sources = Sources::from(source);
    match Scenario::load(&sources) {
        Ok((scenario, _)) => Ok(scenario.cases().len()),
        Err(errors) => Err(errors
            .iter()
            .map(|error| error.render(&sources, Rendering::default()))
            .collect()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fragment_inserted_loads_or_gives_diagnostic(
        at: usize,
        length in 0usize..40,
        piece in prop::sample::select(FRAGMENTS.as_slice()),
    ) {
        let (start, end) = (char_boundary(at), char_boundary(at).saturating_add(length));
        let end = EXAMPLE.floor_char_boundary(end.min(EXAMPLE.len())).max(start);
        let text = format!("{}{piece}{}", &EXAMPLE[..start], &EXAMPLE[end..]);
        match load(text) {
            Ok(cases) => prop_assert!(cases > 0),
            Err(diagnostics) => {
                prop_assert!(diagnostics.contains("error"), "{diagnostics}");
                prop_assert!(!diagnostics.contains(char::from(27)), "escape character in output");
            }
        }
    }

    #[test]
    fn part_moved_loads_or_gives_diagnostic(from: usize, to: usize, length in 1usize..200) {
        let start = char_boundary(from);
        let end = EXAMPLE.floor_char_boundary(start.saturating_add(length).min(EXAMPLE.len()));
        let part = &EXAMPLE[start..end.max(start)];
        let to = char_boundary(to);
        let text = format!("{}{part}{}", &EXAMPLE[..to], &EXAMPLE[to..]);
        match load(text) {
            Ok(cases) => prop_assert!(cases > 0),
            Err(diagnostics) => prop_assert!(diagnostics.contains("error")),
        }
    }
}
