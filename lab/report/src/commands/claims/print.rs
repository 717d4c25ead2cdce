//! Prints claims as text: the status in one line, the claim's text below.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::which::{render_full, render_short};
use super::{ClaimLine, ClaimStatus};
use crate::text::{list_first, push_hanging, with_colour};
use crate::writer::until_closed::UntilClosed;

const CONFIRMED: Style = AnsiColor::Green.on_default().bold();
const REFUTED: Style = AnsiColor::Red.on_default().bold();
const PARTLY: Style = AnsiColor::Yellow.on_default().bold();
const NOT_CHECKABLE: Style = Style::new().dimmed();
const UNSETTLED: Style = AnsiColor::Magenta.on_default().bold();

/// Indentation of the lines below a claim's status.
const INDENT: &str = "    ";

/// Minimum line width in characters, for any terminal.
const MIN_WIDTH: usize = 40;

/// Layout of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Line width in characters; only a longer word exceeds it.
    pub width: usize,
    /// Whether to use colours. No information is in colour alone.
    pub colour: bool,
    /// Whether to name every case of a claim, instead of only what the cases have in common.
    pub verbose: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            verbose: false,
        }
    }
}

/// Prints claims and the number of claims per status.
///
/// # Errors
///
/// Returns an error if writing to `out` fails. A closed pipe is no error.
pub fn print_claims(claims: &[ClaimLine], layout: Layout, out: impl Write) -> io::Result<()> {
    let text = render_text(claims, layout).map_err(io::Error::other)?;
    let text = with_colour(text, layout.colour);
    let mut out = UntilClosed::new(out);
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn render_text(claims: &[ClaimLine], layout: Layout) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let width = layout.width.max(MIN_WIDTH);
    let id_width = claims
        .iter()
        .map(|claim| claim.id.chars().count())
        .max()
        .unwrap_or(0);
    for claim in claims {
        let (style, word) = status_word(&claim.status);
        let id = format!("{:id_width$}", claim.id);
        writeln!(
            out,
            "{id}  {style}{word}{style:#}{}",
            status_suffix(&claim.status)
        )?;
        let says = claim.says.as_deref().unwrap_or("(not declared by any lab)");
        for paragraph in
            std::iter::once(says.to_owned()).chain(detail_paragraphs(claim, layout.verbose))
        {
            let item = if paragraph.starts_with("- ") {
                "  "
            } else {
                ""
            };
            push_hanging(
                &mut out,
                INDENT,
                &format!("{INDENT}{item}"),
                &paragraph,
                width,
            );
        }
    }
    writeln!(out, "{}", render_sums(claims))?;
    Ok(out)
}

fn status_word(standing: &ClaimStatus) -> (Style, &'static str) {
    match standing {
        ClaimStatus::Confirmed { .. } => (CONFIRMED, "confirmed"),
        ClaimStatus::Refuted { .. } => (REFUTED, "refuted"),
        ClaimStatus::Partly { .. } => (PARTLY, "partly"),
        ClaimStatus::NotCheckable { .. } => (NOT_CHECKABLE, "not checkable"),
        ClaimStatus::Unsettled { .. } => (UNSETTLED, "unsettled"),
    }
}

/// Returns the text after the status word.
fn status_suffix(standing: &ClaimStatus) -> String {
    match standing {
        ClaimStatus::Confirmed { cases, .. } | ClaimStatus::Refuted { cases, .. } => {
            match &cases[..] {
                [only] => format!(" by {only}"),
                many => format!(" by {} cases", many.len()),
            }
        }
        ClaimStatus::Unsettled { cases } if cases.is_empty() => ": no case checks it".to_owned(),
        ClaimStatus::Partly { .. }
        | ClaimStatus::NotCheckable { .. }
        | ClaimStatus::Unsettled { .. } => String::new(),
    }
}

/// Returns the paragraphs after the claim's text.
fn detail_paragraphs(claim: &ClaimLine, verbose: bool) -> Vec<String> {
    match &claim.status {
        ClaimStatus::Confirmed { cases, incomplete } => {
            let incomplete = incomplete.as_deref().map(describe_incomplete);
            let cases = case_lines(cases, verbose);
            incomplete.into_iter().chain(cases).collect()
        }
        ClaimStatus::Refuted { cases, seen } => {
            let seen = seen.clone().into_iter();
            seen.chain(case_lines(cases, verbose)).collect()
        }
        ClaimStatus::Partly { parts } => parts
            .iter()
            .flat_map(|part| {
                let lines = if verbose {
                    render_full(part)
                } else {
                    render_short(part)
                };
                let label = part.part.as_ref().map(|label| format!("{label}:"));
                let incomplete = part.incomplete.as_deref().map(describe_incomplete);
                let lines = lines.into_iter().chain(incomplete);
                label
                    .into_iter()
                    .chain(lines.map(|line| format!("- {line}")))
            })
            .collect(),
        ClaimStatus::NotCheckable { reason } => vec![format!("not checkable: {reason}")],
        ClaimStatus::Unsettled { cases } if cases.is_empty() => Vec::new(),
        ClaimStatus::Unsettled { cases } if verbose => {
            let mut lines = vec!["not as expected:".to_owned()];
            lines.extend(cases.iter().map(|case| format!("- {case}")));
            lines
        }
        ClaimStatus::Unsettled { cases } => {
            vec![format!("not as expected: {}", list_first(cases))]
        }
    }
}

/// Describes a confirmation of which only a part was observed.
fn describe_incomplete(difference: &str) -> String {
    format!("only a part was observed: {difference}")
}

/// Returns a line per case, unless the status line names the only case.
fn case_lines(cases: &[String], verbose: bool) -> Vec<String> {
    if !verbose || cases.len() == 1 {
        return Vec::new();
    }
    cases.iter().map(|case| format!("- {case}")).collect()
}

/// Returns the sums: `41 confirmed, 3 refuted, 2 partly, 5 not checkable, 1 unsettled`, without
/// zeros.
fn render_sums(claims: &[ClaimLine]) -> String {
    const WORDS: [&str; 5] = [
        "confirmed",
        "refuted",
        "partly",
        "not checkable",
        "unsettled",
    ];
    let counts: Vec<String> = WORDS
        .iter()
        .map(|name| {
            let count = claims
                .iter()
                .filter(|claim| status_word(&claim.status).1 == *name)
                .count();
            (count, name)
        })
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    if counts.is_empty() {
        "no claims".to_owned()
    } else {
        counts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::claims::tests::all_statuses;
    use crate::text::wrap;

    fn printed(claims: &[ClaimLine], width: usize, verbose: bool) -> String {
        let mut out = Vec::new();
        let layout = Layout {
            width,
            verbose,
            ..Layout::default()
        };
        print_claims(claims, layout, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn print_every_status_is_rendered() {
        insta::assert_snapshot!(printed(&all_statuses(), 72, false));
    }

    #[test]
    fn print_verbose_names_every_case() {
        insta::assert_snapshot!(printed(&all_statuses(), 72, true));
    }

    #[test]
    fn print_without_claims_prints_a_note() {
        assert_eq!(printed(&[], 80, false), "no claims\n");
    }

    #[test]
    fn wrap_lines_fit_the_width() {
        let text = "a claim of some length, whose words fit in a line or do not: \
                    10.0.0.0/20,10.0.16.0/20,10.0.32.0/20,10.0.48.0/20";
        for width in 10..60 {
            for line in wrap(text, width) {
                assert!(
                    line.chars().count() <= width || !line.contains(' '),
                    "{line}"
                );
            }
            assert_eq!(wrap(text, width).join(" "), text);
        }
    }
}
