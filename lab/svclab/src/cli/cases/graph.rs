//! Implements `svclab graph`: draws the topology of a case, and the packets of a connection.

use super::explain::explain_cases;
use super::labs::prepare_one_case;
use super::run::run_options;
use crate::cli::args::{GraphArguments, PictureFormat};
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::output::{print, print_case_error};
use svclab_drawing::{Topology, Way, draw, svg, text};
use svclab_report::drawing::ways;
use svclab_runner::kernel::KernelChoice;
use svclab_runner::run::{Prepared, unknown_probe_error};

/// Draws the selected case.
pub(crate) fn graph(arguments: &GraphArguments) -> CommandResult {
    let (_, case) = prepare_one_case(&arguments.selection, "drawn")?;
    let topology = Topology::new(&case.plan, &case.cluster);
    let name = case.case.id.clone();
    let ways = match &arguments.probe {
        None => Vec::new(),
        Some(probe) => match run_probe(case, probe, arguments)? {
            Ok(ways) => ways,
            Err(outcome) => return Ok(outcome),
        },
    };
    let picture = match arguments.format {
        PictureFormat::Svg => {
            let description = svg::describe(&topology, &ways);
            svg::render_file(&draw(&topology, &ways), &name, &description)
        }
        PictureFormat::Mermaid => text::mermaid(&topology, &ways),
        PictureFormat::Dot => text::dot(&topology, &ways),
    };
    print(&picture)?;
    Ok(Outcome::SUCCESS)
}

/// Runs a case and returns the ways of a probe's packets, or the outcome of a case without evidence,
/// whose error is printed.
fn run_probe(
    case: Prepared,
    probe: &str,
    arguments: &GraphArguments,
) -> Result<Result<Vec<Way>, Outcome>, CliError> {
    if arguments.kernels.choice() == KernelChoice::All {
        return Err(CliError::refused(
            "a picture shows one run",
            "select one kernel with --kernel: host, or a version such as 6.12",
        ));
    }
    if !case.plan.probes().any(|own| own.name == probe) {
        return Err(unknown_probe_error(probe, case.plan.probes()).into());
    }
    let options = run_options(None, false, arguments.kernels.choice());
    match explain_cases(vec![case], &options)?.pop() {
        Some(Ok(case)) => {
            let journeys = case.journeys.iter().flatten();
            let own = journeys.filter(|journey| journey.probe == probe);
            let failed = own.clone().find(|journey| !journey.verdict.is_success());
            let shown = failed.or_else(|| own.clone().next());
            Ok(Ok(shown.map(ways).unwrap_or_default()))
        }
        Some(Err((case, error))) => {
            print_case_error(&case, &error);
            Ok(Err(Outcome::from_code(error.kind.exit_code())))
        }
        None => Err(CliError::nothing_selected()),
    }
}
