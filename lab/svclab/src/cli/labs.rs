//! Reading and preparing what a user chose, with everything that is wrong told
//! at once.

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

/// A lab that was chosen.
pub struct Selected {
    /// The lab; `None` of one that is wrong, whose only case has no verdict.
    pub lab: Option<Chosen>,
    /// Its chosen cases, in order.
    pub cases: Vec<Given>,
}

/// The labs that are named, after telling what their files make one wonder about.
///
/// # Errors
///
/// What the command ends with, after telling on standard error why: when a name leads to
/// nothing, or a lab is wrong.
pub fn chosen(names: &[String], directory: &Path) -> Result<Vec<Chosen>, Exit> {
    let labs = choose(names, directory).map_err(|error| refuse(&error))?;
    for lab in &labs {
        tell(&lab.scenario.sources, &lab.warnings);
    }
    Ok(labs)
}

/// As [`chosen`], but a lab that is wrong, of which it is told, too, keeps no other from
/// being run.
///
/// # Errors
///
/// What the command ends with, after telling on standard error that a name leads to
/// nothing.
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

/// The chosen labs with their prepared cases, in order; labs and cases that are wrong have
/// no verdict, after telling on standard error why.
///
/// # Errors
///
/// What the command ends with, after telling on standard error why: when a name leads to
/// nothing, or there is no case.
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

/// As [`selected`], where everything has to be right.
///
/// # Errors
///
/// As [`selected`]; and when anything is wrong.
pub fn prepared(
    common: &Common,
    selection: &Selection,
) -> Result<Vec<(Chosen, Vec<Prepared>)>, Exit> {
    // Nothing is prepared where not even all labs can be read.
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

/// The cases of a lab, after telling what is wrong with them.
fn prepare_all(lab: &Chosen, selection: &Selection) -> Vec<Given> {
    // A problem that several cases share is printed once.
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

/// Shows what is wrong with a lab on standard error. The panic hook has printed a panic.
fn tell_wrong(wrong: &WrongLab) {
    tell(&wrong.sources, &wrong.diagnostics);
}

/// Shows diagnostics on standard error: at most [`MAX_DIAGNOSTICS`] errors and as many
/// warnings, and how many more there are.
pub fn tell(sources: &Sources, diagnostics: &[Diagnostic]) {
    let limit = |is_error: bool| {
        let of_kind = diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.is_error() == is_error);
        let count = of_kind.count();
        // A list that was cut before ends with a line of its own that says so.
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

/// How diagnostics are shown: in colour on a terminal, unless the user wants none.
#[must_use]
pub fn rendering() -> Rendering {
    Rendering {
        colour: has_colour_on_stderr(),
        ..Rendering::default()
    }
}
