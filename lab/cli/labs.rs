//! Reading and preparing what a user chose, with everything that is wrong told
//! at once.

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::path::Path;

use super::args::{Common, Selection};
use super::exit::Exit;
use crate::run::{Chosen, Prepared, SelectError, choose, prepare};
use crate::scenario::{Diagnostic, Rendering, Sources};

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

/// Shows diagnostics on standard error.
pub fn tell(sources: &Sources, diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        eprintln!("{}\n", diagnostic.render(sources, rendering()).trim_end());
    }
}

/// How diagnostics are shown: in colour on a terminal, unless the user wants none.
#[must_use]
pub fn rendering() -> Rendering {
    let colour = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Rendering {
        colour,
        ..Rendering::default()
    }
}
