//! Renders the result of one case as text. Colours are escape sequences; no information is in
//! colour alone.

use anstyle::{AnsiColor, Style};

use super::refused;
use super::words::{quoted, seconds};
use svclab_judge::{Check, ClaimOutcome, ProbeOutcome, StepOutcome, observed_words};
use svclab_runner::results::flows::FlowOutcome;
use svclab_runner::results::{CaseResult, Outcome, RunError};

/// Maximum number of probes listed in a passed case's line. With more, the line contains the sums
/// of verdicts.
const PROBES_IN_A_LINE: usize = 4;

const PASS: Style = AnsiColor::Green.on_default().bold();
const FAIL: Style = AnsiColor::Red.on_default().bold();
const ERROR: Style = AnsiColor::Yellow.on_default().bold();
const NAME: Style = Style::new().bold();
const LABEL: Style = Style::new().dimmed();

/// Renderer for the result of a case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Telling<'a> {
    /// Whether to print everything observed and the claims, instead of only unexpected results.
    pub(super) verbose: bool,
    /// Command that repeats a case, without the case name.
    pub(super) again: &'a str,
}

impl Telling<'_> {
    /// Renders the case as a line:
    /// `PASS canal-stale-rule/stale=present  call: timeout 1  (3.02 s)`.
    pub(super) fn head(case: &CaseResult) -> String {
        let style = match case.result {
            Outcome::Pass => PASS,
            Outcome::Fail => FAIL,
            Outcome::Error => ERROR,
        };
        let mut parts = vec![format!(
            "{style}{}{style:#} {}",
            case.result.shout(),
            case.case
        )];
        match (&case.error, case.result) {
            (Some(error), _) => parts.push(error.trouble.words().to_owned()),
            (None, Outcome::Pass) if !case.probes.is_empty() => parts.push(in_short(&case.probes)),
            // The details follow in full.
            (None, _) => {}
        }
        parts.push(format!("({})", seconds(case.duration_ms)));
        parts.join("  ")
    }

    /// Renders the details, each line terminated by a newline. For a passed case without `verbose`,
    /// these are only traffic shifts after steps and requests that API servers refused.
    pub(super) fn details(self, case: &CaseResult) -> String {
        let mut text = Text::default();
        for probe in &case.probes {
            if self.verbose || !probe.holds {
                text.probe(probe);
                let flow = case.flows.iter().find(|flow| flow.flow == probe.name);
                if let Some(flow) = flow {
                    text.flow(flow);
                }
            }
        }
        for check in case.checks() {
            if self.verbose || !check.holds {
                text.check(check);
            }
        }
        // Traffic shifts are always printed: they are the purpose of a step.
        for step in &case.steps {
            text.step(step, self.verbose);
        }
        for line in refused::lines(&case.refused, case.refused_left_out) {
            text.heading(refused::LABEL, &[&line]);
        }
        if let Some(error) = &case.error {
            text.error(error);
        }
        if self.verbose {
            for claim in &case.claims {
                text.claim(claim);
            }
        }
        if case.result != Outcome::Pass {
            if let Some(place) = &case.place {
                let label = if case.error.is_some() {
                    "see:"
                } else {
                    "expected at:"
                };
                text.labelled(label, &place.to_string());
            }
            let name = if case.named.is_empty() {
                &case.case
            } else {
                &case.named
            };
            let again = format!("{} {}", self.again, quoted(name));
            text.labelled("run it again:", &again);
        }
        text.0
    }

    /// Renders [`Telling::details`] without colours and without indentation.
    pub(super) fn plain_details(self, case: &CaseResult) -> String {
        let details = plain(&self.details(case));
        details
            .lines()
            .map(|line| line.strip_prefix("  ").unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Renders everything observed in a case, expected or not, without colours.
    pub(super) fn seen(case: &CaseResult) -> String {
        let mut text = Text::default();
        for probe in &case.probes {
            text.line(&format!("{}: {}", probe.name, seen_of(probe)));
        }
        for check in case.checks() {
            text.line(&format!(
                "{}: {}; seen {}",
                check.on, check.expected, check.observed
            ));
        }
        for step in &case.steps {
            text.line(&format!("step {}: {}", step.name, step.seen()));
        }
        for line in refused::lines(&case.refused, case.refused_left_out) {
            text.line(&format!("{}: {line}", refused::LABEL));
        }
        text.0
    }
}

/// Removes colours from a text.
pub(super) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn in_short(probes: &[ProbeOutcome]) -> String {
    if probes.len() > PROBES_IN_A_LINE {
        let mut sum = svclab_judge::Observed::default();
        for (verdict, count) in probes.iter().flat_map(|probe| &probe.observed.verdicts) {
            *sum.verdicts.entry(*verdict).or_insert(0) += count;
        }
        return format!("{} probes: {}", probes.len(), observed_words(&sum));
    }
    let each: Vec<String> = probes
        .iter()
        .map(|probe| {
            let mut counts = probe.observed.clone();
            counts.endpoints.clear();
            counts.seen_sources.clear();
            let words = observed_words(&counts);
            format!("{}: {}", probe.name, or_nothing(words))
        })
        .collect();
    each.join("; ")
}

/// Renders the observations of a probe.
pub(super) fn seen_of(probe: &ProbeOutcome) -> String {
    or_nothing(observed_words(&probe.observed))
}

/// Replaces an empty text by `nothing`.
fn or_nothing(words: String) -> String {
    if words.is_empty() {
        "nothing".to_owned()
    } else {
        words
    }
}

/// Indented lines below the line of a case.
#[derive(Default)]
struct Text(String);

impl Text {
    fn probe(&mut self, probe: &ProbeOutcome) {
        let note = match (&probe.expected, probe.holds) {
            (None, _) => "nothing was expected of it",
            (Some(_), true) => "as expected",
            (Some(_), false) => "",
        };
        let step = probe.step.as_ref();
        let step = step.map_or_else(String::new, |step| format!(", step {step}"));
        let who = format!("{} → {}{step}", probe.from, probe.to);
        self.heading(&probe.name, &[&who, note]);
        self.compared(probe.expected.as_deref(), &seen_of(probe));
    }

    /// Adds why a result of the flow is expected, and where the lab declares it.
    fn flow(&mut self, flow: &FlowOutcome) {
        let place = flow.place.as_ref().map(ToString::to_string);
        let said = [
            ("because ", &flow.because),
            ("source  ", &flow.source),
            ("row     ", &place),
        ];
        for (label, value) in said {
            if let Some(value) = value {
                let value = hanging(value, 4 + label.len() + 2);
                self.line(&format!("    {LABEL}{label}{LABEL:#}  {value}"));
            }
        }
    }

    fn check(&mut self, check: &Check) {
        self.heading(&check.on, &[if check.holds { "as expected" } else { "" }]);
        self.compared(Some(&check.expected), &check.observed);
    }

    fn step(&mut self, step: &StepOutcome, verbose: bool) {
        let name = format!("step {}", step.name);
        let expected = step.expected.as_deref();
        let seen = step.seen();
        if expected.is_some() && (verbose || !step.holds) {
            self.heading(&name, &[if step.holds { "as expected" } else { "" }]);
            self.compared(expected, &seen);
        } else {
            self.heading(&name, &[&seen]);
        }
    }

    fn error(&mut self, error: &RunError) {
        self.indented(2, &error.message);
        if let Some(remedy) = &error.remedy {
            self.labelled("what to do:", remedy);
        }
    }

    fn claim(&mut self, claim: &ClaimOutcome) {
        let part = claim
            .part
            .as_ref()
            .map_or_else(String::new, |part| format!(" ({part})"));
        let verdict = claim.verdict.word();
        self.labelled("claim", &format!("{}{part}: {verdict}", claim.id));
        if let Some(seen) = &claim.seen {
            self.indented(4, seen);
        }
    }

    fn heading(&mut self, name: &str, more: &[&str]) {
        let mut parts = vec![format!("  {NAME}{}{NAME:#}", plain(name))];
        let more = more.iter().filter(|words| !words.is_empty());
        parts.extend(more.map(|words| plain(words)));
        self.line(&parts.join("  "));
    }

    /// Adds a label and its value in one line.
    fn labelled(&mut self, label: &str, value: &str) {
        let value = hanging(value, 2 + label.len() + 1);
        self.line(&format!("  {LABEL}{label}{LABEL:#} {value}"));
    }

    /// Adds the expected value above the observed one, so that differences are visible.
    fn compared(&mut self, expected: Option<&str>, seen: &str) {
        for (label, value) in [("expected", expected), ("seen    ", Some(seen))] {
            if let Some(value) = value {
                let value = hanging(value, 4 + label.len() + 2);
                self.line(&format!("    {LABEL}{label}{LABEL:#}  {value}"));
            }
        }
    }

    fn indented(&mut self, indent: usize, value: &str) {
        self.line(&format!("{}{}", " ".repeat(indent), hanging(value, indent)));
    }

    fn line(&mut self, line: &str) {
        self.0 += line;
        self.0 += "\n";
    }
}

/// Indents all lines but the first, and removes escape sequences that a dump or a program
/// contained.
fn hanging(text: &str, indent: usize) -> String {
    let text = plain(text);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use svclab_runner::results::Trouble;

    #[test]
    fn what_others_wrote_does_not_steer_a_terminal() {
        let message = "before\x1b[2J\x1b]0;title\x07 after".to_owned();
        let case = CaseResult {
            result: Outcome::Error,
            error: Some(RunError {
                trouble: Trouble::Input,
                message: message.clone(),
                remedy: Some(message),
            }),
            ..fixture::passed("lab/case")
        };
        let telling = Telling {
            verbose: false,
            again: "svclab run",
        };
        let details = telling.details(&case);
        assert!(!details.contains("\x1b[2J") && !details.contains('\x07'));
        assert!(
            details.contains("before") && details.contains(" after"),
            "{details}"
        );
    }

    #[test]
    fn a_flow_that_failed_says_why_it_was_expected_and_where() {
        let telling = Telling {
            verbose: false,
            again: "svclab run",
        };
        insta::assert_snapshot!(telling.plain_details(&fixture::failed_flow()));
    }
}
