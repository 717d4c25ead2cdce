//! Finds the cases that a name selects.

use super::SelectError;
use super::pattern::{has_wildcard, matches};
use svclab_diagnostic::suggest::did_you_mean;
use svclab_scenario::{Case, Scenario};

/// Returns the indices of the cases that a user names: all, those with some axis values, or those
/// whose name matches a pattern.
pub(super) fn matching_cases(
    scenario: &Scenario,
    case: Option<&str>,
) -> Result<Vec<usize>, SelectError> {
    let Some(name) = case else {
        return Ok((0..scenario.cases().len()).collect());
    };
    let no_case = |help: String| SelectError::NoCase {
        lab: scenario.name().to_owned(),
        case: name.to_owned(),
        help: Some(help),
    };
    if is_pattern(name) {
        let found = find_cases(scenario, |case| matches(name, axis_values(case)));
        return if found.is_empty() {
            Err(no_case("list the cases with `svclab list`".to_owned()))
        } else {
            Ok(found)
        };
    }
    let wanted = wanted_values(scenario, name).map_err(no_case)?;
    let found = find_cases(scenario, |case| {
        wanted.iter().all(|(axis, value)| {
            let own = case.values.get(*axis);
            own.is_some_and(|own| matches_value(value, own))
        })
    });
    if found.is_empty() {
        Err(no_case("the lab excludes that combination".to_owned()))
    } else {
        Ok(found)
    }
}

/// Whether the name of a case is a pattern for the whole name, such as `*mode=ipvs*`. Otherwise the
/// name is a list of axis values, such as `mode=ip*`.
fn is_pattern(name: &str) -> bool {
    has_wildcard(name)
        && name.split(',').any(|pair| {
            let axis = pair.split_once('=').map_or(pair, |(axis, _)| axis);
            has_wildcard(axis)
        })
}

/// Returns the name of a case without the name of its lab: `axis=value,axis=value`.
fn axis_values(case: &Case) -> &str {
    let rest = case.id.strip_prefix(&case.lab).unwrap_or_default();
    rest.strip_prefix('/').unwrap_or(rest)
}

fn matches_value(wanted: &str, own: &str) -> bool {
    // A value may contain the characters of wildcards itself.
    wanted == own || has_wildcard(wanted) && matches(wanted, own)
}

fn find_cases(scenario: &Scenario, is_wanted: impl Fn(&Case) -> bool) -> Vec<usize> {
    let cases = scenario.cases().iter().enumerate();
    let found = cases.filter(|(_, case)| is_wanted(case));
    found.map(|(index, _)| index).collect()
}

/// Parses a list of axis values. The error is advice for the user.
fn wanted_values<'n>(
    scenario: &Scenario,
    name: &'n str,
) -> Result<Vec<(&'n str, &'n str)>, String> {
    let defined = &scenario.lab.spec.axes;
    if defined.is_empty() {
        return Err("the lab has no axes; name it without a case".to_owned());
    }
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for pair in name.split(',') {
        let (axis, value) = pair
            .split_once('=')
            .ok_or("the name of a case is a list of axis values: `axis=value,axis=value`")?;
        let Some(values) = defined.get(axis) else {
            let known: Vec<&str> = defined.keys().map(String::as_str).collect();
            return Err(did_you_mean(axis, known.iter().copied())
                .unwrap_or_else(|| format!("its axes are {}", known.join(", "))));
        };
        if !values.keys().any(|known| matches_value(value, known)) {
            let values: Vec<&str> = values.keys().map(String::as_str).collect();
            return Err(did_you_mean(value, values.iter().copied())
                .unwrap_or_else(|| format!("`{axis}` is one of {}", values.join(", "))));
        }
        if wanted.iter().any(|(known, _)| *known == axis) {
            return Err(format!("the axis `{axis}` occurs twice"));
        }
        wanted.push((axis, value));
    }
    Ok(wanted)
}
