//! Wraps the lines of a text at the width of a terminal.

use std::fmt::Write as _;

use crate::text::strip_colours;

/// Minimum width at which lines are wrapped. A narrower terminal wraps them itself.
const MIN_WIDTH: usize = 30;

/// Width of the terminal that shows a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TerminalWidth(
    /// Columns; `None` if the text is not for a terminal.
    pub Option<usize>,
);

impl TerminalWidth {
    /// Returns the width of lines that have at most `max` columns without a terminal.
    pub(crate) fn limit(self, max: usize) -> usize {
        self.wrapping().map_or(max, |width| width.min(max))
    }

    /// Wraps lines that are too long for the terminal. Commands stay on one line, so that a user
    /// can copy them.
    pub(crate) fn fit(self, text: String) -> String {
        let Some(width) = self.wrapping() else {
            return text;
        };
        let mut wrapped = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let plain = strip_colours(line.trim_end());
            if plain.chars().count() <= width || is_command(plain.trim_start()) {
                wrapped.push_str(line);
            } else {
                push_lines(&mut wrapped, line, indentation(&plain), width);
            }
        }
        wrapped
    }

    /// Returns the width at which lines are wrapped. `None` if they are not.
    fn wrapping(self) -> Option<usize> {
        self.0.filter(|width| *width >= MIN_WIDTH)
    }
}

/// Whether a line is a command to copy: `svclab run …` or `node-1# sysctl …`, also after a label.
fn is_command(line: &str) -> bool {
    let line = line.strip_prefix("rerun: ").unwrap_or(line);
    let first = line.split(' ').next().unwrap_or_default();
    first == "svclab" || first.ends_with('#')
}

/// Returns the indentation of the lines that continue a line: the column after the mark of an item,
/// otherwise 2 more than that of the line.
fn indentation(line: &str) -> usize {
    line.chars().take_while(|letter| *letter == ' ').count() + 2
}

/// Adds a line in parts of at most `width` columns. A longer word has its own line.
fn push_lines(text: &mut String, line: &str, indent: usize, width: usize) {
    let (line, end) = match line.strip_suffix('\n') {
        Some(line) => (line, "\n"),
        None => (line, ""),
    };
    let start = line.len() - line.trim_start_matches(' ').len();
    let mut part = line[..start].to_owned();
    // Colours are escape sequences without spaces.
    for word in line[start..].split_inclusive(' ') {
        let columns = |text: &str| strip_colours(text).chars().count();
        let is_full = columns(&part) + columns(word.trim_end()) > width;
        if is_full && !part.trim().is_empty() {
            let _ = writeln!(text, "{}", part.trim_end());
            part = " ".repeat(indent);
            // Several spaces separate columns of a line.
            part.push_str(word.trim_start());
        } else {
            part.push_str(word);
        }
    }
    text.push_str(part.trim_end());
    text.push_str(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
FAIL lab/axis=value  call: timeout 4; again: connected 4  (3.02 s)
  call  pod/default/client → service/default/web:80
    expected  timeout 4
\x1b[1m  - a sentence with a colour\x1b[0m and more words than fit
    node-1# sysctl -w net.ipv4.conf.all.rp_filter=0 and more
  rerun: svclab run 'lab/axis=value' --kernel guest

a-word-that-is-longer-than-the-whole-terminal-is and more";

    #[test]
    fn fit_lines_have_the_width() {
        let text = TerminalWidth(Some(40)).fit(TEXT.to_owned());
        insta::assert_snapshot!(strip_colours(&text));
        for line in strip_colours(&text).lines() {
            let is_wrapped = line.chars().count() <= 40;
            assert!(
                is_wrapped
                    || line.contains("svclab")
                    || line.contains("sysctl")
                    || !line.contains(' '),
                "{line}"
            );
        }
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&text), words(TEXT));
    }

    #[test]
    fn fit_without_terminal_changes_nothing() {
        for width in [None, Some(0), Some(MIN_WIDTH - 1), Some(1000)] {
            assert_eq!(TerminalWidth(width).fit(TEXT.to_owned()), TEXT);
        }
        assert_eq!(TerminalWidth(Some(1)).limit(96), 96);
        assert_eq!(TerminalWidth(Some(200)).limit(96), 96);
        assert_eq!(TerminalWidth(Some(60)).limit(96), 60);
    }
}
