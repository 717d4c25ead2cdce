//! Implements `svclab claims`.

use std::fmt::Display;
use std::io;
use std::path::Path;

use tokio::sync::mpsc;

use super::labs::prepare_each_lab;
use super::run::{print_events, run_cases, run_options};
use crate::cli::args::{ClaimsArguments, ClaimsFormat};
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::interrupt::{Interrupts, block_on};
use crate::cli::output::{
    check_output, has_colour_on_stdout, output_width, print_diagnostics, print_json, print_message,
};
use crate::cli::progress::ProgressDisplay;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::exit_code::{BUG, FAILED};
use svclab_diagnostic::files::Location;
use svclab_diagnostic::printable::{PrintableWriter, TextKind};
use svclab_diagnostic::source::MAX_BYTES;
use svclab_planner::cluster::place;
use svclab_report::MultiWriter;
use svclab_report::claims::{
    Declared, DifferingClaim, Layout, determine_statuses, document, exit_code, find_differing,
    print_claims,
};
use svclab_report::results::{CaseDocument, Document, SCHEMA};
use svclab_runner::results::{CaseStatus, ErrorKind};
use svclab_runner::run::{RunInput, SelectedLab, select_labs};
use svclab_scenario::Scenario;
use svclab_scenario::reference::DocumentRef;

/// Runs the labs with claims, or reads the results of a finished run, and prints each claim.
pub(crate) fn claims(arguments: &ClaimsArguments) -> CommandResult {
    let (results, labs) = match &arguments.from {
        Some(path) => read_results(arguments, path)?,
        None => run_labs(arguments)?,
    };
    let declared: Vec<Declared<'_>> = labs.iter().flat_map(declared_claims).collect();
    for differing in find_differing(&declared) {
        warn_differing(&labs, differing);
    }
    let lines = determine_statuses(&results.cases, &declared);
    let run_code = results.exit_code();
    if lines.is_empty() && run_code <= FAILED {
        return Err(CliError::NothingSelected {
            message: "nothing was selected: neither a lab nor the results have `claims`".to_owned(),
            help: None,
        });
    }
    let code = exit_code(&lines).max(run_code);
    match arguments.format {
        ClaimsFormat::Human => check_output(print_claims(
            &lines,
            Layout {
                width: output_width(),
                colour: has_colour_on_stdout(),
                verbose: arguments.verbose,
            },
            PrintableWriter::new(
                io::stdout().lock(),
                if has_colour_on_stdout() {
                    TextKind::Styled
                } else {
                    TextKind::Text
                },
            ),
        ))?,
        ClaimsFormat::Json => print_json(&document(lines))?,
    }
    // A case without the expected result, or without a result, may have no claim.
    for case in &results.cases {
        match &case.error {
            Some(error) => print_message(format_args!("error: {}: {}", case.case, error.message)),
            None if case.result == CaseStatus::Fail => {
                print_message(format_args!("error: {}: an expectation failed", case.case));
            }
            None => {}
        }
    }
    if results.interrupted {
        print_message(format_args!("error: the run was interrupted"));
    }
    Ok(Outcome::from_code(code))
}

/// Results and the labs they belong to.
type ClaimInput = (Document, Vec<Scenario>);

fn run_labs(arguments: &ClaimsArguments) -> Result<ClaimInput, CliError> {
    let has_claims = |lab: &SelectedLab| !lab.scenario.lab.spec.claims.is_empty();
    let mut labs = prepare_each_lab(&arguments.selection)?;
    for selected in &mut labs {
        // A lab that cannot be loaded may have claims, so its error must not count as success.
        if !selected.lab.as_ref().is_none_or(has_claims) {
            selected.cases.retain(Result::is_err);
        }
    }
    let right = labs.iter().filter_map(|selected| selected.lab.as_ref());
    let scenarios = right.map(|lab| lab.scenario.clone()).collect();
    let cases: Vec<RunInput> = labs.into_iter().flat_map(|lab| lab.cases).collect();
    if cases.is_empty() {
        return Err(CliError::NothingSelected {
            message: "nothing was selected: no lab declares `claims`, so no lab was run".to_owned(),
            help: None,
        });
    }
    let options = run_options(arguments.jobs, false, arguments.kernels.choice());
    let results = block_on(async {
        let mut interrupts = Interrupts::listen();
        let (event_sender, events) = mpsc::unbounded_channel();
        // Only the progress shows the cases, so there is no writer.
        let mut no_writer = MultiWriter(Vec::new());
        let progress = print_events(&mut no_writer, events, ProgressDisplay::new(), false);
        let running = run_cases(cases, &options, event_sender, &mut interrupts);
        let ((results, _), _) = tokio::join!(running, progress);
        results
    })?;
    if results.interrupted {
        return Err(CliError::Interrupted);
    }
    Ok((Document::from(&results), scenarios))
}

/// Reads the results of a finished run, and loads the labs for the texts of their claims.
fn read_results(arguments: &ClaimsArguments, path: &Path) -> Result<ClaimInput, CliError> {
    let refuse = |error: &dyn Display| CliError::Refused {
        message: format!("{}: {error}", path.display()),
        help: None,
    };
    let read = Location::anywhere(path).read(MAX_BYTES);
    let (bytes, _) = read.map_err(|error| refuse(&error))?;
    let results: Document = serde_json::from_slice(&bytes).map_err(|error| {
        refuse(&format!(
            "not an output of `svclab run --format json`: {error}"
        ))
    })?;
    if results.schema != SCHEMA {
        return Err(refuse(&format!(
            "the schema is {}, not {}",
            results.schema, SCHEMA
        )));
    }
    let has_bug = |case: &CaseDocument| {
        case.error
            .as_ref()
            .is_some_and(|error| error.kind == ErrorKind::Bug)
    };
    if results.exit_code() == BUG && !results.cases.iter().any(has_bug) {
        return Err(refuse(&"the results contradict their `summary` or `begun`"));
    }
    let selection = &arguments.selection;
    let search = selection
        .source
        .labs()
        .with_outside(selection.allow_outside);
    let labs = select_labs(&selection.names, search).map_err(|error| refuse(&error))?;
    Ok((results, labs.into_iter().map(|lab| lab.scenario).collect()))
}

fn declared_claims(scenario: &Scenario) -> impl Iterator<Item = Declared<'_>> {
    scenario.lab.spec.claims.iter().map(|(id, claim)| Declared {
        lab: scenario.name(),
        id,
        says: &claim.says,
        not_checkable: claim.not_checkable.as_deref(),
    })
}

/// Warns that a later lab gives the same claim a different text.
fn warn_differing(labs: &[Scenario], DifferingClaim { first, other }: DifferingClaim<'_>) {
    let diagnostic = Diagnostic::warning(format!(
        "claim `{}` has a different text in lab `{}`",
        other.id, first.lab
    ))
    .with_help(format!("the text there: {}", first.says));
    let Some(lab) = labs.iter().find(|lab| lab.name() == other.lab) else {
        return;
    };
    let path = place!["spec", "claims", other.id, "says"];
    let span = lab
        .cases()
        .first()
        .and_then(|case| case.span(&DocumentRef::Lab, &path));
    let diagnostic = match span {
        Some(span) => diagnostic.with_position(span, "different text"),
        None => diagnostic,
    };
    print_diagnostics(&lab.sources, &[diagnostic]);
}
