//! Checks for any text that is read as a lab.

use std::time::Duration;

use svclab_diagnostic::source::{Source, Sources};
use svclab_diagnostic::{Diagnostic, Rendering};
use svclab_planner::requirements::Requirements;
use svclab_runner::run::{SelectedLab, prepare};
use svclab_scenario::Scenario;

/// Maximum number of prepared cases: a lab may have thousands.
const MAX_CASES: usize = 4;

/// Checks that the text gives plans, or is refused with a printable message.
pub fn check_lab(bytes: &[u8]) {
    let Ok(source) = Source::from_bytes("<fuzz>", bytes.to_vec()) else {
        return;
    };
    let sources = Sources::from(source);
    let show = |diagnostics: &[Diagnostic]| {
        for diagnostic in diagnostics {
            let text = diagnostic.render(&sources, Rendering::default());
            assert!(
                !text.contains('\u{1b}'),
                "the output contains an escape character"
            );
        }
    };
    let (scenario, warnings) = match Scenario::load(&sources) {
        Ok(loaded) => loaded,
        Err(errors) => {
            assert!(!errors.is_empty(), "rejected without a message");
            return show(&errors);
        }
    };
    show(&warnings);
    let lab = SelectedLab {
        cases: Vec::new(),
        cli_name: scenario.name().to_owned(),
        scenario,
        warnings,
    };
    for case in lab.scenario.cases().iter().take(MAX_CASES) {
        match prepare(&lab, case, Duration::from_secs(1)) {
            Ok(prepared) => {
                let _ = Requirements::from_plan(&prepared.plan);
                for namespace in &prepared.plan.namespaces {
                    let rules = namespace.iptables.iter();
                    for text in rules.flat_map(|rules| [rules.v4.text(), rules.v6.text()]) {
                        assert!(!text.contains(['\0', '\r', '\u{1b}']), "{text:?}");
                    }
                }
            }
            Err(errors) => show(&errors),
        }
    }
}
