//! Loads and prepares the selected labs, and reports all their errors.

use std::collections::HashSet;
use std::path::Path;

use super::args::{Common, Selection};
use super::exit::Exit;
use super::output::has_colour_on_stderr;
use svclab_diagnostic::source::Sources;
use svclab_diagnostic::{Diagnostic, Rendering};
use svclab_runner::run::{
    Chosen, Found, Given, Prepared, SelectError, WrongLab, choose, choose_each, prepare_or_tell,
};
use svclab_scenario::MAX_DIAGNOSTICS;

/// Selected lab.
pub struct Selected {
    /// Lab and selection; `None` for an invalid lab, whose only case has an error as its result.
    pub lab: Option<Chosen>,
    /// Selected cases in order.
    pub cases: Vec<Given>,
}

/// Loads the named labs and prints their warnings.
///
/// # Errors
///
/// Returns the exit code if a name matches nothing or a lab is invalid. The error is printed to
/// standard error.
pub fn chosen(names: &[String], directory: &Path) -> Result<Vec<Chosen>, Exit> {
    let labs = choose(names, directory).map_err(|error| refuse(&error))?;
    for lab in &labs {
        tell(&lab.scenario.sources, &lab.warnings);
    }
    Ok(labs)
}

/// Loads the named labs like [`chosen`], but an invalid lab does not prevent others from running.
/// Its diagnostics are printed.
///
/// # Errors
///
/// Returns the exit code if a name matches nothing. The error is printed to standard error.
pub fn chosen_each(names: &[String], directory: &Path) -> Result<Vec<Found>, Exit> {
    let labs = choose_each(names, directory).map_err(|error| refuse(&error))?;
    for lab in &labs {
        match lab {
            Ok(lab) => tell(&lab.scenario.sources, &lab.warnings),
            Err(wrong) => tell_wrong(wrong),
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
pub fn selected(common: &Common, selection: &Selection) -> Result<Vec<Selected>, Exit> {
    let mut all = Vec::new();
    for lab in chosen_each(&selection.names, &common.topologies)? {
        all.push(match lab {
            Ok(lab) => Selected {
                cases: prepare_all(&lab, selection),
                lab: Some(lab),
            },
            Err(wrong) => Selected {
                lab: None,
                cases: vec![Err(Box::new(wrong.result()))],
            },
        });
    }
    if all.iter().all(|lab| lab.cases.is_empty()) {
        eprintln!("error: nothing was selected");
        return Err(Exit::Nothing);
    }
    Ok(all)
}

/// Loads and prepares like [`selected`], but requires that all labs and cases are valid.
///
/// # Errors
///
/// Returns the exit code as [`selected`] does, and also if a lab or case is invalid.
pub fn prepared(
    common: &Common,
    selection: &Selection,
) -> Result<Vec<(Chosen, Vec<Prepared>)>, Exit> {
    // No case is prepared if any lab is invalid.
    let labs = chosen(&selection.names, &common.topologies)?;
    let mut all = Vec::new();
    let mut wrong = false;
    for lab in labs {
        let cases = prepare_all(&lab, selection);
        wrong |= cases.iter().any(Result::is_err);
        all.push((lab, cases.into_iter().flatten().collect()));
    }
    if wrong {
        return Err(Exit::Input);
    }
    if all.iter().all(|(_, cases): &(_, Vec<_>)| cases.is_empty()) {
        eprintln!("error: nothing was selected");
        return Err(Exit::Nothing);
    }
    Ok(all)
}

/// Prepares the cases of a lab and prints their diagnostics.
fn prepare_all(lab: &Chosen, selection: &Selection) -> Vec<Given> {
    // A diagnostic of several cases is printed once.
    let mut told = HashSet::new();
    let all = lab.cases.iter().map(|at| {
        let case = &lab.scenario.cases()[*at];
        let prepared = prepare_or_tell(lab, case, selection.wishes());
        let prepared = prepared.map(|case| case.with_sync_timeout(selection.kube_proxy_timeout));
        prepared.map_err(|wrong| {
            let fresh: Vec<Diagnostic> = wrong
                .diagnostics
                .into_iter()
                .filter(|diagnostic| told.insert(format!("{diagnostic:?}")))
                .collect();
            tell(&lab.scenario.sources, &fresh);
            Box::new(wrong.result)
        })
    });
    all.collect()
}

fn refuse(error: &SelectError) -> Exit {
    match error {
        SelectError::Lab(wrong) => {
            tell_wrong(wrong);
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
fn tell_wrong(wrong: &WrongLab) {
    tell(&wrong.sources, &wrong.diagnostics);
}

/// Prints diagnostics to standard error: at most [`MAX_DIAGNOSTICS`] errors and as many warnings.
/// Adds the number of remaining diagnostics.
pub fn tell(sources: &Sources, diagnostics: &[Diagnostic]) {
    let limit = |is_error: bool| {
        let of_kind = diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.is_error() == is_error);
        let count = of_kind.count();
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
    for (kind, (count, most)) in ["warnings", "errors"].into_iter().zip(limits) {
        if most < count {
            eprintln!("and {} more {kind}\n", count - most);
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
