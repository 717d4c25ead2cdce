//! Implements `svclab explain`.

use std::collections::HashMap;

use super::labs::prepare_each_lab;
use super::run::run_options;
use crate::cli::args::{ExplainArguments, Explanation};
use crate::cli::error::{CliError, CommandResult, Outcome, outcome_of_cases};
use crate::cli::input::running_lab::find_running_lab;
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{has_colour_on_stdout, print, print_case_error, print_json};
use crate::cli::report_output::{ReportOutput, ReportedCase, answer, command_line, reported_cases};
use crate::live::{
    CallError, ClientRequest, DaemonReply, OutputForm, RenderedJourneys, request_daemon,
};
use svclab_diagnostic::exit_code;
use svclab_journey::journey::Journey;
use svclab_judge::ProbeOutcome;
use svclab_report::explain::{CaseHead, CaseJourneys, Journeys, StageJourneys};
use svclab_report::journey::JourneyRenderer;
use svclab_report::{Additions, CaseAdditions};
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{self, ExplainedCase, Prepared, RunOptions, unknown_probe_error};

/// Runs the selected cases, or the probes of a running lab, and explains their packets.
pub(crate) fn explain(arguments: &ExplainArguments) -> CommandResult {
    if arguments.running {
        return explain_running(arguments);
    }
    let labs = prepare_each_lab(&arguments.selection)?;
    let (cases, wrong): (Vec<_>, Vec<_>) = labs
        .into_iter()
        .flat_map(|lab| lab.cases)
        .partition(Result::is_ok);
    let cases: Vec<Prepared> = cases.into_iter().flatten().collect();
    // Errors of invalid labs are already printed.
    let wrong = wrong.into_iter().filter_map(Result::err);
    let mut worst = wrong.filter_map(|case| Some(case.error?.kind)).max();
    if cases.is_empty() {
        let code = worst.map_or(exit_code::NOTHING_SELECTED, ErrorKind::exit_code);
        return Ok(Outcome::from_code(code));
    }
    if let Some(probe_name) = &arguments.probe {
        let probes = || cases.iter().flat_map(|case| case.plan.probes());
        if !probes().any(|probe| probe.name == *probe_name) {
            return Err(unknown_probe_error(probe_name, probes()).into());
        }
    }
    let options = run_options(None, false, arguments.kernels.choice());
    let report = ReportOutput::start(arguments.report.as_deref())?;
    let mut explained_cases = Vec::new();
    for result in explain_cases(cases, &options)? {
        match result {
            Ok(case) => explained_cases.push(case),
            Err((case, error)) => {
                print_case_error(&case, &error);
                worst = worst.max(Some(error.kind));
            }
        }
    }
    let probes: Vec<String> = arguments.probe.iter().cloned().collect();
    let text = || render_text(&explained_cases, &probes, arguments.verbose, true);
    let document = || {
        let cases = explained_cases.iter();
        Journeys::new(
            cases
                .map(|case| case_journeys(case, &probes, true))
                .collect(),
        )
    };
    let printed = match arguments.format {
        Explanation::Human => print(&text()),
        Explanation::Json => print_json(&document()),
    };
    if let Some(report) = report {
        let title = format!("svclab explain {}", arguments.selection.names.join(" "));
        let answer = answer(title, &text(), &document())?;
        let (cases, additions) = reported_cases(explained_cases, true);
        let additions = Additions {
            answer: Some(answer),
            cases: additions,
        };
        report.write(additions, cases)?;
    }
    outcome_of_cases(printed, worst, Outcome::SUCCESS)
}

/// Explained case, or the name and the error of a case without evidence.
type CaseExplanation = Result<ExplainedCase, (String, RunError)>;

/// Runs cases until the user interrupts.
pub(crate) fn explain_cases(
    cases: Vec<Prepared>,
    options: &RunOptions,
) -> Result<Vec<CaseExplanation>, CliError> {
    let explained = run_interruptible(run::explain(cases, options, std::future::pending()))?;
    explained.ok_or(CliError::Interrupted)
}

/// Runs the sides of comparisons, and returns them as the cases of a report. The error of a side is
/// printed.
pub(crate) fn explain_sides(
    sides: Vec<(Prepared, &str)>,
    judged: bool,
    options: &RunOptions,
) -> Result<(Vec<ReportedCase>, HashMap<String, CaseAdditions>), CliError> {
    let mut side_of = HashMap::new();
    let named = sides.into_iter().map(|(mut prepared, side)| {
        for name in [&mut prepared.case.id, &mut prepared.cli_name] {
            *name = format!("{name} ({side})");
        }
        side_of.insert(prepared.case.id.clone(), side.to_owned());
        prepared
    });
    let named = named.collect();
    let mut explained = Vec::new();
    for result in explain_cases(named, options)? {
        match result {
            Ok(case) => explained.push(case),
            Err((case, error)) => print_case_error(&case, &error),
        }
    }
    let (cases, mut additions) = reported_cases(explained, judged);
    for (case, additions) in &mut additions {
        additions.side = side_of.remove(case);
    }
    Ok((cases, additions))
}

/// Runs the probes of a running lab and explains their packets.
fn explain_running(arguments: &ExplainArguments) -> CommandResult {
    let name = match arguments.selection.names.as_slice() {
        [] => None,
        [name] => Some(name.as_str()),
        _ => {
            return Err(CliError::refused(
                "only one running lab can be explained at a time",
                "give one name",
            ));
        }
    };
    let report = ReportOutput::start(arguments.report.as_deref())?;
    let request = ClientRequest::Explain {
        probe: arguments.probe.clone(),
        max_wait: arguments.selection.max_wait.limit,
        form: output_form(
            arguments.format,
            arguments.verbose,
            report
                .is_some()
                .then(|| "svclab explain --running".to_owned()),
        ),
    };
    let explained = run_interruptible(async {
        let selector = "`svclab explain --running LAB/CASE`";
        let (directory, lab) = find_running_lab(name, selector).await?;
        let mut line = request_daemon(&directory, &lab.case, &request).await?;
        match line.recv().await? {
            DaemonReply::Explained { explained } => Ok(explained),
            _ => Err(CliError::from(CallError::UnexpectedReply)),
        }
    })??;
    print_explained(&explained, arguments.format, report.as_ref())?;
    Ok(Outcome::SUCCESS)
}

/// Returns the output form to request from a daemon. `title` is that of the page, if there is one.
pub(crate) fn output_form(format: Explanation, verbose: bool, title: Option<String>) -> OutputForm {
    if let Some(title) = title {
        let command = command_line();
        return OutputForm::Page {
            verbose,
            title,
            command,
        };
    }
    match format {
        Explanation::Human => OutputForm::Text { verbose },
        Explanation::Json => OutputForm::Data,
    }
}

/// Prints an explanation from a daemon, and writes its page.
pub(crate) fn print_explained(
    explained: &RenderedJourneys,
    format: Explanation,
    report: Option<&ReportOutput>,
) -> Result<(), CliError> {
    let text = |text: &String| print(&strip_unsupported_colours(text.clone()));
    let document = |case: &CaseJourneys| Journeys::new(vec![case.clone()]);
    match (explained, format) {
        (RenderedJourneys::Text(printed), _)
        | (RenderedJourneys::Page { text: printed, .. }, Explanation::Human) => text(printed)?,
        (RenderedJourneys::Data(data), _)
        | (RenderedJourneys::Page { data, .. }, Explanation::Json) => print_json(&document(data))?,
    }
    match (explained, report) {
        (RenderedJourneys::Page { text, data, page }, Some(report)) => {
            report.write_page(page, &answer(String::new(), text, &document(data))?)
        }
        _ => Ok(()),
    }
}

/// Removes colours if standard output does not support them.
fn strip_unsupported_colours(text: String) -> String {
    if has_colour_on_stdout() {
        text
    } else {
        anstream::adapter::strip_str(&text).to_string()
    }
}

/// Renders explained cases as text: the named probes, or all of them if `probes` is empty. `judged`
/// adds whether the case met its expectations.
pub(crate) fn render_text(
    cases: &[ExplainedCase],
    probes: &[String],
    verbose: bool,
    judged: bool,
) -> String {
    let texts: Vec<String> = cases
        .iter()
        .map(|case| {
            let head = case_head(case, judged);
            let outcomes = outcomes(case, judged);
            let explainers = case
                .prepared
                .explainers(&case.evidence, outcomes.iter().copied());
            let stages = case.journeys.iter().zip(explainers).enumerate();
            let texts = stages.map(|(stage, (journeys, explainer))| {
                let renderer = JourneyRenderer {
                    explainer: &explainer,
                    verbose,
                    brief: cases.len() > 1,
                };
                let step = case.prepared.step_name(stage);
                let mut journeys = select_journeys(journeys, probes).peekable();
                if step.is_some() && journeys.peek().is_none() {
                    return String::new();
                }
                renderer.render_stage(&head, step, journeys)
            });
            texts.collect()
        })
        .collect();
    strip_unsupported_colours(texts.join("\n"))
}

/// Returns the journeys of the named probes, or of all probes if `probes` is empty.
pub(crate) fn case_journeys(case: &ExplainedCase, probes: &[String], judged: bool) -> CaseJourneys {
    let journeys = case.journeys.iter();
    let selected = journeys.map(|journeys| select_journeys(journeys, probes).cloned().collect());
    let outcomes = outcomes(case, judged);
    let outcomes = outcomes.iter().copied();
    CaseJourneys {
        head: case_head(case, judged),
        stages: StageJourneys::from_case(&case.prepared, &case.evidence, outcomes, selected),
    }
}

/// Returns the results of the probes, if the case was judged.
fn outcomes(case: &ExplainedCase, judged: bool) -> Vec<&ProbeOutcome> {
    case.judgement.probes().filter(|_| judged).collect()
}

fn case_head(case: &ExplainedCase, judged: bool) -> CaseHead {
    let expected = judged.then(|| case.judgement.holds());
    CaseHead::new(
        case.prepared.case.id.clone(),
        case.kernel.clone(),
        expected,
        &case.evidence,
    )
}

/// Returns the journeys of the named probes, or all journeys if `probes` is empty.
fn select_journeys<'e>(
    journeys: &'e [Journey],
    probes: &'e [String],
) -> impl Iterator<Item = &'e Journey> {
    let is_unfiltered = probes.is_empty();
    journeys
        .iter()
        .filter(move |journey| is_unfiltered || probes.contains(&journey.probe))
}
