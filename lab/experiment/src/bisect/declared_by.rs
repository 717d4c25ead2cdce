//! Finds the lab fields or objects that declare the differences of a result. Each field or object
//! that differs between good and bad is applied alone, and the resulting plan is compared. No
//! packet is sent, because the plan follows from the fields.

use super::document::{Bisection, DeclaredBy, DeclaredField};
use super::pair::{Difference, Pair};
use svclab_model::plan::MaxWait;
use svclab_runner::run::{PrepareOptions, Prepared, SelectedLab, prepare};
use svclab_scenario::reference::DocumentRef;
use svclab_scenario::tree::Tree;
use svclab_scenario::{DocumentDiff, FieldDiff};

/// Returns the fields and objects, each of which alone causes some of the found differences when
/// applied to the lab of the good case.
#[must_use]
pub fn find_declarations(
    lab: &SelectedLab,
    good: &Prepared,
    bad: &Prepared,
    found: &Bisection,
) -> Vec<DeclaredBy> {
    let both = found
        .findings()
        .flat_map(|finding| finding.breaks.iter().chain(&finding.fixes));
    let targets: Vec<&Difference> = both.flatten().collect();
    let is_cause = |diff: &DocumentDiff| -> Option<bool> {
        let case = good.case.with_diff(&bad.case, diff)?;
        let prepared = prepare(lab, &case, PrepareOptions::from(MaxWait::SETTLED)).ok()?;
        let pair = Pair::new(&good.plan, &prepared.plan).ok()?;
        let indices: Vec<usize> = (0..pair.len()).collect();
        let differences = pair.describe(&indices);
        Some(differences.iter().flatten().any(|difference| {
            targets
                .iter()
                .any(|target| is_same_difference(difference, target))
        }))
    };
    let diffs = good.case.diff(&bad.case);
    let causes = diffs.iter().filter(|diff| is_cause(diff) == Some(true));
    causes.map(to_declared_by).collect()
}

/// Whether two differences are equal except for the owner, which depends on the other rules.
fn is_same_difference(left: &Difference, right: &Difference) -> bool {
    let without_owner = |difference: &Difference| Difference {
        owner: None,
        ..difference.clone()
    };
    without_owner(left) == without_owner(right)
}

fn to_declared_by(diff: &DocumentDiff) -> DeclaredBy {
    let field = |field: &FieldDiff| {
        let mut path = field.path.clone();
        if diff.document == DocumentRef::Lab {
            path.insert(0, "spec".to_owned());
        }
        DeclaredField {
            path: path.join("."),
            good: field.first.as_ref().map(Tree::to_flow_style),
            bad: field.second.as_ref().map(Tree::to_flow_style),
        }
    };
    DeclaredBy {
        document: diff.document.to_string(),
        fields: diff.fields.iter().map(field).collect(),
    }
}
