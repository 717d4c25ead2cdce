//! `svclab explain`

use super::args::{Common, ExplainArguments, Explanation};
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::labs::prepared;
use super::output::{colour, print, print_json, refused};
use super::run::options;
use crate::explain::Book;
use crate::explain::journey::Journey;
use crate::report::journey::Telling;
use crate::report::journeys::{CaseJourneys, Head, Journeys};
use crate::run::{Explained, Prepared, explain as explained};

/// Runs the chosen cases and tells of their packets.
pub fn explain(common: &Common, arguments: &ExplainArguments) -> Exit {
    let labs = match prepared(common, &arguments.selection) {
        Ok(labs) => labs,
        Err(exit) => return exit,
    };
    let cases: Vec<Prepared> = labs.into_iter().flat_map(|(_, cases)| cases).collect();
    if let Some(probe) = &arguments.probe
        && let Some(exit) = unknown(probe, &cases)
    {
        return exit;
    }
    let options = options(None, false, arguments.place.choice());
    let ran = unless_interrupted(explained(cases, &options, std::future::pending()));
    let explained = match ran {
        Ok(Some(Some(explained))) => explained,
        Ok(_) => {
            eprintln!("interrupted");
            return Exit::Interrupted;
        }
        Err(error) => return refused(&error),
    };
    let mut worst = None;
    let mut told = Vec::new();
    for one in explained {
        match one {
            Ok(one) => told.push(one),
            Err((case, error)) => {
                eprintln!("error: {case}: {}", error.message);
                if let Some(remedy) = &error.remedy {
                    eprintln!("  what to do: {remedy}");
                }
                worst = worst.max(Some(error.trouble));
            }
        }
    }
    let printed = match arguments.format {
        Explanation::Human => print(&human(&told, arguments)),
        Explanation::Json => {
            let cases = told.iter().map(|one| as_data(one, arguments)).collect();
            print_json(&Journeys::of(cases))
        }
    };
    match worst {
        Some(trouble) => Exit::Of(trouble.exit_code()),
        None => printed,
    }
}

/// What the command ends with where no case has a probe of that name.
fn unknown(probe: &str, cases: &[Prepared]) -> Option<Exit> {
    let mut names: Vec<&str> = cases
        .iter()
        .flat_map(|case| case.plan.probes.iter().map(|probe| probe.name.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.contains(&probe) {
        return None;
    }
    eprintln!("error: there is no probe `{probe}`");
    eprintln!("  what to do: name one of these: {}", names.join(", "));
    Some(Exit::Input)
}

fn human(told: &[Explained], arguments: &ExplainArguments) -> String {
    let texts: Vec<String> = told
        .iter()
        .map(|one| {
            let telling = Telling {
                book: book(one),
                verbose: arguments.verbose,
                brief: told.len() > 1,
            };
            telling.case(&head(one), wanted(one, arguments))
        })
        .collect();
    let text = texts.join("\n");
    if colour() {
        text
    } else {
        anstream::adapter::strip_str(&text).to_string()
    }
}

fn as_data(one: &Explained, arguments: &ExplainArguments) -> CaseJourneys {
    CaseJourneys::of(
        head(one),
        wanted(one, arguments).cloned().collect(),
        &book(one),
    )
}

fn book(one: &Explained) -> Book<'_> {
    Book::new(&one.prepared.cluster, &one.prepared.plan)
}

fn head(one: &Explained) -> Head {
    Head {
        case: one.prepared.case.id.clone(),
        kernel: one.kernel.clone(),
        expected: one.judgement.holds(),
        packets_left_out: one.evidence.packets_left_out,
        steps_left_out: one.evidence.met_left_out,
    }
}

/// The journeys that were asked for.
fn wanted<'e>(
    one: &'e Explained,
    arguments: &'e ExplainArguments,
) -> impl Iterator<Item = &'e Journey> {
    let probe = arguments.probe.as_ref();
    one.journeys
        .iter()
        .filter(move |journey| probe.is_none_or(|probe| journey.probe == *probe))
}
