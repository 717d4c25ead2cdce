//! What is said of packets in a lab that stands, by who holds it: only that one knows
//! the names that the lab's file gives to addresses.

use super::talk::{Explained, Form};
use crate::evidence::Evidence;
use crate::explain::Book;
use crate::explain::journey::{Journey, journeys};
use crate::plan::{Plan, Probe};
use crate::report::journey::Telling;
use crate::report::journeys::{CaseJourneys, Head};
use crate::run::Prepared;

/// Of these probes, or of one of them, what was seen of their packets in a lab whose
/// every namespace was watched.
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
