//! Finds the lab fields or objects that declare the differences of a result. Each field or object
//! that differs between good and bad is applied alone, and the resulting plan is compared. No
//! packet is sent, because the plan follows from the fields.

use crate::bisect::document::{SaidBy, SaidField};
use crate::bisect::{Bisection, Difference, Pair};
use svclab_model::plan::Patience;
use svclab_runner::run::{Chosen, Prepared, Wishes, prepare};
use svclab_scenario::{Field, Said};

/// Returns the fields and objects, each of which alone causes some of the found differences when
/// applied to the lab of the good case.
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

/// Whether two differences are equal except for the owner, which depends on the other rules.
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
