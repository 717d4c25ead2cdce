//! Loads and prepares the selected labs.

use std::collections::HashSet;

use crate::cli::args::Selection;
use crate::cli::error::{CliError, InvalidInput};
use crate::cli::output::print_diagnostics;
use svclab_diagnostic::Diagnostic;
use svclab_report::shell_quote;
use svclab_runner::run::{
    LabResult, LabSearch, Prepared, RunInput, SelectedLab, prepare_case, select_labs,
    select_labs_each,
};

pub(crate) struct PreparedLab {
    /// Lab and selection; `None` for an invalid lab, whose only case has an error as its result.
    pub(crate) lab: Option<SelectedLab>,
    /// Selected cases in order.
    pub(crate) cases: Vec<RunInput>,
}

/// Loads the named labs and prints their warnings. All labs must be valid.
pub(crate) fn load_labs(
    names: &[String],
    search: LabSearch<'_>,
) -> Result<Vec<SelectedLab>, CliError> {
    let labs = select_labs(names, search)?;
    for lab in &labs {
        print_diagnostics(&lab.scenario.sources, &lab.warnings);
    }
    Ok(labs)
}

/// Loads the named labs like [`load_labs`], but an invalid lab does not prevent others from
/// running. Its diagnostics are printed.
pub(crate) fn load_each_lab(
    names: &[String],
    search: LabSearch<'_>,
) -> Result<Vec<LabResult>, CliError> {
    let labs = select_labs_each(names, search)?;
    for lab in &labs {
        match lab {
            Ok(lab) => print_diagnostics(&lab.scenario.sources, &lab.warnings),
            // The panic hook prints panics.
            Err(wrong) => print_diagnostics(&wrong.sources, &wrong.diagnostics),
        }
    }
    Ok(labs)
}

/// Loads the selected labs and prepares their cases, in order. Invalid labs and cases have an error
/// as their result. Their diagnostics are printed. At least one case must be selected.
pub(crate) fn prepare_each_lab(selection: &Selection) -> Result<Vec<PreparedLab>, CliError> {
    let mut labs = Vec::new();
    let search = selection
        .source
        .labs()
        .with_outside(selection.allow_outside);
    for lab in load_each_lab(&selection.names, search)? {
        labs.push(match lab {
            Ok(lab) => {
                let (cases, invalid) = prepare_all(&lab, selection);
                for input in invalid {
                    print_diagnostics(&input.sources, &input.diagnostics);
                }
                PreparedLab {
                    lab: Some(lab),
                    cases,
                }
            }
            Err(wrong) => PreparedLab {
                lab: None,
                cases: vec![Err(Box::new(wrong.to_case_result()))],
            },
        });
    }
    if labs.iter().all(|lab| lab.cases.is_empty()) {
        return Err(CliError::nothing_selected());
    }
    Ok(labs)
}

/// Loads and prepares like [`prepare_each_lab`], but requires that all labs and cases are valid.
pub(crate) fn prepare_labs(
    selection: &Selection,
) -> Result<Vec<(SelectedLab, Vec<Prepared>)>, CliError> {
    // No case is prepared if any lab is invalid.
    let search = selection
        .source
        .labs()
        .with_outside(selection.allow_outside);
    let labs = load_labs(&selection.names, search)?;
    let mut prepared = Vec::new();
    let mut all_invalid = Vec::new();
    for lab in labs {
        let (cases, invalid) = prepare_all(&lab, selection);
        all_invalid.extend(invalid);
        prepared.push((lab, cases.into_iter().flatten().collect()));
    }
    if !all_invalid.is_empty() {
        return Err(CliError::InvalidInput(all_invalid));
    }
    if prepared
        .iter()
        .all(|(_, cases): &(_, Vec<_>)| cases.is_empty())
    {
        return Err(CliError::nothing_selected());
    }
    Ok(prepared)
}

/// Prepares the cases of a lab. Also returns the diagnostics of each invalid case.
fn prepare_all(lab: &SelectedLab, selection: &Selection) -> (Vec<RunInput>, Vec<InvalidInput>) {
    // A diagnostic of several cases is returned once.
    let mut known = HashSet::new();
    let mut invalid = Vec::new();
    let cases = lab.cases.iter().map(|index| {
        let case = &lab.scenario.cases()[*index];
        let prepared = prepare_case(lab, case, selection.prepare_options());
        let prepared = prepared.map(|case| case.with_sync_timeout(selection.kube_proxy_timeout));
        prepared.map_err(|wrong| {
            let diagnostics: Vec<Diagnostic> = wrong
                .diagnostics
                .into_iter()
                .filter(|diagnostic| known.insert(format!("{diagnostic:?}")))
                .collect();
            invalid.push(InvalidInput {
                sources: lab.scenario.sources.clone(),
                diagnostics,
            });
            Box::new(wrong.result)
        })
    });
    (cases.collect(), invalid)
}

/// Loads and prepares the single case that a selection names, with its lab. `verb` says what is done with it:
/// `started`.
pub(crate) fn prepare_one_case(
    selection: &Selection,
    verb: &str,
) -> Result<(SelectedLab, Prepared), CliError> {
    let mut cases = Vec::new();
    for (lab, prepared) in prepare_labs(selection)? {
        cases.extend(prepared.into_iter().map(|case| (lab.clone(), case)));
    }
    match cases.pop() {
        Some(case) if cases.is_empty() => Ok(case),
        last => {
            let names = cases.iter().chain(&last);
            let case_names: Vec<String> = names
                .map(|(_, case)| format!("  {}", shell_quote(&case.cli_name)))
                .collect();
            let selected = match selection.names.as_slice() {
                [] => "without a name, all labs are selected:".to_owned(),
                names => format!("`{}` selects", names.join(" ")),
            };
            Err(CliError::refused(
                format!(
                    "{selected} {} cases, but only one can be {verb}",
                    case_names.len()
                ),
                format!("select one:\n{}", case_names.join("\n")),
            ))
        }
    }
}
