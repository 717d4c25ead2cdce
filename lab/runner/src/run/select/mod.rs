//! Selects the labs and cases that a user names.

mod cases;
mod directory;
mod files;
mod invalid_lab;
mod pattern;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::summary::{first_error_location, summarize};
use super::tasks::catch_panic_sync;
use crate::results::FileLine;
use cases::matching_cases;
use directory::LabFile;
pub(super) use directory::is_embedded;
use files::{Selected, files};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::printable::one_line;
use svclab_diagnostic::source::{STDIN, Source, SourceError, Sources};
use svclab_scenario::{Case, InvalidScenario, Scenario};

pub use directory::{EmbeddedLab, LabDirectory, LabSearch};
pub use invalid_lab::InvalidLab;

/// Default directory in which labs are found by name.
pub const DEFAULT_LAB_DIRECTORY: &str = "topologies";

/// Environment variable that overrides [`DEFAULT_LAB_DIRECTORY`].
pub const LAB_DIRECTORY_VARIABLE: &str = "SVCLAB_TOPOLOGIES";

/// Returns the name that selects a lab again in a new command. `cli_name` is the lab's name and
/// `file` its path. The result is `cli_name` if the lab is embedded or the default directory
/// contains it, else `file`.
#[must_use]
pub fn rerun_name(cli_name: &str, file: &str) -> String {
    let is_default = std::env::var_os(LAB_DIRECTORY_VARIABLE)
        .is_none_or(|set| set == DEFAULT_LAB_DIRECTORY)
        && Path::new(file).starts_with(DEFAULT_LAB_DIRECTORY);
    if is_default || file.is_empty() || is_embedded(file) {
        cli_name.to_owned()
    } else if file == STDIN {
        "-".to_owned()
    } else if file.starts_with('-') {
        // A leading dash would make the file an option.
        format!("./{file}")
    } else {
        file.to_owned()
    }
}

/// Lab that was read, with the selected cases.
#[derive(Debug, Clone)]
pub struct SelectedLab {
    /// Lab document with all of its cases.
    pub scenario: Scenario,
    /// Indices of the selected cases, ascending.
    pub cases: Vec<usize>,
    /// Warnings about the lab file.
    pub warnings: Vec<Diagnostic>,
    /// Name of the lab on the command line: the path without extension relative to the directory of
    /// labs, for example `conformance/node-port`. For a lab outside that directory, the path of its
    /// file.
    pub cli_name: String,
}

impl SelectedLab {
    /// Returns the name that selects a case of the lab again in a new command.
    #[must_use]
    pub fn rerun_name(&self, case: &Case) -> String {
        let file = self.scenario.sources.iter().next();
        let file = file.map_or(Cow::default(), |(_, source)| source.path());
        let rest = case.id.strip_prefix(&case.lab).unwrap_or_default();
        format!("{}{rest}", rerun_name(&self.cli_name, &file))
    }
}

/// Reason why a lab or case that a user names cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The lab is invalid.
    #[error("cannot run the lab {}: {}", one_line(&.0.cli_name), .0.error.message)]
    InvalidLab(Box<InvalidLab>),
    /// No file has the name of the lab.
    #[error("there is no lab `{name}` in {directory}{}", hint(help.as_ref()))]
    NoLab {
        /// Name as the user wrote it.
        name: String,
        /// Directory that was searched.
        directory: String,
        /// Suggestion of another name. `None` if no lab is similar.
        help: Option<String>,
    },
    /// A case is named where a whole lab is necessary.
    #[error("a lab is printed with all of its cases; omit `/{case}`")]
    CaseOfFile {
        /// Case as the user wrote it.
        case: String,
    },
    /// Two labs have the same name, so the names of their cases are the same.
    #[error(
        "{first} and {second} both contain a lab with the name `{name}`; rename one: \
         `metadata: {{name: …}}`"
    )]
    SameName {
        /// Name of both labs.
        name: String,
        /// Path of the first file.
        first: String,
        /// Path of the other file.
        second: String,
    },
    /// The lab does not have the case.
    #[error("the lab `{lab}` has no case `{case}`{}", hint(help.as_ref()))]
    NoCase {
        /// Name of the lab.
        lab: String,
        /// Case as the user wrote it.
        case: String,
        /// Suggestion of another case, or the reason of the mismatch.
        help: Option<String>,
    },
    /// The directory of labs contains no lab file.
    #[error("there is no lab in {directory}; name a file, or the directory with --topologies")]
    NoLabs {
        /// Path of the directory.
        directory: String,
    },
    /// The directory of labs cannot be read.
    #[error(
        "cannot read {directory}: {source}; name a lab's file, or the directory of labs with --topologies"
    )]
    UnreadableDirectory {
        /// Path of the directory.
        directory: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

fn hint(help: Option<&String>) -> String {
    help.map(|help| format!("; {help}")).unwrap_or_default()
}

/// Reads the labs and cases that `names` selects. Without names, reads every lab directly in
/// `directory`. A name has one of these forms:
///
/// - `LAB`: a lab in `directory`
/// - `LAB/CASE`: the cases with these axis values, which may be some of the axes only
/// - path of a lab file, optionally followed by `/CASE`
/// - directory of labs, in `directory` or by its path, for every lab directly in it
/// - a pattern for labs in `directory`, for cases, or both: `local-*/*mode=ipvs*`
/// - `-`: a lab on standard input, optionally followed by `/CASE`
///
/// # Errors
///
/// When a name selects nothing that can run, or a lab is invalid. Returns the first such error.
pub fn select_labs<'d>(
    names: &[String],
    search: impl Into<LabSearch<'d>>,
) -> Result<Vec<SelectedLab>, SelectError> {
    let each = select_labs_each(names, search)?.into_iter();
    each.map(|lab| lab.map_err(SelectError::InvalidLab))
        .collect()
}

/// Reads the file of a lab, by its name or path.
///
/// # Errors
///
/// When there is no such lab, or its file cannot be read.
pub fn lab_source<'d>(
    name: &str,
    directory: impl Into<LabDirectory<'d>>,
) -> Result<Source, SelectError> {
    let directory = directory.into();
    match files::find_lab(name, directory)? {
        (file, None) => Ok(file.read()?),
        (_, Some(case)) => Err(SelectError::CaseOfFile { case }),
    }
}

/// Lab that can run, or lab that cannot.
pub type LabResult = Result<SelectedLab, Box<InvalidLab>>;

/// Reads labs like [`select_labs`], but an invalid lab does not prevent others from running.
///
/// # Errors
///
/// When a name selects nothing. Returns the first such error.
pub fn select_labs_each<'d>(
    names: &[String],
    search: impl Into<LabSearch<'d>>,
) -> Result<Vec<LabResult>, SelectError> {
    let search = search.into();
    let directory = search.directory;
    if names.is_empty() {
        let files = directory.require_labs()?.into_iter();
        let labs: Result<Vec<LabResult>, SelectError> =
            files.map(|file| load(&file, search)).collect();
        return require_different_names(without_object_files(labs?, &BTreeSet::new()));
    }
    let mut chosen: Vec<(LabFile, LabResult)> = Vec::new();
    let mut by_name: BTreeSet<PathBuf> = BTreeSet::new();
    for name in names {
        let Selected { labs, by_pattern } = files(name, directory)?;
        if let ([(file, _)], false) = (labs.as_slice(), by_pattern) {
            by_name.insert(file.path());
        }
        let (mut has_case, mut no_case) = (false, None);
        for (file, case) in labs {
            let known = chosen.iter().position(|(known, _)| *known == file);
            let index = if let Some(at) = known {
                at
            } else {
                let mut lab = load(&file, search)?;
                if let Ok(lab) = &mut lab {
                    lab.cases.clear();
                }
                chosen.push((file, lab));
                chosen.len() - 1
            };
            let Ok(lab) = &mut chosen[index].1 else {
                continue;
            };
            let wanted = match matching_cases(&lab.scenario, case.as_deref()) {
                Err(error) if by_pattern => {
                    no_case = Some(error);
                    continue;
                }
                wanted => wanted?,
            };
            has_case = true;
            lab.cases.extend(wanted);
            lab.cases.sort_unstable();
            lab.cases.dedup();
        }
        if let Some(error) = no_case.filter(|_| !has_case) {
            return Err(error);
        }
    }
    let labs = chosen.into_iter().map(|(_, lab)| lab);
    let has_cases = |lab: &LabResult| lab.as_ref().is_ok_and(|lab| !lab.cases.is_empty());
    let labs = labs.filter(|lab| lab.is_err() || has_cases(lab)).collect();
    require_different_names(without_object_files(labs, &by_name))
}

/// Returns the labs without the files of objects that one of them lists. A directory may contain both.
/// Files that the user named remain.
fn without_object_files(labs: Vec<LabResult>, by_name: &BTreeSet<PathBuf>) -> Vec<LabResult> {
    let sources = labs.iter().map(|lab| match lab {
        Ok(lab) => &lab.scenario.sources,
        Err(invalid) => &invalid.sources,
    });
    // The first source is the lab.
    let objects = sources.flat_map(|sources| sources.iter().skip(1));
    let objects = objects.filter_map(|(_, source)| fs::canonicalize(&*source.path()).ok());
    let objects: BTreeSet<PathBuf> = objects.collect();
    let is_lab = |lab: &LabResult| {
        lab.as_ref().err().is_none_or(|invalid| {
            let file = Path::new(&invalid.file);
            by_name.contains(file)
                || !fs::canonicalize(file).is_ok_and(|own| objects.contains(&own))
        })
    };
    labs.into_iter().filter(is_lab).collect()
}

/// Returns the labs if the names of those in the same directory differ. The names of cases start with
/// the name of the lab; those of several directories are distinguished by their files.
fn require_different_names(labs: Vec<LabResult>) -> Result<Vec<LabResult>, SelectError> {
    let mut known: BTreeMap<(PathBuf, &str), String> = BTreeMap::new();
    for lab in labs.iter().flatten() {
        let name = lab.scenario.name();
        let source = lab.scenario.sources.iter().next();
        let file = source.map_or_else(String::new, |(_, source)| source.name().to_owned());
        let directory = Path::new(&file).parent().unwrap_or(Path::new(""));
        let key = (directory.to_owned(), name);
        if let Some(first) = known.insert(key, file.clone()) {
            return Err(SelectError::SameName {
                name: name.to_owned(),
                first,
                second: file,
            });
        }
    }
    Ok(labs)
}

/// Reads a lab. Every problem of an existing file becomes part of the returned [`InvalidLab`].
fn load(lab: &LabFile, search: LabSearch<'_>) -> Result<LabResult, SelectError> {
    let cli_name = search.directory.cli_name(lab);
    let file = lab.path();
    let invalid_lab = |sources, diagnostics, error, place: Option<FileLine>| {
        let name = file.file_stem().unwrap_or(file.as_os_str());
        let place = place.unwrap_or_else(|| FileLine {
            file: one_line(&file.to_string_lossy()).into_owned(),
            line: 1,
        });
        Box::new(InvalidLab {
            name: one_line(&name.to_string_lossy()).into_owned(),
            cli_name: cli_name.clone(),
            file: file.display().to_string(),
            sources,
            diagnostics,
            error,
            location: place,
        })
    };
    let source = match lab.read() {
        Ok(source) => source,
        // A dangling symbolic link is a lab that cannot be read.
        Err(error @ SourceError::Missing { .. }) if !file.is_symlink() => {
            return Err(error.into());
        }
        Err(error @ SourceError::Directory { .. }) => return Err(error.into()),
        Err(error) => {
            let place = error.line().map(|line| FileLine {
                file: one_line(&file.to_string_lossy()).into_owned(),
                line,
            });
            let (sources, diagnostics) = (Sources::default(), vec![Diagnostic::from(error)]);
            let summary = summarize(&sources, &diagnostics);
            return Ok(Err(invalid_lab(sources, diagnostics, summary, place)));
        }
    };
    let lab_only = Sources::from(source.clone());
    let access = lab.access(search.allow_outside);
    Ok(
        match catch_panic_sync(|| Scenario::load_lab(source, access)) {
            Ok(Ok((scenario, warnings))) => Ok(SelectedLab {
                cases: (0..scenario.cases().len()).collect(),
                scenario,
                warnings,
                cli_name,
            }),
            Ok(Err(invalid)) => {
                let InvalidScenario {
                    sources,
                    diagnostics,
                } = *invalid;
                let (short, at) = (
                    summarize(&sources, &diagnostics),
                    first_error_location(&sources, &diagnostics),
                );
                Err(invalid_lab(sources, diagnostics, short, at))
            }
            Err(panicked) => Err(invalid_lab(lab_only, Vec::new(), panicked, None)),
        },
    )
}

#[cfg(test)]
mod tests;
