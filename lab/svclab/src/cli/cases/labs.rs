//! Loads and prepares the selected labs, and reports all their errors.

use std::collections::HashSet;
use std::path::Path;

use crate::cli::args::{Common, Selection};
use crate::cli::exit::Exit;
use crate::cli::output::has_colour_on_stderr;
use svclab_diagnostic::source::Sources;
use svclab_diagnostic::{Diagnostic, Rendering};
use svclab_runner::run::{
    InvalidLab, LabResult, Prepared, RunInput, SelectError, SelectedLab, prepare_case, select_labs,
    select_labs_each,
};
use svclab_scenario::MAX_DIAGNOSTICS;

/// Selected lab.
pub struct PreparedLab {
    /// Lab and selection; `None` for an invalid lab, whose only case has an error as its result.
    pub lab: Option<SelectedLab>,
    /// Selected cases in order.
    pub cases: Vec<RunInput>,
}

/// Loads the named labs and prints their warnings.
///
/// # Errors
///
/// Returns the exit code if a name matches nothing or a lab is invalid. The error is printed to
/// standard error.
pub fn load_labs(names: &[String], directory: &Path) -> Result<Vec<SelectedLab>, Exit> {
    let labs = select_labs(names, directory).map_err(|error| print_select_error(&error))?;
    for lab in &labs {
        print_diagnostics(&lab.scenario.sources, &lab.warnings);
    }
    Ok(labs)
}

/// Loads the named labs like [`load_labs`], but an invalid lab does not prevent others from
/// running. Its diagnostics are printed.
///
/// # Errors
///
/// Returns the exit code if a name matches nothing. The error is printed to standard error.
pub fn load_each_lab(names: &[String], directory: &Path) -> Result<Vec<LabResult>, Exit> {
    let labs = select_labs_each(names, directory).map_err(|error| print_select_error(&error))?;
    for lab in &labs {
        match lab {
            Ok(lab) => print_diagnostics(&lab.scenario.sources, &lab.warnings),
            Err(wrong) => print_invalid_lab(wrong),
        }
    }
    Ok(labs)
}

/// Loads the selected labs and prepares their cases, in order. Invalid labs and cases have an error
/// as their result. Their diagnostics are printed to standard error.
///
/// # Errors
///
/// Returns the exit code if a name matches nothing or there is no case. The error is printed to
/// standard error.
pub fn prepare_each_lab(common: &Common, selection: &Selection) -> Result<Vec<PreparedLab>, Exit> {
    let mut labs = Vec::new();
    for lab in load_each_lab(&selection.names, &common.topologies)? {
        labs.push(match lab {
            Ok(lab) => PreparedLab {
                cases: prepare_all(&lab, selection),
                lab: Some(lab),
            },
            Err(wrong) => PreparedLab {
                lab: None,
                cases: vec![Err(Box::new(wrong.to_case_result()))],
            },
        });
    }
    if labs.iter().all(|lab| lab.cases.is_empty()) {
        eprintln!("error: nothing was selected");
        return Err(Exit::Nothing);
    }
    Ok(labs)
}

/// Loads and prepares like [`prepare_each_lab`], but requires that all labs and cases are valid.
///
/// # Errors
///
/// Returns the exit code as [`prepare_each_lab`] does, and also if a lab or case is invalid.
pub fn prepare_labs(
    common: &Common,
    selection: &Selection,
) -> Result<Vec<(SelectedLab, Vec<Prepared>)>, Exit> {
    // No case is prepared if any lab is invalid.
    let labs = load_labs(&selection.names, &common.topologies)?;
    let mut prepared = Vec::new();
    let mut has_errors = false;
    for lab in labs {
        let cases = prepare_all(&lab, selection);
        has_errors |= cases.iter().any(Result::is_err);
        prepared.push((lab, cases.into_iter().flatten().collect()));
    }
    if has_errors {
        return Err(Exit::Input);
    }
    if prepared
        .iter()
        .all(|(_, cases): &(_, Vec<_>)| cases.is_empty())
    {
        eprintln!("error: nothing was selected");
        return Err(Exit::Nothing);
    }
    Ok(prepared)
}

/// Prepares the cases of a lab and prints their diagnostics.
fn prepare_all(lab: &SelectedLab, selection: &Selection) -> Vec<RunInput> {
    // A diagnostic of several cases is printed once.
    let mut printed = HashSet::new();
    let cases = lab.cases.iter().map(|at| {
        let case = &lab.scenario.cases()[*at];
        let prepared = prepare_case(lab, case, selection.prepare_options());
        let prepared = prepared.map(|case| case.with_sync_timeout(selection.kube_proxy_timeout));
        prepared.map_err(|wrong| {
            let fresh: Vec<Diagnostic> = wrong
                .diagnostics
                .into_iter()
                .filter(|diagnostic| printed.insert(format!("{diagnostic:?}")))
                .collect();
            print_diagnostics(&lab.scenario.sources, &fresh);
            Box::new(wrong.result)
        })
    });
    cases.collect()
}

fn print_select_error(error: &SelectError) -> Exit {
    match error {
        SelectError::InvalidLab(wrong) => {
            print_invalid_lab(wrong);
            Exit::Input
        }
        SelectError::Source(_) => {
            eprintln!("error: {error}");
            Exit::Input
        }
        _ => {
            eprintln!("error: {error}");
            Exit::Nothing
        }
    }
}

/// Prints the diagnostics of an invalid lab to standard error. The panic hook prints panics.
fn print_invalid_lab(wrong: &InvalidLab) {
    print_diagnostics(&wrong.sources, &wrong.diagnostics);
}

/// Prints diagnostics to standard error: at most [`MAX_DIAGNOSTICS`] errors and as many warnings.
/// Adds the number of remaining diagnostics.
pub fn print_diagnostics(sources: &Sources, diagnostics: &[Diagnostic]) {
    let limit = |is_error: bool| {
        let same_severity = diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.is_error() == is_error);
        let count = same_severity.count();
        // A list that was already truncated ends with an extra entry that states the number of the
        // rest.
        let is_cut = count > MAX_DIAGNOSTICS + 1;
        (count, if is_cut { MAX_DIAGNOSTICS } else { count })
    };
    let limits = [limit(false), limit(true)];
    let mut shown = [0; 2];
    for diagnostic in diagnostics {
        let kind = usize::from(diagnostic.is_error());
        if shown[kind] < limits[kind].1 {
            shown[kind] += 1;
            eprintln!("{}\n", diagnostic.render(sources, rendering()).trim_end());
        }
    }
    for (kind, (count, max)) in ["warnings", "errors"].into_iter().zip(limits) {
        if max < count {
            eprintln!("and {} more {kind}\n", count - max);
        }
    }
}

/// Returns the options for rendering diagnostics: coloured on a terminal, unless `NO_COLOR` is set.
#[must_use]
pub fn rendering() -> Rendering {
    Rendering {
        colour: has_colour_on_stderr(),
        ..Rendering::default()
    }
}
