//! Defines and renders diagnostics: a message with carets and help.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use annotate_snippets::renderer::{
    DEFAULT_EMPHASIS_STYLE, DEFAULT_ERROR_STYLE, DEFAULT_HELP_STYLE, DEFAULT_WARNING_STYLE,
    DecorStyle, Style,
};
use annotate_snippets::{AnnotationKind, Element, Level, Origin, Renderer, Snippet};

use crate::printable::{one_line, printable, styled};
use crate::source::{FileId, Source, SourceError, Sources, Span};

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The command cannot run.
    Error,
    /// The command ignores a part of the input that may be a mistake.
    Warning,
}

/// Position in a file with an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Range in the file.
    pub span: Span,
    /// Text next to the caret.
    pub text: String,
}

/// Error or warning about the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Severity of the diagnostic.
    pub severity: Severity,
    /// Message: a sentence without a full stop.
    pub message: String,
    /// Main position. `None` if the diagnostic concerns the whole file.
    pub primary: Option<Box<Label>>,
    /// Other related positions.
    pub secondary: Vec<Label>,
    /// Advice for the user, one entry for each `help` line.
    pub help: Vec<String>,
}

/// Output format of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendering {
    /// Whether to use terminal colours.
    pub colour: bool,
    /// Maximum number of columns of a source line. A longer line is cut to a window around the
    /// caret.
    pub width: usize,
}

impl Default for Rendering {
    fn default() -> Self {
        Self {
            colour: false,
            width: 120,
        }
    }
}

impl Diagnostic {
    /// Creates an error without a position.
    #[must_use]
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            primary: None,
            secondary: Vec::new(),
            help: Vec::new(),
        }
    }

    /// Creates a warning without a position.
    #[must_use]
    pub fn warning(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(message)
        }
    }

    /// Sets the main position and the text next to the caret.
    #[must_use]
    pub fn with_position(mut self, span: Span, text: impl Into<String>) -> Self {
        self.primary = Some(Box::new(Label {
            span,
            text: text.into(),
        }));
        self
    }

    /// Adds another related position.
    #[must_use]
    pub fn with_related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label {
            span,
            text: text.into(),
        });
        self
    }

    /// Adds advice for the user.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Adds advice for the user, if there is any.
    #[must_use]
    pub fn with_optional_help(mut self, help: Option<String>) -> Self {
        self.help.extend(help);
        self
    }

    /// Whether the diagnostic is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Renders the diagnostic for users: message, `file:line:column`, source lines with carets,
    /// help. A diagnostic without a position has only message and help. Control characters are
    /// replaced. The text does not end with a newline.
    #[must_use]
    pub fn render(&self, sources: &Sources, rendering: Rendering) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut elements: Vec<Element<'_>> = Vec::new();
        for file in self.files() {
            match sources.get(file) {
                Some(source) if source.is_showable() => {
                    elements.push(self.snippet(file, source).into());
                }
                Some(source) => elements.push(self.origin(file, source).into()),
                None => {}
            }
        }
        if elements.is_empty() {
            return self.render_without_position(rendering.colour);
        }
        elements.extend(
            self.help
                .iter()
                .map(|help| Level::HELP.message(printable(help)).into()),
        );
        let report = [level
            .primary_title(printable(&self.message))
            .elements(elements)];
        let renderer = if rendering.colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let text = renderer
            .term_width(rendering.width)
            .decor_style(DecorStyle::Ascii)
            .render(&report);
        if rendering.colour {
            styled(&text)
        } else {
            printable(&text).into_owned()
        }
    }

    fn render_without_position(&self, colour: bool) -> String {
        let paint = |style: Style, text: &str| {
            if colour {
                format!("{style}{text}{style:#}")
            } else {
                text.to_owned()
            }
        };
        let level = match self.severity {
            Severity::Error => paint(DEFAULT_ERROR_STYLE, "error"),
            Severity::Warning => paint(DEFAULT_WARNING_STYLE, "warning"),
        };
        let message = paint(DEFAULT_EMPHASIS_STYLE, &printable(&self.message));
        let mut text = format!("{level}: {message}");
        for help in &self.help {
            text += "\n";
            text += &paint(DEFAULT_HELP_STYLE, "help");
            text += ": ";
            // Aligns further lines with the first one.
            text += &printable(help).replace('\n', "\n      ");
        }
        text
    }

    /// Returns the files of all positions, the file of the main position first.
    fn files(&self) -> Vec<FileId> {
        let mut files = Vec::new();
        for label in self.labels() {
            if !files.contains(&label.span.file) {
                files.push(label.span.file);
            }
        }
        files
    }

    /// Returns a diagnostic with the same position that does not repeat text of the file. `file` is
    /// the target of a symbolic link.
    #[must_use]
    pub(super) fn redacted(&self, file: &Path) -> Self {
        let message = "invalid input, not shown because the path contains a symbolic link";
        let file = one_line(&file.to_string_lossy()).into_owned();
        let redacted = Self {
            severity: self.severity,
            ..Self::error(message)
        };
        match &self.primary {
            Some(primary) => redacted.with_position(primary.span, ""),
            None => redacted,
        }
        .with_help(format!("use the path without symbolic links: {file}"))
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = &Label> {
        self.primary.as_deref().into_iter().chain(&self.secondary)
    }

    /// Returns the position in a file whose text is not shown.
    fn origin<'s>(&self, file: FileId, source: &'s Source) -> Origin<'s> {
        let origin = Origin::path(one_line(source.name()));
        match self.labels().find(|label| label.span.file == file) {
            Some(Label { span, .. }) => origin
                .line(usize::try_from(span.line).unwrap_or(1))
                .char_column(usize::try_from(span.column).unwrap_or(1)),
            None => origin,
        }
    }

    /// Returns the positions in one file. The snippet contains only the lines between the first and
    /// last position, so that rendering does not search a large file for each position.
    fn snippet<'s>(
        &'s self,
        file: FileId,
        source: &'s Source,
    ) -> Snippet<'s, annotate_snippets::Annotation<'s>> {
        let text = source.text();
        let labels_in_file = || self.labels().filter(move |label| label.span.file == file);
        let first = labels_in_file().min_by_key(|label| label.span.start);
        let (from, line) = first.map_or((0, 1), |label| {
            (line_start(text, label.span.start), label.span.line)
        });
        let last = labels_in_file()
            .map(|label| label.span.start)
            .max()
            .unwrap_or(0);
        let window = &text[from..line_end(text, last)];
        let mut snippet = Snippet::source(window)
            .path(one_line(source.name()))
            .line_start(usize::try_from(line).unwrap_or(1));
        for label in labels_in_file() {
            let is_primary = self.primary.as_deref() == Some(label);
            let kind = if is_primary {
                AnnotationKind::Primary
            } else {
                AnnotationKind::Context
            };
            let range = first_line(text, label.span);
            let annotation = kind.span(range.start - from..range.end - from);
            snippet = snippet.annotation(if label.text.is_empty() {
                annotation
            } else {
                annotation.label(printable(&label.text))
            });
        }
        snippet
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl From<SourceError> for Diagnostic {
    fn from(error: SourceError) -> Self {
        Self::error(error.to_string())
    }
}

/// Converts a byte offset to an index, moved back to the start of a character.
fn offset(text: &str, byte: u32) -> usize {
    let byte = usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
    text.floor_char_boundary(byte)
}

/// Returns the start of the line that contains a byte.
fn line_start(text: &str, byte: u32) -> usize {
    text[..offset(text, byte)]
        .rfind('\n')
        .map_or(0, |newline| newline + 1)
}

/// Returns the end of the line that contains a byte, without the line end.
fn line_end(text: &str, byte: u32) -> usize {
    let from = offset(text, byte);
    let end = text[from..]
        .find('\n')
        .map_or(text.len(), |newline| from + newline);
    end - usize::from(end > from && text[..end].ends_with('\r'))
}

/// Cuts a span to its first line. Carets under a whole mapping would be no clearer than carets
/// under its first key.
fn first_line(text: &str, span: Span) -> Range<usize> {
    let start = offset(text, span.start);
    let end = offset(text, span.end).min(line_end(text, span.start));
    start..end.max(start)
}

impl Sources {
    /// Removes the content of files that must not be shown from diagnostics.
    #[must_use]
    pub fn redact(&self, diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
        if self.iter().all(|(_, source)| source.is_showable()) {
            return diagnostics;
        }
        let redacted = diagnostics.iter().map(|diagnostic| {
            let file = diagnostic
                .labels()
                .find_map(|label| self.get(label.span.file)?.link_target());
            match file {
                Some(file) => diagnostic.redacted(file),
                None => diagnostic.clone(),
            }
        });
        redacted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printable::is_control;

    fn span(text: &str, part: &str) -> Span {
        let start = text.find(part).expect("the part is in the text");
        let line = text[..start].matches('\n').count() + 1;
        let column = text[..start]
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        let number = |n| u32::try_from(n).expect("a small number");
        Span {
            file: FileId::default(),
            start: number(start),
            end: number(start + part.len()),
            line: number(line),
            column: number(column),
        }
    }

    fn render(name: &str, text: &str, diagnostic: &Diagnostic) -> String {
        let source = Source::from_bytes(name, text.into()).expect("a source");
        diagnostic.render(&source.into(), Rendering::default())
    }

    #[test]
    fn render_shows_carets_line_and_column() {
        let text = "a: 1\r\nb:\r\n  c: é, x\r\nd: 2\r\n";
        let diagnostic = Diagnostic::error("`c` is wrong")
            .with_position(span(text, "x"), "here")
            .with_related(span(text, "a"), "because of this")
            .with_help("leave it out");
        insta::assert_snapshot!(render("lab.yaml", text, &diagnostic), @r"
        error: `c` is wrong
         --> lab.yaml:3:9
          |
        1 | a: 1
          | - because of this
        2 | b:
        3 |   c: é, x
          |         ^ here
          |
          = help: leave it out
        ");
    }

    #[test]
    fn render_without_position_has_only_message_and_help() {
        let source = Source::from_bytes("x.yaml", "a: 1".into()).expect("a source");
        let diagnostic = Diagnostic::error("no lab is selected")
            .with_help("select one:\n  a\n  b")
            .with_help("or \u{7f}all");
        insta::assert_snapshot!(diagnostic.render(&source.into(), Rendering::default()), @r"
        error: no lab is selected
        help: select one:
                a
                b
        help: or �all
        ");
        let rendering = Rendering {
            colour: true,
            ..Rendering::default()
        };
        let coloured = diagnostic.render(&Sources::default(), rendering);
        assert!(coloured.starts_with("\u{1b}["), "{coloured:?}");
        assert_eq!(styled(&coloured), coloured);
    }

    #[test]
    fn render_multi_line_span_marks_first_line() {
        let text = "a:\n  b: 1\n  c: 2\nd: 3\n";
        let diagnostic = Diagnostic::warning("odd").with_position(span(text, "b: 1\n  c: 2"), "");
        insta::assert_snapshot!(render("x.yaml", text, &diagnostic), @r"
        warning: odd
         --> x.yaml:2:3
          |
        2 |   b: 1
          |   ^^^^
        ");
    }

    #[test]
    fn render_long_line_is_cut_to_window() {
        let text = format!("a: {} BAD {}\n", "x".repeat(1 << 20), "y".repeat(1 << 20));
        let printed = render(
            "x.yaml",
            &text,
            &Diagnostic::error("odd").with_position(span(&text, "BAD"), "this"),
        );
        assert!(printed.contains("x.yaml:1:1048581"), "{printed}");
        assert!(printed.contains("^^^ this"), "{printed}");
        assert!(printed.lines().all(|line| line.len() < 150), "{printed}");
    }

    #[test]
    fn render_replaces_control_characters() {
        for odd in [
            "\u{1b}[31m",
            "\u{9b}2J",
            "\u{7f}",
            "\u{202e}",
            "\u{61c}",
            "a\rb",
        ] {
            let text = format!("a: {odd}red\n");
            let diagnostic = Diagnostic::error(format!("odd {odd}"))
                .with_position(span(&text, "red"), odd)
                .with_help(odd);
            let printed = render(&format!("x{odd}.yaml"), &text, &diagnostic);
            assert!(!printed.contains(is_control), "{printed:?}");
        }
    }

    #[test]
    fn render_uses_colour_only_if_enabled() {
        let source = Source::from_bytes("x.yaml", "a: 1".into()).expect("a source");
        let rendering = Rendering {
            colour: true,
            ..Rendering::default()
        };
        let printed = Diagnostic::error("odd").render(&source.into(), rendering);
        assert!(printed.contains('\u{1b}'));
    }
}
