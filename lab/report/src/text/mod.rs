//! Renders the parts of a report as text: one file for each, and helpers for all of them.

pub(crate) mod certificate;
pub(crate) mod conclusion;
pub(crate) mod cover;
pub(crate) mod expectation;
pub(crate) mod flow_table;
pub mod journey;
pub(crate) mod journey_groups;
pub mod refused;
pub(crate) mod repository;
pub(crate) mod terminal;

use std::fmt::{Display, Write as _};

use svclab_diagnostic::printable::is_control;
use svclab_runner::results::Summary;

/// Wraps text into lines of at most `width` characters. A longer word has its own line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Adds text in lines of at most `width` characters. The first line starts with `first`, and the
/// others are indented to the same column.
pub(crate) fn push_wrapped(out: &mut String, first: &str, text: &str, width: usize) {
    push_hanging(out, first, &" ".repeat(first.chars().count()), text, width);
}

/// Adds text in lines of at most `width` characters. The first line starts with `first`, and the
/// others with `rest`.
pub(crate) fn push_hanging(out: &mut String, first: &str, rest: &str, text: &str, width: usize) {
    let indent = first.chars().count().max(rest.chars().count());
    for (index, line) in wrap(text, width.saturating_sub(indent)).iter().enumerate() {
        let start = if index == 0 { first } else { rest };
        let _ = writeln!(out, "{start}{line}");
    }
}

/// Removes colours from a text unless they are enabled.
pub(crate) fn with_colour(text: String, colour: bool) -> String {
    if colour { text } else { strip_colours(&text) }
}

/// Removes colours from a text.
pub(crate) fn strip_colours(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// Renders a number with a noun: `1 case`, `2 cases`.
pub(crate) fn count<N: Copy + Display + From<u8> + PartialEq>(
    number: N,
    singular: &str,
    plural: &str,
) -> String {
    let noun = if number == N::from(1) {
        singular
    } else {
        plural
    };
    format!("{number} {noun}")
}

/// Joins items with a separator.
pub(crate) fn join(items: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(separator)
}

/// Joins items as a sentence does: `a, b and c`.
pub(crate) fn join_and(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.split_last() {
        Some((last, front)) if !front.is_empty() => format!("{} and {last}", front.join(", ")),
        _ => items.concat(),
    }
}

/// Maximum number of names in a line; the others are counted.
const MAX_NAMED: usize = 3;

/// Joins the first names, and counts the others: `a, b and 4 more`.
pub(crate) fn list_first(names: impl IntoIterator<Item = impl Display>) -> String {
    let mut names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    if names.len() > MAX_NAMED {
        let more = names.split_off(MAX_NAMED - 1).len();
        names.push(format!("{more} more"));
    }
    join_and(names)
}

/// Renders a duration in seconds, to the hundredth: `3.02 s`.
pub(crate) fn render_seconds(milliseconds: u64) -> String {
    let hundredths = milliseconds.saturating_add(5) / 10;
    format!("{}.{:02} s", hundredths / 100, hundredths % 100)
}

/// Quotes text as one word of a POSIX shell: `'clb-hairpin/policy=Local'`. Text with newlines or
/// other control characters is quoted in the syntax of bash: `$'a\nb'` (POSIX.1-2024, 2.2.4).
#[must_use]
pub fn shell_quote(text: &str) -> String {
    let needs_escape = |letter| is_control(letter) || matches!(letter, '\n' | '\t');
    if text.contains(needs_escape) {
        let mut word = "$'".to_owned();
        for letter in text.chars() {
            match letter {
                '\n' => word.push_str(r"\n"),
                '\'' | '\\' => word.extend(['\\', letter]),
                letter if needs_escape(letter) => {
                    for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                        let _ = write!(word, "\\x{byte:02x}");
                    }
                }
                letter => word.push(letter),
            }
        }
        word.push('\'');
        return word;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Renders the counts: `12 passed, 1 failed, 0 errors`. Flaky cases are only counted if there are
/// some.
pub(crate) fn render_counts(summary: Summary) -> String {
    let flaky = match summary.flaky {
        0 => String::new(),
        flaky => format!("{flaky} flaky, "),
    };
    format!(
        "{} passed, {flaky}{} failed, {}",
        summary.passed,
        summary.failed,
        count(summary.errors, "error", "errors")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_to_the_hundredth() {
        assert_eq!(render_seconds(3_024), "3.02 s");
        assert_eq!(render_seconds(3_996), "4.00 s");
        assert_eq!(render_seconds(4), "0.00 s");
        assert_eq!(render_seconds(61_005), "61.01 s");
    }

    #[test]
    fn shell_quote_text_is_read_back_by_sh() {
        for text in ["clb/rpFilter=0,a=b c", "it's", "$(rm) `x` \"\\", ""] {
            let shell = std::process::Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", shell_quote(text)))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&shell.stdout), text);
        }
    }

    #[test]
    fn shell_quote_control_characters_are_read_back() {
        for text in ["a\nPASS b", "it's\\\t", "\u{202e}x\u{1b}b"] {
            let word = shell_quote(text);
            assert!(!word.contains(|letter| is_control(letter) || letter == '\n'));
            let bash = std::process::Command::new("bash")
                .arg("-c")
                .arg(format!("printf %s {word}"))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&bash.stdout), text);
        }
    }

    #[test]
    fn join_and_lists_read_as_sentences() {
        assert_eq!(join_and([""; 0]), "");
        assert_eq!(join_and(["a"]), "a");
        assert_eq!(join_and(["a", "b"]), "a and b");
        assert_eq!(join_and(["a", "b", "c"]), "a, b and c");
        assert_eq!(list_first(["a", "b", "c"]), "a, b and c");
        assert_eq!(list_first(["a", "b", "c", "d"]), "a, b and 2 more");
    }

    #[test]
    fn push_hanging_later_lines_are_indented() {
        let mut text = String::new();
        push_wrapped(&mut text, "- ", "one two three", 9);
        push_hanging(&mut text, "", "  ", "one two three", 9);
        assert_eq!(text, "- one two\n  three\none two\n  three\n");
    }
}
