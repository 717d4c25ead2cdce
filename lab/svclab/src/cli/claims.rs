//! Implements `svclab claims`.

use std::io;
use std::path::Path;

use tokio::sync::mpsc;

use super::args::{ClaimsArguments, ClaimsFormat, Common};
use super::exit::Exit;
use super::interrupt::{Interrupts, drive};
use super::labs::{selected, tell};
use super::output::{colour, print_json, refused, width, written};
use super::run::{options, print as telling, running};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::files::Location;
use svclab_diagnostic::printable::{Kind, Printable};
use svclab_diagnostic::source::MAX_BYTES;
use svclab_planner::cluster::place;
use svclab_report::Several;
use svclab_report::claims::{
    Declared, Differing, Layout, differing, document, exit_code, print, tally,
};
use svclab_runner::results::Results;
use svclab_runner::run::{Chosen, Given, choose};
use svclab_scenario::Scenario;
use svclab_scenario::reference::DocumentRef;

/// Runs the labs with claims, or reads the results of a finished run, and prints each claim.
pub fn claims(common: &Common, arguments: &ClaimsArguments) -> Exit {
    let made = match &arguments.from {
        Some(path) => read(common, arguments, path),
        None => run(common, arguments),
    };
    let (results, labs) = match made {
        Ok(made) => made,
        Err(exit) => return exit,
    };
    let declared: Vec<Declared<'_>> = labs.iter().flat_map(declared).collect();
    for differing in differing(&declared) {
        warn(&labs, differing);
    }
    let lines = tally(&results, &declared);
    let printed = match arguments.format {
        ClaimsFormat::Human => written(print(
            &lines,
            Layout {
                width: width(),
                colour: colour(),
                verbose: arguments.verbose,
            },
            Printable::new(
                io::stdout().lock(),
                if colour() { Kind::Styled } else { Kind::Text },
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
            Exit::Of(results.exit_code())
        }
        Exit::Success => Exit::Of(exit_code(&lines)),
        other => other,
    }
}

/// Results and the labs they belong to.
type Made = (Results, Vec<Scenario>);

fn run(common: &Common, arguments: &ClaimsArguments) -> Result<Made, Exit> {
    let speaks = |lab: &Chosen| !lab.scenario.lab.spec.claims.is_empty();
    let mut labs = selected(common, &arguments.selection)?;
    for selected in &mut labs {
        // A lab that cannot be loaded may have claims, so its error must not count as success.
        if !selected.lab.as_ref().is_none_or(speaks) {
            selected.cases.retain(Result::is_err);
        }
    }
    let right = labs.iter().filter_map(|selected| selected.lab.as_ref());
    let scenarios = right.map(|lab| lab.scenario.clone()).collect();
    let cases: Vec<Given> = labs.into_iter().flat_map(|lab| lab.cases).collect();
    if cases.is_empty() {
        eprintln!(
            "error: nothing was selected: none of the labs declares `claims`, and none was run"
        );
        return Err(Exit::Nothing);
    }
    let options = options(arguments.jobs, false, arguments.place.choice());
    let ran = drive(async {
        let mut interrupts = Interrupts::listen();
        let (tell, told) = mpsc::unbounded_channel();
        // Only the progress shows the cases, so there is no writer.
        let mut nobody = Several(Vec::new());
        let progress = telling(&mut nobody, told, false);
        let (ran, _) = tokio::join!(running(cases, &options, tell, &mut interrupts), progress);
        ran
    });
    match ran {
        Ok((results, _)) if results.interrupted => {
            eprintln!("interrupted");
            Err(Exit::Interrupted)
        }
        Ok((results, _)) => Ok((results, scenarios)),
        Err(error) => Err(refused(&error)),
    }
}

/// Reads the results of a finished run, and loads the labs for the texts of their claims.
fn read(common: &Common, arguments: &ClaimsArguments, path: &Path) -> Result<Made, Exit> {
    let refuse = |error: &dyn std::fmt::Display| {
        eprintln!("error: {}: {error}", path.display());
        Exit::Input
    };
    let read = Location::anywhere(path).read(MAX_BYTES);
    let (bytes, _) = read.map_err(|error| refuse(&error))?;
    let results: Results = serde_json::from_slice(&bytes).map_err(|error| {
        refuse(&format!(
            "it is not what `svclab run --format json` prints: {error}"
        ))
    })?;
    if results.schema != svclab_runner::results::SCHEMA {
        return Err(refuse(&format!(
            "its schema is {}, not {}",
            results.schema,
            svclab_runner::results::SCHEMA
        )));
    }
    let labs =
        choose(&arguments.selection.names, &common.topologies).map_err(|error| refuse(&error))?;
    Ok((results, labs.into_iter().map(|lab| lab.scenario).collect()))
}

fn declared(scenario: &Scenario) -> impl Iterator<Item = Declared<'_>> {
    scenario.lab.spec.claims.iter().map(|(id, claim)| Declared {
        lab: scenario.name(),
        id,
        says: &claim.says,
        not_checkable: claim.not_checkable.as_deref(),
    })
}

/// Warns that a later lab gives the same claim a different text.
fn warn(labs: &[Scenario], Differing { first, other }: Differing<'_>) {
    let diagnostic = Diagnostic::warning(format!(
        "the claim `{}` says something else in the lab `{}`",
        other.id, first.lab
    ))
    .help(format!("there it says: {}", first.says));
    let Some(lab) = labs.iter().find(|lab| lab.name() == other.lab) else {
        return;
    };
    let at = place!["spec", "claims", other.id, "says"];
    let span = lab
        .cases()
        .first()
        .and_then(|case| case.span(&DocumentRef::Lab, &at));
    let diagnostic = match span {
        Some(span) => diagnostic.at(span, "and this here"),
        None => diagnostic,
    };
    tell(&lab.sources, &[diagnostic]);
}
