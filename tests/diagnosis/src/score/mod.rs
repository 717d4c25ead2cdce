//! Scores an answer: whether it names the object at fault, points near it, names something else, or
//! nothing.

mod answers;
mod matching;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::fault::Culprit;

pub(crate) use answers::{Answer, Form, bisect, diff, failed, failing_probes, journeys, why};
use matching::contains_words;

/// Degree to which an answer names the object at fault, from the worst to the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Grade {
    /// No cause, or no answer.
    Nothing,
    /// Only other causes.
    Other,
    /// The chain, the interface or the kind of object.
    Near,
    /// The object itself.
    Exact,
}

/// Grades an answer for one fault.
pub(crate) fn grade(answer: &Answer, culprits: &[Culprit]) -> Grade {
    let named = answer.statements.iter().flat_map(|statement| {
        culprits.iter().map(move |culprit| {
            match grade_statement(statement, culprit, answer.form) {
                // Only a cause can be near: every sentence on a packet names some interface.
                Grade::Near if !is_cause(answer, statement) => Grade::Nothing,
                grade => grade,
            }
        })
    });
    // A note may list all objects of a kind, so it only counts if it names this object.
    let noted = answer.notes.iter().any(|note| {
        let mut grades = culprits
            .iter()
            .map(|culprit| grade_statement(note, culprit, Form::Sentences));
        grades.any(|grade| grade == Grade::Exact)
    });
    if noted {
        return Grade::Exact;
    }
    let best = named.max().unwrap_or(Grade::Nothing);
    let names_cause = |statement: &String| {
        answer.form != Form::Sentences || matching::names_object(&statement.to_lowercase())
    };
    if best == Grade::Nothing && answer.statements.iter().any(names_cause) {
        return Grade::Other;
    }
    best
}

/// Whether a failing probe only has cures that concern none of the faults.
pub(crate) fn is_false_cure(answer: &Answer, culprits: &[&Culprit]) -> bool {
    let concerns_fault = |cure: &String| {
        let mut culprits = culprits.iter();
        culprits.any(|culprit| grade_statement(cure, culprit, answer.form) >= Grade::Near)
    };
    let mut probes = answer.cures.iter();
    probes.any(|cures| !cures.iter().any(concerns_fault))
}

fn grade_statement(statement: &str, culprit: &Culprit, form: Form) -> Grade {
    let text = statement.to_lowercase();
    let any = |all: &[Vec<String>]| all.iter().any(|words| contains_words(&text, words));
    let on_node = |node: &String| contains_words(&text, std::slice::from_ref(node));
    let elsewhere = match &culprit.node {
        Some(node) => !on_node(node) && matching::names_node(&text),
        None => false,
    };
    // The lab of the bench lists the fault as a manual change, which an operator's node does not.
    if text.contains("manual c") {
        return if elsewhere {
            Grade::Nothing
        } else {
            Grade::Near
        };
    }
    if any(&culprit.exact) || (form == Form::Differences && any(&culprit.in_rules)) {
        return if elsewhere { Grade::Near } else { Grade::Exact };
    }
    if any(&culprit.near) && !elsewhere {
        return Grade::Near;
    }
    Grade::Nothing
}

/// Whether a statement is on the loss of a packet. Sentences of `explain` also describe the path.
fn is_cause(answer: &Answer, statement: &str) -> bool {
    answer.form != Form::Sentences || matching::describes_loss(&statement.to_lowercase())
}
