//! Who says what was found: the fields of the lab, or the objects, by which good and bad
//! are told apart, tried one by one on paper. No packet is sent for it: what a field makes
//! of the plan is known.

use crate::bisect::document::{SaidBy, SaidField};
use crate::bisect::{Bisection, Difference, Pair};
use svclab_model::plan::Patience;
use svclab_runner::run::{Chosen, Prepared, Wishes, prepare};
use svclab_scenario::{Field, Said};

/// The fields and objects each of which alone makes some of what was found, in the lab of
/// the good case.
#[must_use]
pub fn said_by(lab: &Chosen, good: &Prepared, bad: &Prepared, found: &Bisection) -> Vec<SaidBy> {
    let both = found.breaks.iter().chain(&found.cures);
    let wanted: Vec<&Difference> = both.flatten().collect();
    let makes = |said: &Said| -> Option<bool> {
        let case = good.case.with(&bad.case, said)?;
        let made = prepare(lab, &case, Wishes::from(Patience::SETTLED)).ok()?;
        let pair = Pair::of(&good.plan, &made.plan).ok()?;
        let all: Vec<usize> = (0..pair.len()).collect();
        let there = pair.told(&all);
        Some(
            there
                .iter()
                .flatten()
                .any(|one| wanted.iter().any(|other| is_same(one, other))),
        )
    };
    let all = good.case.differs(&bad.case);
    let those = all.iter().filter(|said| makes(said) == Some(true));
    those.map(told).collect()
}

/// Whether two are one thing; whose it is follows from all that is beside it.
fn is_same(one: &Difference, other: &Difference) -> bool {
    let of = |own: &Difference| {
        (
            own.namespace.clone(),
            own.of,
            own.place.clone(),
            own.good.clone(),
            own.bad.clone(),
        )
    };
    of(one) == of(other)
}

fn told(said: &Said) -> SaidBy {
    let field = |field: &Field| {
        let mut path = field.path.clone();
        if said.document == svclab_scenario::reference::DocumentRef::Lab {
            path.insert(0, "spec".to_owned());
        }
        SaidField {
            path: path.join("."),
            good: field.one.as_ref().map(svclab_scenario::tree::Tree::in_line),
            bad: field
                .other
                .as_ref()
                .map(svclab_scenario::tree::Tree::in_line),
        }
    };
    SaidBy {
        document: said.document.to_string(),
        fields: said.fields.iter().map(field).collect(),
    }
}
