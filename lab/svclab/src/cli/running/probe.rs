//! Implements `svclab probe`.

use std::fmt::Write as _;

use crate::cli::args::{Explanation, ProbeArguments};
use crate::cli::cases::explain::{output_form, print_explained};
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::input::running_lab::find_running_lab;
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::print;
use crate::cli::report_output::{ReportOutput, answer};
use crate::live::{
    CallError, ClientRequest, DaemonReply, ProbeReport, ProbeRequest, RenderedJourneys,
    request_daemon,
};
use svclab_model::evidence::Verdict;
use svclab_report::describe_observed;
use svclab_report::explain::Journeys;

/// Runs one probe in a running lab. The exit code is 0 if every connection was answered, otherwise
/// 1.
pub(crate) fn probe(arguments: &ProbeArguments) -> CommandResult {
    let report = ReportOutput::start(arguments.report.as_deref())?;
    let probed = run_interruptible(request_probe(arguments))??;
    match (arguments.format, arguments.explain) {
        // The JSON document already contains the verdicts.
        (Explanation::Json, true) => {}
        (Explanation::Human, true) => print(&(render_result(arguments, &probed) + "\n"))?,
        (_, false) => print(&render_result(arguments, &probed))?,
    }
    if let Some(explained) = probed.explained {
        // Without --explain, only the page needs the explanation.
        match (arguments.explain, &report, &explained) {
            (false, Some(report), RenderedJourneys::Page { text, data, page }) => {
                let document = Journeys::new(vec![(**data).clone()]);
                report.write_page(page, &answer(String::new(), text, &document)?)?;
            }
            _ => print_explained(&explained, arguments.format, report.as_ref())?,
        }
    }
    let is_answered = Verdict::is_success;
    let mut verdicts = probed.attempts.iter().map(|attempt| attempt.verdict);
    Ok(Outcome::passed_if(verdicts.all(is_answered)))
}

async fn request_probe(arguments: &ProbeArguments) -> Result<ProbeReport, CliError> {
    let (directory, lab) = find_running_lab(arguments.which.lab.as_deref(), "--lab").await?;
    let request = ProbeRequest {
        from: arguments.from.clone(),
        to: arguments.to.clone(),
        protocol: arguments.protocol,
        connections: arguments.connections,
        max_wait: arguments.max_wait,
    };
    let title = arguments
        .report
        .as_ref()
        .map(|_| format!("svclab probe {} {}", arguments.from, arguments.to));
    let explain = (arguments.explain || title.is_some())
        .then(|| output_form(arguments.format, arguments.verbose, title));
    let ask = ClientRequest::Probe { request, explain };
    let mut line = request_daemon(&directory, &lab.case, &ask).await?;
    match line.recv().await? {
        DaemonReply::Probed { probed } => Ok(*probed),
        _ => Err(CallError::UnexpectedReply.into()),
    }
}

/// Renders the result in the format of a run.
fn render_result(arguments: &ProbeArguments, probed: &ProbeReport) -> String {
    let summary = describe_observed(&probed.observed);
    let mut text = format!("{} → {}", arguments.from, arguments.to);
    // A name can have several addresses, so the address is printed too.
    let address = match probed.target.port {
        0 => probed.target.address.to_string(),
        _ => probed.target.socket().to_string(),
    };
    if address != arguments.to {
        let _ = write!(text, " ({address})");
    }
    let _ = writeln!(text, "\n  {summary}");
    let mut errors: Vec<&str> = probed
        .attempts
        .iter()
        // For other verdicts, the error adds no information.
        .filter(|attempt| attempt.verdict == Verdict::Unreachable)
        .filter_map(|attempt| attempt.error.as_deref())
        .collect();
    errors.sort_unstable();
    errors.dedup();
    for error in errors {
        let _ = writeln!(text, "  kernel error: {error}");
    }
    text
}
