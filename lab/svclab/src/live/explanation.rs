//! Explains packets in a running lab. The daemon does this, because only the daemon has the names
//! that the lab's file gives to addresses.

use super::messages::{OutputForm, RenderedJourneys};
use svclab_journey::journey::{Journey, journeys};
use svclab_judge::AddressBook;
use svclab_model::evidence::Evidence;
use svclab_model::plan::{Plan, Probe};
use svclab_report::journey::JourneyRenderer;
use svclab_runner::results::journeys::{CaseHead, CaseJourneys};
use svclab_runner::run::Prepared;

/// Renders the journeys of these probes, or of the probe `wanted`. All namespaces must have been
/// captured and traced.
pub fn render_explanation(
    prepared: &Prepared,
    kernel: String,
    probes: Vec<Probe>,
    evidence: &Evidence,
    probe_name: Option<&str>,
    form: OutputForm,
) -> RenderedJourneys {
    let plan = Plan {
        probes,
        ..prepared.plan.clone()
    };
    let journeys = journeys(&plan, evidence).into_iter();
    let journeys: Vec<Journey> = journeys
        .filter(|journey| probe_name.is_none_or(|wanted| journey.probe == wanted))
        .collect();
    let book = AddressBook::new(&prepared.cluster, &prepared.plan);
    let head = CaseHead::new(prepared.case.id.clone(), kernel, None, evidence);
    match form {
        OutputForm::Data => {
            RenderedJourneys::Data(Box::new(CaseJourneys::new(head, journeys, &book)))
        }
        OutputForm::Text { verbose } => {
            let telling = JourneyRenderer {
                book,
                verbose,
                brief: false,
            };
            RenderedJourneys::Text(telling.render_case(&head, journeys.iter()))
        }
    }
}
