//! Reading and preparing what a user chose, with everything that is wrong told
//! at once.

use std::collections::HashSet;
use std::path::Path;

use super::args::{Common, Selection};
use super::exit::Exit;
use super::output::has_colour_on_stderr;
use crate::run::{Chosen, Prepared, SelectError, choose, prepare};
use crate::scenario::{Diagnostic, MAX_DIAGNOSTICS, Rendering, Sources};

/// The labs that are named, after telling what their files make one wonder about.
///
/// # Errors
///
/// What the command ends with, after telling on standard error why.
pub fn chosen(names: &[String], directory: &Path) -> Result<Vec<Chosen>, Exit> {
    let labs = choose(names, directory).map_err(|error| refuse(&error))?;
    for lab in &labs {
        tell(&lab.scenario.sources, &lab.warnings);
    }
    Ok(labs)
}

/// The chosen labs with their prepared cases, in order.
///
/// # Errors
///
/// What the command ends with, after telling on standard error why.
pub fn prepared(
    common: &Common,
    selection: &Selection,
) -> Result<Vec<(Chosen, Vec<Prepared>)>, Exit> {
    let labs = chosen(&selection.names, &common.topologies)?;
    let mut wrong = false;
    let mut all = Vec::new();
    for lab in labs {
        let sources = &lab.scenario.sources;
        // What is wrong with several cases in the same way is told once.
        let mut told = HashSet::new();
        let mut cases = Vec::new();
        for at in &lab.cases {
            match prepare(&lab, &lab.scenario.cases()[*at], selection.wishes()) {
                Ok(case) => cases.push(case),
                Err(diagnostics) => {
                    wrong = true;
                    let fresh: Vec<Diagnostic> = diagnostics
                        .into_iter()
                        .filter(|diagnostic| told.insert(format!("{diagnostic:?}")))
                        .collect();
                    tell(sources, &fresh);
                }
            }
        }
        all.push((lab, cases));
    }
    if wrong {
        return Err(Exit::Input);
    }
    if all.iter().all(|(_, cases)| cases.is_empty()) {
        eprintln!("error: nothing was selected");
        return Err(Exit::Nothing);
    }
    Ok(all)
}

fn refuse(error: &SelectError) -> Exit {
    match error {
        SelectError::Lab(sources, diagnostics) => {
            tell(sources, diagnostics);
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

/// Shows diagnostics on standard error: at most [`MAX_DIAGNOSTICS`] errors and as many
/// warnings, and how many more there are.
pub fn tell(sources: &Sources, diagnostics: &[Diagnostic]) {
    for (kind, is_error) in [("errors", true), ("warnings", false)] {
        let of_kind = |diagnostic: &&Diagnostic| diagnostic.is_error() == is_error;
        let count = diagnostics.iter().filter(of_kind).count();
        // A list that was cut before ends with a line of its own that says so.
        let most = if count > MAX_DIAGNOSTICS + 1 {
            MAX_DIAGNOSTICS
        } else {
            count
        };
        for diagnostic in diagnostics.iter().filter(of_kind).take(most) {
            eprintln!("{}\n", diagnostic.render(sources, rendering()).trim_end());
        }
        if most < count {
            eprintln!("and {} more {kind}\n", count - most);
        }
    }
}

/// How diagnostics are shown: in colour on a terminal, unless the user wants none.
#[must_use]
pub fn rendering() -> Rendering {
    Rendering {
        colour: has_colour_on_stderr(),
        ..Rendering::default()
    }
}
