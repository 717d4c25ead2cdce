//! Explains packets in a running lab. The daemon does this, because only the daemon has the names
//! that the lab's file gives to addresses.

use super::talk::{Explained, Form};
use svclab_journey::journey::{Journey, journeys};
use svclab_judge::Book;
use svclab_model::evidence::Evidence;
use svclab_model::plan::{Plan, Probe};
use svclab_report::journey::Telling;
use svclab_runner::results::journeys::{CaseJourneys, Head};
use svclab_runner::run::Prepared;

/// Renders the journeys of these probes, or of the probe `wanted`. All namespaces must have been
/// captured and traced.
pub fn explained(
    prepared: &Prepared,
    kernel: String,
    probes: Vec<Probe>,
    evidence: &Evidence,
    wanted: Option<&str>,
    form: Form,
) -> Explained {
    let plan = Plan {
        probes,
        ..prepared.plan.clone()
    };
    let journeys = journeys(&plan, evidence).into_iter();
    let journeys: Vec<Journey> = journeys
        .filter(|journey| wanted.is_none_or(|wanted| journey.probe == wanted))
        .collect();
    let book = Book::new(&prepared.cluster, &prepared.plan);
    let head = Head::of(prepared.case.id.clone(), kernel, None, evidence);
    match form {
        Form::Data => Explained::Data(Box::new(CaseJourneys::of(head, journeys, &book))),
        Form::Text { verbose } => {
            let telling = Telling {
                book,
                verbose,
                brief: false,
            };
            Explained::Text(telling.case(&head, journeys.iter()))
        }
    }
}
