//! Tests that any mutation of a file loads or gives a diagnostic, and that the diagnostic can be
//! rendered.

use proptest::prelude::*;

use super::Scenario;
use svclab_diagnostic::Rendering;
use svclab_diagnostic::source::{Source, Sources};

const EXAMPLE: &str = include_str!("example.yaml");

/// Fragments with a meaning in YAML or in a lab.
const PIECES: [&str; 24] = [
    "", "\n", " ", "\t", ":", "- ", "---\n", "[", "]", "{", "}", "\"", "'", "&a ", "*a", "!!int ",
    "<<: ", "null", "-1", "1e999", "é", "\u{1b}", "\u{feff}", "\r\n",
];

/// Returns an offset in the example on a character boundary.
fn place(at: usize) -> usize {
    EXAMPLE.floor_char_boundary(at % (EXAMPLE.len() + 1))
}

fn load(text: String) -> Result<usize, String> {
    let Ok(source) = Source::from_bytes("example.yaml", text.into_bytes()) else {
        return Err("no text".to_owned());
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
    fn a_piece_put_in_or_in_place_of_another(
        at: usize,
        length in 0usize..40,
        piece in prop::sample::select(PIECES.as_slice()),
    ) {
        let (start, end) = (place(at), place(at).saturating_add(length));
        let end = EXAMPLE.floor_char_boundary(end.min(EXAMPLE.len())).max(start);
        let text = format!("{}{piece}{}", &EXAMPLE[..start], &EXAMPLE[end..]);
        match load(text) {
            Ok(cases) => prop_assert!(cases > 0),
            Err(told) => {
                prop_assert!(told.contains("error"), "{told}");
                prop_assert!(!told.contains(char::from(27)), "an escape reaches the terminal");
            }
        }
    }

    #[test]
    fn a_part_moved_elsewhere(from: usize, to: usize, length in 1usize..200) {
        let start = place(from);
        let end = EXAMPLE.floor_char_boundary(start.saturating_add(length).min(EXAMPLE.len()));
        let part = &EXAMPLE[start..end.max(start)];
        let to = place(to);
        let text = format!("{}{part}{}", &EXAMPLE[..to], &EXAMPLE[to..]);
        match load(text) {
            Ok(cases) => prop_assert!(cases > 0),
            Err(told) => prop_assert!(told.contains("error")),
        }
    }
}
