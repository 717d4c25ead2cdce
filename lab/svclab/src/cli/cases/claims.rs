//! Implements `svclab claims`.

use std::io;
use std::path::Path;

use tokio::sync::mpsc;

use super::labs::{prepare_each_lab, print_diagnostics};
use super::run::{print_events as telling, run_cases, run_options};
use crate::cli::args::{ClaimsArguments, ClaimsFormat, Common};
use crate::cli::exit::Exit;
use crate::cli::interrupt::{Interrupts, block_on};
use crate::cli::output::{
    has_colour_on_stdout, output_width, print_json, print_start_error, write_exit,
};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::files::Location;
use svclab_diagnostic::printable::{PrintableWriter, TextKind};
use svclab_diagnostic::source::MAX_BYTES;
use svclab_planner::cluster::place;
use svclab_report::MultiWriter;
use svclab_report::claims::{
    Declared, DifferingClaim, Layout, determine_statuses, document, exit_code, find_differing,
    print_claims,
};
use svclab_runner::results::Results;
use svclab_runner::run::{RunInput, SelectedLab, select_labs};
use svclab_scenario::Scenario;
use svclab_scenario::reference::DocumentRef;

/// Runs the labs with claims, or reads the results of a finished run, and prints each claim.
pub fn claims(common: &Common, arguments: &ClaimsArguments) -> Exit {
    let input = match &arguments.from {
        Some(path) => read_results(common, arguments, path),
        None => run_labs(common, arguments),
    };
    let (results, labs) = match input {
        Ok(made) => made,
        Err(exit) => return exit,
    };
    let declared: Vec<Declared<'_>> = labs.iter().flat_map(declared_claims).collect();
    for differing in find_differing(&declared) {
        warn_differing(&labs, differing);
    }
    let lines = determine_statuses(&results, &declared);
    let printed = match arguments.format {
        ClaimsFormat::Human => write_exit(print_claims(
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
        )),
        ClaimsFormat::Json => print_json(&document(lines.clone())),
    };
    match printed {
        // Errors of the run are printed instead of a result for the claims.
        Exit::Success if results.exit_code() > 1 => {
            for error in results
                .cases
                .iter()
                .filter_map(|case| Some((&case.case, case.error.as_ref()?)))
            {
                eprintln!("error: {}: {}", error.0, error.1.message);
            }
            Exit::Code(results.exit_code())
        }
        Exit::Success => Exit::Code(exit_code(&lines)),
        other => other,
    }
}

/// Results and the labs they belong to.
type ClaimInput = (Results, Vec<Scenario>);

fn run_labs(common: &Common, arguments: &ClaimsArguments) -> Result<ClaimInput, Exit> {
    let has_claims = |lab: &SelectedLab| !lab.scenario.lab.spec.claims.is_empty();
    let mut labs = prepare_each_lab(common, &arguments.selection)?;
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
        eprintln!("error: nothing was selected: no lab declares `claims`, so no lab was run");
        return Err(Exit::Nothing);
    }
    let options = run_options(arguments.jobs, false, arguments.kernels.choice());
    let ran = block_on(async {
        let mut interrupts = Interrupts::listen();
        let (event_sender, events) = mpsc::unbounded_channel();
        // Only the progress shows the cases, so there is no writer.
        let mut no_writer = MultiWriter(Vec::new());
        let progress = telling(&mut no_writer, events, false);
        let (ran, _) = tokio::join!(
            run_cases(cases, &options, event_sender, &mut interrupts),
            progress
        );
        ran
    });
    match ran {
        Ok((results, _)) if results.interrupted => {
            eprintln!("interrupted");
            Err(Exit::Interrupted)
        }
        Ok((results, _)) => Ok((results, scenarios)),
        Err(error) => Err(print_start_error(&error)),
    }
}

/// Reads the results of a finished run, and loads the labs for the texts of their claims.
fn read_results(
    common: &Common,
    arguments: &ClaimsArguments,
    path: &Path,
) -> Result<ClaimInput, Exit> {
    let refuse = |error: &dyn std::fmt::Display| {
        eprintln!("error: {}: {error}", path.display());
        Exit::Input
    };
    let read = Location::anywhere(path).read(MAX_BYTES);
    let (bytes, _) = read.map_err(|error| refuse(&error))?;
    let results: Results = serde_json::from_slice(&bytes).map_err(|error| {
        refuse(&format!(
            "not an output of `svclab run --format json`: {error}"
        ))
    })?;
    if results.schema != svclab_runner::results::SCHEMA {
        return Err(refuse(&format!(
            "the schema is {}, not {}",
            results.schema,
            svclab_runner::results::SCHEMA
        )));
    }
    let labs = select_labs(&arguments.selection.names, &common.topologies)
        .map_err(|error| refuse(&error))?;
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
