//! Implements `svclab replay`.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::generated::{prepare_generated_lab, write_lab_with_results};
use super::lab_file::contains_lab;
use super::prepare::prepare_with_dumps;
use crate::cli::args::{ReplayArguments, ReplayFormat};
use crate::cli::cases::explain::{case_journeys, explain_cases, render_text};
use crate::cli::cases::labs::load_labs;
use crate::cli::cases::run::run_options;
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::input::dumps::{DumpArgument, read_dump_arguments};
use crate::cli::input::nodes::dumps_by_node;
use crate::cli::input::verdict::require_whole_tables;
use crate::cli::output::{print, print_json};
use crate::cli::report_output::{ReportOutput, answer, reported_cases};
use svclab_model::plan::ProbeProtocol;
use svclab_planner::replay::{HardwareAddresses, ReplayReport};
use svclab_report::Additions;
use svclab_report::replay::ReplayDocument;
use svclab_runner::run::{Prepared, SelectedLab};
use svclab_scenario::Case;
use svclab_scenario::lab::Probe;

/// Builds dumped nodes in a lab, runs the probes and explains the results.
pub(crate) fn replay(arguments: &ReplayArguments) -> CommandResult {
    let given = read_dump_arguments(&arguments.dumps, arguments.lenient)?;
    let is_lab = |name: &String| contains_lab(Path::new(name)).unwrap_or(true);
    if arguments.objects.iter().any(is_lab) {
        if arguments.write.is_some() {
            return Err(CliError::refused(
                "--objects is a lab, so --write has nothing to generate",
                "set `nodes: {NODE: {dump: PATH}}` in that lab",
            ));
        }
        let prepared = prepare_in_lab(arguments, given)?;
        return run_and_explain(arguments, prepared, arguments.probe.is_empty(), None);
    }
    let (prepared, lab) = prepare_generated_lab(arguments, &given, &HardwareAddresses::default())?;
    if arguments.probe.is_empty() {
        return Err(CliError::NothingSelected {
            message: "nothing was selected: --objects is not a lab, and --probe is missing"
                .to_owned(),
            help: Some(
                "select a probe with --probe: pod/default/client,service/default/web:80".to_owned(),
            ),
        });
    }
    // A generated lab has no expectations, so it is not judged.
    let write = arguments.write.as_deref().map(|file| (file, lab.as_str()));
    run_and_explain(arguments, prepared, false, write)
}

/// Prepares the case of a lab with its nodes replaced by the dumps.
fn prepare_in_lab(
    arguments: &ReplayArguments,
    given: Vec<DumpArgument>,
) -> Result<Prepared, CliError> {
    let search = arguments
        .source
        .labs()
        .with_outside(arguments.allow_outside);
    let labs = load_labs(&arguments.objects, search)?;
    let cases: Vec<(&SelectedLab, usize)> = labs
        .iter()
        .flat_map(|lab| lab.cases.iter().map(move |case| (lab, *case)))
        .collect();
    let [(lab, case_index)] = cases.as_slice() else {
        return Err(CliError::refused(
            format!(
                "{} cases are selected, but only one can be replayed",
                cases.len()
            ),
            "select one: LAB/axis=value,axis=value",
        ));
    };
    let case = &lab.scenario.cases()[*case_index];
    let dumps = dumps_by_node(case, given)?;
    let known = HardwareAddresses::default();
    prepare_with_dumps(lab, &with_probes(case, arguments), arguments, dumps, &known)
}

/// Adds the probes of the command line to the case.
fn with_probes(case: &Case, arguments: &ReplayArguments) -> Case {
    let mut case = case.clone();
    let spec = Arc::make_mut(&mut case.spec);
    for (index, (from, to)) in arguments.probe.iter().enumerate() {
        let probe = Probe::new(from.clone(), to.clone(), ProbeProtocol::default());
        spec.probes.insert(format!("probe-{}", index + 1), probe);
    }
    case
}

/// Runs the probes and explains where the packets went. `write` is a file for the lab's text with
/// the results.
fn run_and_explain(
    arguments: &ReplayArguments,
    prepared: Prepared,
    judged: bool,
    write: Option<(&Path, &str)>,
) -> CommandResult {
    let before = describe_nodes(&prepared);
    require_verdict(arguments, &prepared)?;
    let options = run_options(None, false, arguments.kernels.choice());
    let report = ReportOutput::start(arguments.report.as_deref())?;
    let mut text = String::new();
    let mut is_unclear = false;
    for result in explain_cases(vec![prepared], &options)? {
        let case = match result {
            Ok(case) => case,
            Err((_, error)) => {
                if arguments.format == ReplayFormat::Human {
                    let _ = print(&before);
                }
                return Err(error.into());
            }
        };
        require_verdict(arguments, &case.prepared)?;
        let mut reports = case.prepared.replay_reports.iter();
        is_unclear = reports.any(ReplayReport::has_unknown_effects)
            && case
                .evidence
                .attempts()
                .all(|attempt| attempt.verdict.is_success());
        if let Some((file, lab)) = write {
            write_lab_with_results(file, lab, &case.evidence)?;
        }
        let probes = probe_names(arguments);
        let journeys = case_journeys(&case, &probes, judged);
        let document = ReplayDocument::new(case.prepared.replay_reports.clone(), journeys);
        text += &describe_nodes(&case.prepared);
        let cases = [case];
        text += &render_text(&cases, &probes, arguments.verbose, judged);
        if is_unclear {
            text += "\nno verdict: all connections succeed, but omitted parts of the dump may affect packets\n";
        }
        match arguments.format {
            ReplayFormat::Human => print(&text)?,
            ReplayFormat::Json => print_json(&document)?,
        }
        if let Some(report) = &report {
            let answer = answer("svclab replay".to_owned(), &text, &document)?;
            let (cases, additions) = reported_cases(cases.into(), judged);
            let additions = Additions {
                answer: Some(answer),
                cases: additions,
            };
            report.write(additions, cases)?;
        }
    }
    Ok(Outcome::passed_if(!is_unclear))
}

/// Checks that no whole table of a dump is omitted. Otherwise, prints the parts of the nodes.
fn require_verdict(arguments: &ReplayArguments, prepared: &Prepared) -> Result<(), CliError> {
    let checked = require_whole_tables(&prepared.replay_reports);
    if checked.is_err() && arguments.format == ReplayFormat::Human {
        print(&describe_nodes(prepared))?;
    }
    checked
}

/// Lists the replayed, simulated and omitted parts of each node.
fn describe_nodes(prepared: &Prepared) -> String {
    let mut text = String::new();
    for account in &prepared.replay_reports {
        let _ = writeln!(text, "{account}");
    }
    text
}

/// Returns the names of the probes from the command line; empty if there are none.
fn probe_names(arguments: &ReplayArguments) -> Vec<String> {
    let count = arguments.probe.len();
    (1..=count).map(|at| format!("probe-{at}")).collect()
}
