//! Renders the result of one case as text. Colours are escape sequences; no information is in
//! colour alone.

use anstyle::{AnsiColor, Style};

use crate::results::{
    CaseDocument, CheckDocument, ClaimDocument, FlowDocument, ProbeDocument, StepDocument,
};
use crate::run_text::unexpected::{compare_check, compare_probe, compare_step, unexpected_lines};
use crate::text::expectation::{describe_observed, describe_shifts};
use crate::text::{count, join, refused, render_seconds, shell_quote, strip_colours};
use crate::writer::Options;
use svclab_judge::Observed;
use svclab_runner::results::{CaseStatus, RunError};

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
pub(crate) struct CaseRenderer<'a> {
    /// Whether to print everything observed and the claims, instead of only unexpected results.
    pub(crate) verbose: bool,
    /// Whether to name the kernel with each case.
    pub(crate) names_kernels: bool,
    /// Command that repeats a case, without the case name.
    pub(crate) rerun_command: &'a str,
}

impl<'a> CaseRenderer<'a> {
    pub(crate) fn new(options: &'a Options<'_>) -> Self {
        Self {
            verbose: options.verbose,
            names_kernels: options.names_kernels,
            rerun_command: &options.rerun_command,
        }
    }

    /// Renders the case's name, and its kernel if requested: `canal-stale-rule/stale=present on
    /// Linux 6.12.9`.
    pub(crate) fn name(self, case: &CaseDocument) -> String {
        if self.names_kernels && !case.kernel.is_empty() {
            format!("{} on Linux {}", case.case, case.kernel)
        } else {
            case.case.clone()
        }
    }

    /// Renders the status and the name of a case: `PASS canal-stale-rule/stale=present`.
    pub(crate) fn status_and_name(self, case: &CaseDocument) -> String {
        let style = match case.result {
            CaseStatus::Pass => PASS,
            CaseStatus::Fail => FAIL,
            CaseStatus::Flaky | CaseStatus::Error => ERROR,
        };
        format!(
            "{style}{}{style:#} {}",
            case.result.upper_case_name(),
            self.name(case)
        )
    }

    /// Returns the command that repeats a case.
    pub(crate) fn rerun(self, case: &CaseDocument) -> String {
        let name = if case.named.is_empty() {
            &case.case
        } else {
            &case.named
        };
        format!("{} {}", self.rerun_command, shell_quote(name))
    }

    /// Renders the case as a line:
    /// `PASS canal-stale-rule/stale=present  call: timeout 1  (3.02 s)`.
    pub(crate) fn head(self, case: &CaseDocument) -> String {
        let mut parts = vec![self.status_and_name(case)];
        match (&case.error, case.result) {
            (Some(error), _) => parts.push(error.kind.description().to_owned()),
            (None, CaseStatus::Pass | CaseStatus::Flaky) if !case.probes.is_empty() => {
                parts.push(summarize_probes(&case.probes));
            }
            // The details follow in full.
            (None, _) => {}
        }
        if let Some(tries) = describe_tries(case) {
            parts.push(tries);
        }
        parts.push(format!("({})", render_seconds(case.duration_ms)));
        parts.join("  ")
    }

    /// Renders the details, each line terminated by a newline. For a passed case without `verbose`,
    /// these are only traffic shifts after steps, requests that API servers refused, and repeated
    /// source ports.
    pub(crate) fn details(self, case: &CaseDocument) -> String {
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
        for line in refused::render_lines(&case.refused, case.refused_missed) {
            text.heading(refused::LABEL, &[&line]);
        }
        if let Some(line) = describe_repeated_ports(case) {
            text.heading(SOURCE_PORTS, &[&line]);
        }
        if let Some(error) = &case.error {
            text.error(error);
        }
        for (index, earlier) in case.failed_tries.iter().enumerate() {
            text.failed_try(index + 1, earlier);
        }
        if self.verbose {
            for line in &case.made {
                text.heading(MADE, &[line]);
            }
            for claim in &case.claims {
                text.claim(claim);
            }
        }
        if case.result != CaseStatus::Pass {
            if let Some(place) = &case.location {
                let label = if case.error.is_some() {
                    "see:"
                } else {
                    "expected at:"
                };
                text.labelled(label, &place.to_string());
            }
            text.labelled("rerun:", &self.rerun(case));
        }
        text.0
    }

    /// Renders [`CaseRenderer::details`] without colours and without indentation.
    pub(crate) fn plain_details(self, case: &CaseDocument) -> String {
        let details = strip_colours(&self.details(case));
        details
            .lines()
            .map(|line| line.strip_prefix("  ").unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Renders everything observed in a case, expected or not, without colours.
    pub(crate) fn render_observed(case: &CaseDocument) -> String {
        let mut text = Text::default();
        for probe in &case.probes {
            let seen = describe_observed(&probe.observed);
            text.line(&format!("{}: {seen}", probe.name));
        }
        for check in case.checks() {
            let (expected, seen) = compare_check(check);
            text.line(&format!("{}: {expected}; seen {seen}", check.target));
        }
        for step in &case.steps {
            text.line(&format!(
                "step {}: {}",
                step.name,
                describe_shifts(&step.shifts, &step.unmoved, step.packets_missed)
            ));
        }
        for line in refused::render_lines(&case.refused, case.refused_missed) {
            text.line(&format!("{}: {line}", refused::LABEL));
        }
        if let Some(line) = describe_repeated_ports(case) {
            text.line(&format!("{SOURCE_PORTS}: {line}"));
        }
        text.0
    }
}

/// Describes how often a case ran, if it ran again: `passed in try 3`, `failed in 3 tries`.
pub(crate) fn describe_tries(case: &CaseDocument) -> Option<String> {
    let tries = case.failed_tries.len() + 1;
    (tries > 1).then(|| {
        if case.result.has_passed() {
            format!("passed in try {tries}")
        } else {
            format!("failed in {tries} tries")
        }
    })
}

/// Label of the lines about pods and load balancers that svclab made.
const MADE: &str = "made";

/// Label of the line about repeated source ports.
const SOURCE_PORTS: &str = "source ports";

fn describe_repeated_ports(case: &CaseDocument) -> Option<String> {
    let repeated = case.repeated_ports;
    (repeated > 0).then(|| {
        let connections = count(repeated, "connection has", "connections have");
        format!(
            "{connections} the port of an earlier connection, and conntrack may treat both \
             as one; use fewer connections or a larger net.ipv4.ip_local_port_range"
        )
    })
}

fn summarize_probes(probes: &[ProbeDocument]) -> String {
    if probes.len() > PROBES_IN_A_LINE {
        let mut sum = Observed::default();
        for (verdict, count) in probes.iter().flat_map(|probe| &probe.observed.verdicts) {
            *sum.verdicts.entry(*verdict).or_insert(0) += count;
        }
        return format!("{} probes: {}", probes.len(), describe_observed(&sum));
    }
    let each = probes.iter().map(|probe| {
        let verdicts = Observed {
            verdicts: probe.observed.verdicts.clone(),
            source_ports: probe.observed.source_ports.clone(),
            ..Observed::default()
        };
        format!("{}: {}", probe.name, describe_observed(&verdicts))
    });
    join(each, "; ")
}

/// Indented lines below the line of a case.
#[derive(Default)]
struct Text(String);

impl Text {
    fn probe(&mut self, probe: &ProbeDocument) {
        let note = match (&probe.expected, probe.holds) {
            (None, _) => "no expectation",
            (Some(_), true) => "as expected",
            (Some(_), false) => "",
        };
        let step = probe.step.as_ref();
        let step = step.map_or_else(String::new, |step| format!(", step {step}"));
        let route = format!("{} → {}{step}", probe.from, probe.to);
        self.heading(&probe.name, &[&route, note]);
        let (expected, seen) = compare_probe(probe);
        self.push_comparison(&expected, &seen);
    }

    /// Adds why a result of the flow is expected, and where the lab declares it.
    fn flow(&mut self, flow: &FlowDocument) {
        let place = flow.location.as_ref().map(ToString::to_string);
        let lines = [
            ("because ", &flow.because),
            ("source  ", &flow.source),
            ("row     ", &place),
        ];
        for (label, value) in lines {
            if let Some(value) = value {
                self.detail(label, value);
            }
        }
    }

    fn check(&mut self, check: &CheckDocument) {
        let note = if check.holds { "as expected" } else { "" };
        self.heading(&check.target, &[note]);
        let (expected, seen) = compare_check(check);
        self.push_comparison(&expected, &seen);
    }

    fn step(&mut self, step: &StepDocument, verbose: bool) {
        let name = format!("step {}", step.name);
        let (expected, seen) = compare_step(step);
        if step.expected.is_some() && (verbose || !step.holds) {
            self.heading(&name, &[if step.holds { "as expected" } else { "" }]);
            self.push_comparison(&expected, &seen);
        } else {
            self.heading(&name, &[&seen]);
        }
    }

    fn error(&mut self, error: &RunError) {
        self.indented(2, &error.message);
        if let Some(remedy) = &error.remedy {
            self.labelled("help:", remedy);
        }
    }

    /// Adds an earlier try of the case, with its unexpected results.
    fn failed_try(&mut self, number: usize, earlier: &CaseDocument) {
        let status = earlier.result.upper_case_name();
        let time = format!("({})", render_seconds(earlier.duration_ms));
        self.heading(&format!("try {number}"), &[status, &time]);
        for line in unexpected_lines(earlier) {
            self.indented(4, &line);
        }
    }

    fn claim(&mut self, claim: &ClaimDocument) {
        let part = claim
            .part
            .as_ref()
            .map_or_else(String::new, |part| format!(" ({part})"));
        let verdict = claim.verdict.label();
        self.labelled("claim", &format!("{}{part}: {verdict}", claim.id));
        if let Some(difference) = &claim.difference {
            self.indented(4, difference);
        }
    }

    fn heading(&mut self, name: &str, more: &[&str]) {
        let mut parts = vec![format!("  {NAME}{}{NAME:#}", strip_colours(name))];
        let more = more.iter().filter(|words| !words.is_empty());
        parts.extend(more.map(|words| strip_colours(words)));
        self.line(&parts.join("  "));
    }

    /// Adds a label and its value in one line.
    fn labelled(&mut self, label: &str, value: &str) {
        let value = indent_continuation(value, 2 + label.len() + 1);
        self.line(&format!("  {LABEL}{label}{LABEL:#} {value}"));
    }

    /// Adds the expected value, if there is one, above the observed one, so that differences are
    /// visible.
    fn push_comparison(&mut self, expected: &str, seen: &str) {
        if !expected.is_empty() {
            self.detail("expected", expected);
        }
        self.detail("seen    ", seen);
    }

    fn detail(&mut self, label: &str, value: &str) {
        let value = indent_continuation(value, 4 + label.len() + 2);
        self.line(&format!("    {LABEL}{label}{LABEL:#}  {value}"));
    }

    fn indented(&mut self, indent: usize, value: &str) {
        self.line(&format!(
            "{}{}",
            " ".repeat(indent),
            indent_continuation(value, indent)
        ));
    }

    fn line(&mut self, line: &str) {
        self.0 += line;
        self.0 += "\n";
    }
}

/// Indents all lines but the first, and removes escape sequences that a dump or a program
/// contained.
fn indent_continuation(text: &str, indent: usize) -> String {
    let text = strip_colours(text);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use svclab_runner::results::fixture;
    use svclab_runner::results::{CaseResult, ErrorKind};

    #[test]
    fn details_escape_sequences_are_removed() {
        let message = "before\x1b[2J\x1b]0;title\x07 after".to_owned();
        let case = CaseResult {
            result: CaseStatus::Error,
            error: Some(RunError {
                kind: ErrorKind::Input,
                message: message.clone(),
                remedy: Some(message),
            }),
            ..fixture::passed("lab/case")
        };
        let renderer = CaseRenderer {
            verbose: false,
            names_kernels: false,
            rerun_command: "svclab run",
        };
        let details = renderer.details(&CaseDocument::from(&case));
        assert!(!details.contains("\x1b[2J") && !details.contains('\x07'));
        assert!(
            details.contains("before") && details.contains(" after"),
            "{details}"
        );
    }

    #[test]
    fn case_with_several_tries_has_each() {
        let options = Options::default();
        let renderer = CaseRenderer::new(&options);
        let text = |case: &CaseResult| {
            let case = &CaseDocument::from(case);
            let head = strip_colours(&renderer.head(case));
            format!("{head}\n{}", renderer.plain_details(case))
        };
        let flaky = fixture::flaky();
        let failed = CaseResult {
            failed_tries: flaky.failed_tries.clone(),
            ..fixture::timed_out_case()
        };
        insta::assert_snapshot!(format!("{}\n\n{}", text(&flaky), text(&failed)));
    }

    #[test]
    fn details_failed_flow_has_reason_and_location() {
        let renderer = CaseRenderer {
            verbose: false,
            names_kernels: false,
            rerun_command: "svclab run",
        };
        insta::assert_snapshot!(
            renderer.plain_details(&CaseDocument::from(&fixture::failed_flow()))
        );
    }
}
