//! Errors about a part of a text, so that a diagnostic can mark the part.

use std::fmt;
use std::ops::Range;

/// Error about a byte range of the parsed text.
///
/// Serde passes on a parser's error only as a `Display`. To preserve the range, the *alternate*
/// form (`{:#}`) writes it before the message, between two characters that no message contains.
/// [`split_range`] removes it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpannedError<E> {
    range: Option<Range<usize>>,
    error: E,
}

/// Delimiter of the range in the alternate form.
const DELIMITER: char = '\u{1}';

impl<E> SpannedError<E> {
    /// Returns an error about `range`, in bytes of the parsed text.
    #[must_use]
    pub fn new(range: Range<usize>, error: E) -> Self {
        Self {
            range: Some(range),
            error,
        }
    }

    /// Returns an error about the whole text.
    #[must_use]
    pub fn whole(error: E) -> Self {
        Self { range: None, error }
    }

    /// Returns the invalid part in bytes; `None` for the whole text.
    #[must_use]
    pub fn range(&self) -> Option<Range<usize>> {
        self.range.clone()
    }

    /// Returns the error without its range.
    #[must_use]
    pub fn error(&self) -> &E {
        &self.error
    }
}

impl<E: fmt::Display> fmt::Display for SpannedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate()
            && let Some(range) = &self.range
        {
            write!(f, "{DELIMITER}{}..{}{DELIMITER}", range.start, range.end)?;
        }
        write!(f, "{}", self.error)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for SpannedError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Splits a message in the alternate form of [`SpannedError`] into range and message. The message
/// of any other error is returned unchanged, without range.
#[must_use]
pub(crate) fn split_range(message: &str) -> (Option<Range<usize>>, &str) {
    let fenced = message
        .strip_prefix(DELIMITER)
        .and_then(|rest| rest.split_once(DELIMITER));
    let Some((range, rest)) = fenced else {
        return (None, message);
    };
    let parsed = range.split_once("..").and_then(|(start, end)| {
        let (start, end) = (start.parse().ok()?, end.parse().ok()?);
        (start <= end).then_some(start..end)
    });
    (parsed, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternate_form_keeps_range() {
        let error = SpannedError::new(3..5, "no such kind");
        assert_eq!(error.to_string(), "no such kind");
        assert_eq!(
            split_range(&format!("{error:#}")),
            (Some(3..5), "no such kind")
        );
    }

    #[test]
    fn split_other_message_returns_it_unchanged() {
        assert_eq!(split_range("no such kind"), (None, "no such kind"));
        assert_eq!(
            split_range(&format!("{:#}", SpannedError::whole("x"))),
            (None, "x")
        );
        assert_eq!(split_range("\u{1}broken"), (None, "\u{1}broken"));
    }
}
