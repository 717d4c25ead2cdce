//! Implements `svclab explain`.

use super::args::{Common, ExplainArguments, Explanation};
use super::exit::Exit;
use super::interrupt::unless_interrupted;
use super::labs::selected;
use super::output::{colour, print, print_json, refused, told};
use super::run::options;
use super::which::{uncalled, which};
use crate::live::{Ask, CallError, Explained as Packets, Form, Told, call};
use svclab_journey::journey::Journey;
use svclab_judge::Book;
use svclab_model::plan::{Plan, Probe};
use svclab_report::journey::Telling;
use svclab_runner::kernel::Choice;
use svclab_runner::results::journeys::{CaseJourneys, Head, Journeys};
use svclab_runner::results::{RunError, Trouble};
use svclab_runner::run::{Explained, Prepared, explain as explained, no_such_probe};

/// Runs the selected cases, or the probes of a running lab, and explains their packets.
pub fn explain(common: &Common, arguments: &ExplainArguments) -> Exit {
    if arguments.standing {
        return standing(arguments);
    }
    let labs = match selected(common, &arguments.selection) {
        Ok(labs) => labs,
        Err(exit) => return exit,
    };
    let (cases, wrong): (Vec<_>, Vec<_>) = labs
        .into_iter()
        .flat_map(|lab| lab.cases)
        .partition(Result::is_ok);
    let cases: Vec<Prepared> = cases.into_iter().flatten().collect();
    // Errors of invalid labs are already printed.
    let wrong = wrong.into_iter().filter_map(Result::err);
    let mut worst = wrong.filter_map(|case| Some(case.error?.trouble)).max();
    if cases.is_empty() {
        return worst.map_or(Exit::Nothing, |trouble| Exit::Of(trouble.exit_code()));
    }
    if let Some(wanted) = &arguments.probe {
        let of_steps = |plan: &'_ Plan| -> Vec<Probe> {
            let steps = plan.steps.iter();
            steps
                .flat_map(|step| step.open.iter().chain(&step.probes))
                .cloned()
                .collect()
        };
        let later: Vec<Probe> = cases.iter().flat_map(|case| of_steps(&case.plan)).collect();
        let probes = || {
            cases
                .iter()
                .flat_map(|case| &case.plan.probes)
                .chain(&later)
        };
        if !probes().any(|probe| probe.name == *wanted) {
            return told(&no_such_probe(wanted, probes()));
        }
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
    let mut seen = Vec::new();
    for one in explained {
        match one {
            Ok(one) => seen.push(one),
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
        Explanation::Human => {
            let probes: Vec<String> = arguments.probe.iter().cloned().collect();
            print(&human(&seen, &probes, arguments.verbose, true))
        }
        Explanation::Json => {
            let cases = seen.iter().map(|one| as_data(one, arguments)).collect();
            print_json(&Journeys::of(cases))
        }
    };
    match worst {
        Some(trouble) => Exit::Of(trouble.exit_code()),
        None => printed,
    }
}

/// Runs the probes of a running lab and explains their packets.
fn standing(arguments: &ExplainArguments) -> Exit {
    let wrong = |message: &str, remedy: &str| {
        told(&RunError {
            trouble: Trouble::Input,
            message: message.to_owned(),
            remedy: Some(remedy.to_owned()),
        })
    };
    // `SVCLAB_KERNEL` applies to labs that are built, so only the argument is an error.
    let by_environment = std::env::var_os("SVCLAB_KERNEL").is_some();
    if arguments.place.choice() != Choice::Auto && !by_environment {
        return wrong(
            "a lab that stands has its kernel already",
            "leave out --kernel, or --standing",
        );
    }
    let name = match arguments.selection.names.as_slice() {
        [] => None,
        [name] => Some(name.as_str()),
        _ => {
            return wrong(
                "one lab that stands is explained at a time",
                "name one of them",
            );
        }
    };
    let ask = Ask::Explain {
        probe: arguments.probe.clone(),
        patience: arguments.selection.patience.longest,
        form: form(arguments.format, arguments.verbose),
    };
    let asked = async {
        let with = "`svclab explain --standing LAB/CASE`";
        let (directory, lab) = which(name, with).await?;
        let answer = async {
            let mut line = call(&directory, &lab.case, &ask).await?;
            match line.hear().await? {
                Told::Explained { explained } => Ok(explained),
                _ => Err(CallError::Nonsense),
            }
        };
        answer.await.map_err(|error| uncalled(&error))
    };
    match unless_interrupted(asked) {
        Ok(Some(Ok(explained))) => print_explained(explained),
        Ok(Some(Err(exit))) => exit,
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => refused(&error),
    }
}

/// Returns the output form to request from a daemon.
pub fn form(format: Explanation, verbose: bool) -> Form {
    match format {
        Explanation::Human => Form::Text { verbose },
        Explanation::Json => Form::Data,
    }
}

/// Prints an explanation from a daemon.
pub fn print_explained(explained: Packets) -> Exit {
    match explained {
        Packets::Text(text) => print(&plain(text)),
        Packets::Data(case) => print_json(&Journeys::of(vec![*case])),
    }
}

/// Removes colours if standard output does not support them.
fn plain(text: String) -> String {
    if colour() {
        text
    } else {
        anstream::adapter::strip_str(&text).to_string()
    }
}

/// Renders explained cases as text: the named probes, or all of them if `probes` is empty. `judged`
/// adds whether the case met its expectations.
pub fn human(told: &[Explained], probes: &[String], verbose: bool, judged: bool) -> String {
    let texts: Vec<String> = told
        .iter()
        .map(|one| {
            let telling = Telling {
                book: book(one),
                verbose,
                brief: told.len() > 1,
            };
            let mut text = telling.case(&head(one, judged), wanted(&one.journeys, probes));
            for ((step, journeys), book) in steps(one).zip(one.prepared.books().into_iter().skip(1))
            {
                let journeys: Vec<&Journey> = wanted(journeys, probes).collect();
                if !journeys.is_empty() {
                    text += &Telling { book, ..telling }.step(step, journeys.into_iter());
                }
            }
            text
        })
        .collect();
    plain(texts.join("\n"))
}

fn as_data(one: &Explained, arguments: &ExplainArguments) -> CaseJourneys {
    let probes: Vec<String> = arguments.probe.iter().cloned().collect();
    data(one, &probes, true)
}

/// Returns the journeys of the named probes, or of all probes if `probes` is empty.
pub(super) fn data(one: &Explained, probes: &[String], judged: bool) -> CaseJourneys {
    let first = wanted(&one.journeys, probes).cloned().collect();
    let books = one.prepared.books().into_iter().skip(1);
    let steps = steps(one).zip(books).map(|((step, journeys), book)| {
        let journeys = wanted(journeys, probes).cloned().collect();
        (step.to_owned(), journeys, book)
    });
    CaseJourneys::of(head(one, judged), first, &book(one)).with_steps(steps)
}

/// Returns the names of the steps with the journeys of each step.
fn steps(one: &Explained) -> impl Iterator<Item = (&str, &[Journey])> {
    let names = one.prepared.steps.iter().map(|step| step.name.as_str());
    names.zip(one.steps.iter().map(Vec::as_slice))
}

fn book(one: &Explained) -> Book<'_> {
    Book::new(&one.prepared.cluster, &one.prepared.plan)
}

fn head(one: &Explained, judged: bool) -> Head {
    let expected = judged.then(|| one.judgement.holds());
    Head::of(
        one.prepared.case.id.clone(),
        one.kernel.clone(),
        expected,
        &one.evidence,
    )
}

/// Returns the journeys of the named probes, or all journeys if `probes` is empty.
fn wanted<'e>(journeys: &'e [Journey], probes: &'e [String]) -> impl Iterator<Item = &'e Journey> {
    let all = probes.is_empty();
    journeys
        .iter()
        .filter(move |journey| all || probes.contains(&journey.probe))
}
