//! Implements `svclab explain`.

use super::labs::prepare_each_lab;
use super::run::run_options;
use crate::cli::args::{Common, ExplainArguments, Explanation};
use crate::cli::exit::Exit;
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{has_colour_on_stdout, print, print_error, print_json, print_start_error};
use crate::cli::running::which::{find_running_lab, print_call_error};
use crate::live::{
    CallError, ClientRequest, DaemonReply, OutputForm, RenderedJourneys as Packets, request_daemon,
};
use svclab_journey::journey::Journey;
use svclab_judge::AddressBook;
use svclab_model::plan::{Plan, Probe};
use svclab_report::journey::JourneyRenderer;
use svclab_runner::kernel::KernelChoice;
use svclab_runner::results::journeys::{CaseHead, CaseJourneys, Journeys};
use svclab_runner::results::{ErrorKind, RunError};
use svclab_runner::run::{ExplainedCase, Prepared, explain as explained, unknown_probe_error};

/// Runs the selected cases, or the probes of a running lab, and explains their packets.
pub fn explain(common: &Common, arguments: &ExplainArguments) -> Exit {
    if arguments.running {
        return explain_running(arguments);
    }
    let labs = match prepare_each_lab(common, &arguments.selection) {
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
    let mut worst = wrong.filter_map(|case| Some(case.error?.kind)).max();
    if cases.is_empty() {
        return worst.map_or(Exit::Nothing, |trouble| Exit::Code(trouble.exit_code()));
    }
    if let Some(probe_name) = &arguments.probe {
        let step_probes = |plan: &'_ Plan| -> Vec<Probe> {
            let steps = plan.steps.iter();
            steps
                .flat_map(|step| step.open.iter().chain(&step.probes))
                .cloned()
                .collect()
        };
        let later: Vec<Probe> = cases
            .iter()
            .flat_map(|case| step_probes(&case.plan))
            .collect();
        let probes = || {
            cases
                .iter()
                .flat_map(|case| &case.plan.probes)
                .chain(&later)
        };
        if !probes().any(|probe| probe.name == *probe_name) {
            return print_error(&unknown_probe_error(probe_name, probes()));
        }
    }
    let options = run_options(None, false, arguments.kernels.choice());
    let ran = run_interruptible(explained(cases, &options, std::future::pending()));
    let explained = match ran {
        Ok(Some(Some(explained))) => explained,
        Ok(_) => {
            eprintln!("interrupted");
            return Exit::Interrupted;
        }
        Err(error) => return print_start_error(&error),
    };
    let mut explained_cases = Vec::new();
    for result in explained {
        match result {
            Ok(one) => explained_cases.push(one),
            Err((case, error)) => {
                eprintln!("error: {case}: {}", error.message);
                if let Some(remedy) = &error.remedy {
                    eprintln!("  help: {remedy}");
                }
                worst = worst.max(Some(error.kind));
            }
        }
    }
    let printed = match arguments.format {
        Explanation::Human => {
            let probes: Vec<String> = arguments.probe.iter().cloned().collect();
            print(&render_text(
                &explained_cases,
                &probes,
                arguments.verbose,
                true,
            ))
        }
        Explanation::Json => {
            let cases = explained_cases
                .iter()
                .map(|case| selected_journeys(case, arguments))
                .collect();
            print_json(&Journeys::new(cases))
        }
    };
    match worst {
        Some(trouble) => Exit::Code(trouble.exit_code()),
        None => printed,
    }
}

/// Runs the probes of a running lab and explains their packets.
fn explain_running(arguments: &ExplainArguments) -> Exit {
    let wrong = |message: &str, remedy: &str| {
        print_error(&RunError {
            kind: ErrorKind::Input,
            message: message.to_owned(),
            remedy: Some(remedy.to_owned()),
        })
    };
    // `SVCLAB_KERNEL` applies to labs that are built, so only the argument is an error.
    let by_environment = std::env::var_os("SVCLAB_KERNEL").is_some();
    if arguments.kernels.choice() != KernelChoice::Auto && !by_environment {
        return wrong(
            "the kernel of a running lab cannot be changed",
            "omit --kernel or --running",
        );
    }
    let name = match arguments.selection.names.as_slice() {
        [] => None,
        [name] => Some(name.as_str()),
        _ => {
            return wrong(
                "only one running lab can be explained at a time",
                "give one name",
            );
        }
    };
    let ask = ClientRequest::Explain {
        probe: arguments.probe.clone(),
        max_wait: arguments.selection.max_wait.limit,
        form: output_form(arguments.format, arguments.verbose),
    };
    let asked = async {
        let with = "`svclab explain --running LAB/CASE`";
        let (directory, lab) = find_running_lab(name, with).await?;
        let answer = async {
            let mut line = request_daemon(&directory, &lab.case, &ask).await?;
            match line.recv().await? {
                DaemonReply::Explained { explained } => Ok(explained),
                _ => Err(CallError::UnexpectedReply),
            }
        };
        answer.await.map_err(|error| print_call_error(&error))
    };
    match run_interruptible(asked) {
        Ok(Some(Ok(explained))) => print_explained(explained),
        Ok(Some(Err(exit))) => exit,
        Ok(None) => {
            eprintln!("interrupted");
            Exit::Interrupted
        }
        Err(error) => print_start_error(&error),
    }
}

/// Returns the output form to request from a daemon.
pub fn output_form(format: Explanation, verbose: bool) -> OutputForm {
    match format {
        Explanation::Human => OutputForm::Text { verbose },
        Explanation::Json => OutputForm::Data,
    }
}

/// Prints an explanation from a daemon.
pub fn print_explained(explained: Packets) -> Exit {
    match explained {
        Packets::Text(text) => print(&strip_unsupported_colours(text)),
        Packets::Data(case) => print_json(&Journeys::new(vec![*case])),
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
pub fn render_text(
    cases: &[ExplainedCase],
    probes: &[String],
    verbose: bool,
    judged: bool,
) -> String {
    let texts: Vec<String> = cases
        .iter()
        .map(|case| {
            let telling = JourneyRenderer {
                book: address_book(case),
                verbose,
                brief: cases.len() > 1,
            };
            let mut text = telling.render_case(
                &case_head(case, judged),
                select_journeys(&case.journeys, probes),
            );
            for ((step, journeys), book) in
                step_journeys(case).zip(case.prepared.books().into_iter().skip(1))
            {
                let journeys: Vec<&Journey> = select_journeys(journeys, probes).collect();
                if !journeys.is_empty() {
                    text += &JourneyRenderer { book, ..telling }
                        .render_step(step, journeys.into_iter());
                }
            }
            text
        })
        .collect();
    strip_unsupported_colours(texts.join("\n"))
}

fn selected_journeys(case: &ExplainedCase, arguments: &ExplainArguments) -> CaseJourneys {
    let probes: Vec<String> = arguments.probe.iter().cloned().collect();
    case_journeys(case, &probes, true)
}

/// Returns the journeys of the named probes, or of all probes if `probes` is empty.
pub(crate) fn case_journeys(case: &ExplainedCase, probes: &[String], judged: bool) -> CaseJourneys {
    let first = select_journeys(&case.journeys, probes).cloned().collect();
    let books = case.prepared.books().into_iter().skip(1);
    let steps = step_journeys(case)
        .zip(books)
        .map(|((step, journeys), book)| {
            let journeys = select_journeys(journeys, probes).cloned().collect();
            (step.to_owned(), journeys, book)
        });
    CaseJourneys::new(case_head(case, judged), first, &address_book(case)).with_steps(steps)
}

/// Returns the names of the steps with the journeys of each step.
fn step_journeys(case: &ExplainedCase) -> impl Iterator<Item = (&str, &[Journey])> {
    let names = case.prepared.steps.iter().map(|step| step.name.as_str());
    names.zip(case.steps.iter().map(Vec::as_slice))
}

fn address_book(case: &ExplainedCase) -> AddressBook<'_> {
    AddressBook::new(&case.prepared.cluster, &case.prepared.plan)
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
