//! Renders the chapter of the book that lists the kinds of faults.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{Table, presets};

use crate::kinds::Kind;
use crate::mode::Mode;

const INTRODUCTION: &str = "\
# Fault catalogue

<!-- Generated: `UPDATE_DOCS=1 cargo test -p svclab-diagnosis` updates this file. -->

`scripts/bench diagnosis` breaks a healthy lab with each of these faults and asks `explain`, \
`replay`, `diff`, `bisect` and `why` for the cause. An answer is exact if it names the object at \
fault. The bench also counts false all-clears and fixes that do not help.

- Each fault is drawn from a seed: the node, the rule, the Service and the values.
- `scripts/bench diagnosis --help` lists the options that select kinds, seeds and pairs of faults.
- A fault that breaks no probe of the lab is not counted.
- A real kube-proxy writes the rules for kinds whose names begin with `real-proxy`. They need \
`--kube-proxy`.
";

/// Renders the chapter as Markdown.
pub(crate) fn render(kinds: &[Kind]) -> String {
    let mut text = INTRODUCTION.to_owned();
    let areas: BTreeSet<&str> = kinds.iter().map(|kind| kind.area).collect();
    for area in areas {
        let mut table = Table::new();
        table
            .load_style(presets::ASCII_MARKDOWN)
            .set_header(["kind", "modes of kube-proxy"]);
        for kind in kinds.iter().filter(|kind| kind.area == area) {
            table.add_row([format!("`{}`", kind.name), modes(kind.modes)]);
        }
        let (first, rest) = area.split_at(1);
        let title = format!("{}{rest}", first.to_uppercase());
        let _ = write!(text, "\n## {title}\n\n{table}\n");
    }
    text
}

fn modes(modes: &[Mode]) -> String {
    if modes == Mode::ALL {
        return "all".to_owned();
    }
    let names: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::kinds;

    #[test]
    fn catalogue_in_the_book_is_current() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs/src/reference/fault-catalogue.md");
        let text = render(&kinds::library());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&file, &text).expect("the file can be written");
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == text,
            "docs/src/reference/fault-catalogue.md is not current\n\
             help: run `UPDATE_DOCS=1 cargo test -p svclab-diagnosis`, and read the difference"
        );
    }
}
