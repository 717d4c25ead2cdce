//! Renders the certificate of a run as text.

use std::fmt::Write as _;

use crate::text;
use svclab_runner::certify::{Certificate, Section};

/// Number of digits shown of a digest.
const DIGEST_DIGITS: usize = 12;

/// Maximum number of lines shown per part; the others are counted.
const MAX_LINES: usize = 20;

/// Renders a certificate. The first line is a summary; the text ends with a newline.
pub(crate) fn render_text(certificate: &Certificate) -> String {
    let mut text = format!("{}\n", headline(certificate));
    for (part, why) in &certificate.unread {
        let _ = writeln!(text, "  cannot read {part}: {why}");
    }
    for (part, change) in &certificate.changes {
        let _ = writeln!(text, "  {part}");
        list(&mut text, '-', &change.removed);
        list(&mut text, '+', &change.added);
    }
    if !certificate.unchanged {
        text.push_str(
            "  svclab or another program caused the changes during the run; if they occur again on \
             an idle machine, report a bug\n",
        );
    }
    text
}

/// Renders the summary in one line.
pub(crate) fn headline(certificate: &Certificate) -> String {
    if certificate.unchanged {
        let digest = certificate.after.get(..DIGEST_DIGITS).unwrap_or_default();
        let entries: usize = certificate.compared.values().sum();
        return format!(
            "certificate: this machine is unchanged ({}, digest {digest})",
            text::count(entries, "entry", "entries")
        );
    }
    let parts = certificate.changes.keys().copied().map(Section::name);
    format!(
        "certificate: this machine has changed: {}",
        text::join_and(parts)
    )
}

fn list(text: &mut String, sign: char, lines: &[String]) {
    for line in lines.iter().take(MAX_LINES) {
        let _ = writeln!(text, "    {sign} {line}");
    }
    if let more @ 1.. = lines.len().saturating_sub(MAX_LINES) {
        let _ = writeln!(text, "    {sign} and {more} more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_runner::results::fixture;

    #[test]
    fn certificate_changes_and_errors_are_rendered() {
        insta::assert_snapshot!(format!(
            "{}{}",
            render_text(&fixture::certificate()),
            render_text(&fixture::broken_certificate())
        ));
    }

    #[test]
    fn certificate_is_in_every_format() {
        use crate::{Format, Options};
        use svclab_runner::run::Event;

        for format in [Format::Human, Format::Json, Format::Junit, Format::Github] {
            for certificate in [fixture::certificate(), fixture::broken_certificate()] {
                let mut results = fixture::results();
                let headline = headline(&certificate);
                results.certificate = Some(certificate.clone());
                let over = Event::RunEnded {
                    results: Box::new(results),
                    duration: std::time::Duration::ZERO,
                };
                let mut out = Vec::new();
                let mut writer = format.writer(&mut out, Options::default());
                writer.event(&over).unwrap();
                drop(writer);
                let text = String::from_utf8(out).unwrap();
                let is_there = if format == Format::Json {
                    text.contains(&certificate.before) && text.contains(&certificate.after)
                } else {
                    text.contains(&headline)
                };
                assert!(is_there, "{format:?}: {text}");
            }
        }
    }

    #[test]
    fn certificate_long_list_is_cut() {
        let mut certificate = fixture::broken_certificate();
        let change = certificate.changes.get_mut(&Section::Links).unwrap();
        change.added = (0..25).map(|n| format!("link {n}")).collect();
        let text = render_text(&certificate);
        assert!(text.contains("link 19\n    + and 5 more\n"), "{text}");
        assert!(!text.contains("link 20"), "{text}");
    }
}
