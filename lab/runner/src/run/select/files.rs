//! Finds the lab files that a name selects.

use std::path::{Path, PathBuf};

use super::SelectError;
use svclab_diagnostic::printable::one_line;
use svclab_diagnostic::suggest::did_you_mean;

/// Returns the lab files that a name selects, each with the case part of the name.
pub(super) fn files(
    name: &str,
    directory: &Path,
) -> Result<Vec<(PathBuf, Option<String>)>, SelectError> {
    let is_lab = ["yaml", "yml"]
        .iter()
        .any(|extension| directory.join(format!("{name}.{extension}")).is_file());
    let group = [directory.join(name), PathBuf::from(name)]
        .into_iter()
        .find(|path| !is_lab && path.is_dir());
    match group {
        Some(group) => {
            let files = require_labs_in(&group)?;
            Ok(files.into_iter().map(|file| (file, None)).collect())
        }
        None => Ok(vec![find_lab(name, directory)?]),
    }
}

/// Returns the lab files directly in a directory. Fails if there are none.
pub(super) fn require_labs_in(directory: &Path) -> Result<Vec<PathBuf>, SelectError> {
    let files = labs_in(directory)?;
    if files.is_empty() {
        return Err(SelectError::NoLabs {
            directory: directory.display().to_string(),
        });
    }
    Ok(files)
}

/// Whether a file has the extension of a lab: `.yaml` or `.yml`.
fn is_lab_name(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Returns the lab files directly in a directory, sorted by name, including unreadable files.
fn labs_in(directory: &Path) -> Result<Vec<PathBuf>, SelectError> {
    let unreadable = |source| SelectError::UnreadableDirectory {
        directory: directory.display().to_string(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        // A dangling link or a named pipe becomes an error when the file is read.
        if is_lab_name(&path) && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the file and the case of a name. The path of a file has priority, so that every file can
/// be named.
pub(super) fn find_lab(
    name: &str,
    directory: &Path,
) -> Result<(PathBuf, Option<String>), SelectError> {
    let splits = std::iter::once((name, None)).chain(
        name.match_indices('/')
            .rev()
            .map(|(at, _)| (&name[..at], Some(name[at + 1..].to_owned()))),
    );
    let exists = |front: &str| is_lab_name(Path::new(front)) && Path::new(front).is_file();
    if let Some((front, case)) = splits.clone().find(|(front, _)| exists(front)) {
        return Ok((PathBuf::from(front), case));
    }
    for (front, case) in splits.clone() {
        let path = Path::new(front);
        if is_lab_name(path) || case.is_none() && path.exists() {
            return Ok((path.to_owned(), case));
        }
    }
    for (front, case) in splits {
        for extension in ["yaml", "yml"] {
            let path = directory.join(format!("{front}.{extension}"));
            if path.is_file() {
                return Ok((path, case));
            }
        }
    }
    let labs: Vec<String> = labs_in(directory)
        .unwrap_or_default()
        .iter()
        .filter_map(|path| Some(one_line(&path.file_stem()?.to_string_lossy()).into_owned()))
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
        directory: directory.display().to_string(),
        help: here
            .or_else(|| did_you_mean(lab, labs.iter().map(String::as_str)))
            .or_else(|| (!labs.is_empty()).then(|| format!("the labs are {}", labs.join(", ")))),
    })
}
