//! Finds the cases that a name selects.

use super::SelectError;
use svclab_diagnostic::suggest::did_you_mean;
use svclab_scenario::Scenario;

/// Returns the indices of the cases with the axis values that a user names.
pub(super) fn matching_cases(
    scenario: &Scenario,
    case: Option<&str>,
) -> Result<Vec<usize>, SelectError> {
    let cases = scenario.cases();
    let Some(pairs) = case else {
        return Ok((0..cases.len()).collect());
    };
    let no_case = |help: Option<String>| SelectError::NoCase {
        lab: scenario.name().to_owned(),
        case: pairs.to_owned(),
        help,
    };
    if scenario.lab.spec.axes.is_empty() {
        return Err(no_case(Some(
            "the lab has no axes; name it without a case".to_owned(),
        )));
    }
    let mut wanted_values = Vec::new();
    for pair in pairs.split(',') {
        let (axis, value) = pair.split_once('=').ok_or_else(|| {
            no_case(Some(
                "the name of a case is a list of axis values: `axis=value,axis=value`".to_owned(),
            ))
        })?;
        let defined = &scenario.lab.spec.axes;
        let Some(values) = defined.get(axis) else {
            return Err(no_case(
                did_you_mean(axis, defined.keys().map(String::as_str)).or_else(|| {
                    Some(format!(
                        "its axes are {}",
                        defined.keys().cloned().collect::<Vec<_>>().join(", ")
                    ))
                }),
            ));
        };
        if !values.contains_key(value) {
            return Err(no_case(
                did_you_mean(value, values.keys().map(String::as_str)).or_else(|| {
                    Some(format!(
                        "`{axis}` is one of {}",
                        values.keys().cloned().collect::<Vec<_>>().join(", ")
                    ))
                }),
            ));
        }
        if wanted_values.iter().any(|(known, _)| *known == axis) {
            return Err(no_case(Some(format!("the axis `{axis}` occurs twice"))));
        }
        wanted_values.push((axis, value));
    }
    let found: Vec<usize> = cases
        .iter()
        .enumerate()
        .filter(|(_, case)| {
            wanted_values
                .iter()
                .all(|(axis, value)| case.values.get(*axis).is_some_and(|own| own == value))
        })
        .map(|(at, _)| at)
        .collect();
    if found.is_empty() {
        Err(no_case(Some(
            "the lab excludes that combination".to_owned(),
        )))
    } else {
        Ok(found)
    }
}
