//! Finds the lab files that a name selects.

use std::path::{Path, PathBuf};

use super::SelectError;
use super::directory::{LabDirectory, LabFile, is_lab_name, require_labs_in};
use super::pattern::{has_wildcard, matches};
use svclab_diagnostic::printable::one_line;
use svclab_diagnostic::suggest::did_you_mean;

/// Labs that a name selects.
pub(super) struct Selected {
    /// Labs, each with the case part of the name.
    pub labs: Vec<(LabFile, Option<String>)>,
    /// Whether a pattern selected the labs. Each may then be without a case of the name, if one has
    /// such a case.
    pub by_pattern: bool,
}

/// Returns the labs that a name selects.
pub(super) fn files(name: &str, directory: LabDirectory<'_>) -> Result<Selected, SelectError> {
    let group = match directory.lab(name) {
        Some(_) => None,
        None => directory.group(name).or_else(|| {
            let path = Path::new(name);
            path.is_dir().then(|| require_labs_in(path))
        }),
    };
    let (labs, by_pattern) = match group {
        Some(files) => (files?.into_iter().map(|file| (file, None)).collect(), false),
        None => match find_lab(name, directory) {
            Err(error @ SelectError::NoLab { .. }) => {
                let labs = find_pattern(name, directory).ok_or(error)?;
                (labs, true)
            }
            found => (vec![found?], false),
        },
    };
    Ok(Selected { labs, by_pattern })
}

/// Splits a name at each `/`, the last first: a whole lab, then a lab and a case.
fn splits(name: &str) -> impl Iterator<Item = (&str, Option<String>)> + Clone {
    std::iter::once((name, None)).chain(
        name.match_indices('/')
            .rev()
            .map(|(at, _)| (&name[..at], Some(name[at + 1..].to_owned()))),
    )
}

/// Returns the labs whose names match a pattern, such as `conformance/*`, each with the case part.
/// `None` if there are none.
fn find_pattern(name: &str, directory: LabDirectory<'_>) -> Option<Vec<(LabFile, Option<String>)>> {
    splits(name).find_map(|(front, case)| {
        let (group, pattern) = front.rsplit_once('/').unwrap_or(("", front));
        if !has_wildcard(pattern) || has_wildcard(group) {
            return None;
        }
        let labs = match group {
            "" => directory.labs(),
            group => directory.group(group)?,
        };
        let is_wanted = |lab: &LabFile| {
            let name = directory.cli_name(lab);
            matches(pattern, name.rsplit('/').next().unwrap_or(&name))
        };
        let labs = labs.ok()?.into_iter().filter(is_wanted);
        let labs: Vec<_> = labs.map(|lab| (lab, case.clone())).collect();
        (!labs.is_empty()).then_some(labs)
    })
}

/// Returns the lab and the case of a name. The path of a file has priority, so that every file can
/// be named.
pub(super) fn find_lab(
    name: &str,
    directory: LabDirectory<'_>,
) -> Result<(LabFile, Option<String>), SelectError> {
    let splits = splits(name);
    if let Some((_, case)) = splits.clone().find(|(front, _)| *front == "-") {
        return Ok((LabFile::Stdin, case));
    }
    let exists = |front: &str| is_lab_name(Path::new(front)) && Path::new(front).is_file();
    if let Some((front, case)) = splits.clone().find(|(front, _)| exists(front)) {
        return Ok((LabFile::Path(PathBuf::from(front)), case));
    }
    for (front, case) in splits.clone() {
        let path = Path::new(front);
        if is_lab_name(path) || case.is_none() && path.exists() {
            return Ok((LabFile::Path(path.to_owned()), case));
        }
    }
    for (front, case) in splits {
        if let Some(file) = directory.lab(front) {
            return Ok((file, case));
        }
    }
    let labs: Vec<String> = directory
        .labs()
        .unwrap_or_default()
        .iter()
        .map(|lab| one_line(&directory.cli_name(lab)).into_owned())
        .collect();
    let lab = name.split('/').next().unwrap_or(name);
    // A bare name is searched in the directory of labs only, not in the current directory.
    let here = ["yaml", "yml"]
        .map(|extension| format!("{lab}.{extension}"))
        .into_iter()
        .find(|file| Path::new(file).is_file())
        .map(|file| format!("for the file in this directory, write `{file}`"));
    Err(SelectError::NoLab {
        name: lab.to_owned(),
        directory: directory.to_string(),
        help: here
            .or_else(|| did_you_mean(lab, labs.iter().map(String::as_str)))
            .or_else(|| (!labs.is_empty()).then(|| format!("the labs are {}", labs.join(", ")))),
    })
}
