//! Generates the files of the book that show data of the code, and compares them with the
//! committed files. With `UPDATE_DOCS=1`, the test writes the files instead.

mod command_line;
mod drop_reasons;
mod kube_proxy_history;
mod lab_fields;
mod session;

use std::fs;

use crate::support::project;

/// Note below the title of each generated chapter.
pub(super) const NOTE: &str =
    "<!-- Generated: `UPDATE_DOCS=1 cargo test --test command docs` updates this file. -->";

/// Variable of the environment that makes the tests write files.
pub(super) const UPDATE: &str = "UPDATE_DOCS";

#[test]
fn docs_generated_files_are_current() {
    let files = [
        ("reference/cli.md", command_line::render()),
        ("reference/lab-schema.md", lab_fields::render()),
        ("reference/drop-reasons.md", drop_reasons::render()),
        (
            "reference/kube-proxy-history.md",
            kube_proxy_history::render(),
        ),
        ("images/session.svg", session::render()),
    ];
    for (name, text) in files {
        let file = project().join(format!("docs/src/{name}"));
        let text = format!("{}\n", text.trim_end());
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&file, &text).expect("the file can be written");
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == text,
            "docs/src/{name} is not current\n\
             help: run `{UPDATE}=1 cargo test --test command docs`, and read the difference"
        );
    }
}

/// Renders text as one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Renders text as a cell of a table.
fn cell(text: &str) -> String {
    escape(&one_line(text)).replace('|', "\\|")
}

/// Escapes what Markdown takes for tags, links and emphasis, outside of code.
fn escape(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(index, part)| {
        if index % 2 == 1 {
            return part.to_owned();
        }
        let part = part.replace('<', "&lt;").replace('*', "\\*");
        part.replace('[', "\\[").replace("__", "\\_\\_")
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Renders a table with a title row.
fn table(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(titles.iter().map(ToString::to_string).collect());
    text.extend(["|", &"---|".repeat(titles.len()), "\n"]);
    text.extend(rows.into_iter().map(line));
    text
}
