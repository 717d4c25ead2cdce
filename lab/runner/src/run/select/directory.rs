//! The place where labs are found by name: a directory, or the labs in the program.

use std::fmt;
use std::path::{Path, PathBuf};

use super::SelectError;
use svclab_diagnostic::source::{STDIN, Source, SourceError};
use svclab_scenario::FileAccess;

/// Start of the paths of embedded labs: `embedded:node-port.yaml`.
const EMBEDDED_PREFIX: &str = "embedded:";

/// Lab that is part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedLab {
    /// Path of the lab without its extension, such as `conformance/node-port`.
    pub name: &'static str,
    /// Text of the lab.
    pub text: &'static str,
}

/// Place where labs are found by name.
#[derive(Debug, Clone, Copy)]
pub enum LabDirectory<'d> {
    /// Directory of lab files.
    Path(&'d Path),
    /// Labs that are part of the program.
    Embedded(&'static [EmbeddedLab]),
}

impl<'d> From<&'d Path> for LabDirectory<'d> {
    fn from(directory: &'d Path) -> Self {
        Self::Path(directory)
    }
}

impl<'d> From<&'d PathBuf> for LabDirectory<'d> {
    fn from(directory: &'d PathBuf) -> Self {
        Self::Path(directory)
    }
}

/// Place where labs are found by name, and the files that the labs may name.
#[derive(Debug, Clone, Copy)]
pub struct LabSearch<'d> {
    /// Place where labs are found by name.
    pub directory: LabDirectory<'d>,
    /// Whether a lab may name objects outside its own directory.
    pub allow_outside: bool,
}

impl<'d, D: Into<LabDirectory<'d>>> From<D> for LabSearch<'d> {
    fn from(directory: D) -> Self {
        Self {
            directory: directory.into(),
            allow_outside: false,
        }
    }
}

impl fmt::Display for LabDirectory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(directory) => directory.display().fmt(f),
            Self::Embedded(_) => f.write_str("the embedded labs"),
        }
    }
}

impl<'d> LabDirectory<'d> {
    /// Returns the same place for labs that may name objects outside their own directory, if
    /// `allow_outside`.
    #[must_use]
    pub fn with_outside(self, allow_outside: bool) -> LabSearch<'d> {
        LabSearch {
            directory: self,
            allow_outside,
        }
    }
}

impl LabDirectory<'_> {
    /// Returns the lab with a name such as `conformance/node-port`.
    pub(super) fn lab(self, name: &str) -> Option<LabFile> {
        match self {
            Self::Path(directory) => ["yaml", "yml"]
                .into_iter()
                .map(|extension| directory.join(format!("{name}.{extension}")))
                .find(|path| path.is_file())
                .map(LabFile::Path),
            Self::Embedded(labs) => labs
                .iter()
                .find(|lab| lab.name == name)
                .map(|lab| LabFile::Embedded(*lab)),
        }
    }

    /// Returns the labs directly in the directory, sorted by name, including unreadable files.
    pub(super) fn labs(self) -> Result<Vec<LabFile>, SelectError> {
        match self {
            Self::Path(directory) => labs_in(directory),
            Self::Embedded(labs) => Ok(embedded_in(labs, "")),
        }
    }

    /// Returns the labs directly in the directory. Fails if there are none.
    pub(super) fn require_labs(self) -> Result<Vec<LabFile>, SelectError> {
        match self {
            Self::Path(directory) => require_labs_in(directory),
            Self::Embedded(_) => self.labs(),
        }
    }

    /// Returns the labs of a subdirectory. `None` if the directory does not have it.
    pub(super) fn group(self, name: &str) -> Option<Result<Vec<LabFile>, SelectError>> {
        match self {
            Self::Path(directory) => {
                let group = directory.join(name);
                group.is_dir().then(|| require_labs_in(&group))
            }
            Self::Embedded(labs) => {
                let group = embedded_in(labs, &format!("{}/", name.trim_end_matches('/')));
                (!group.is_empty()).then_some(Ok(group))
            }
        }
    }

    /// Whether the directory has a subdirectory with this name.
    #[must_use]
    pub fn has_group(self, name: &str) -> bool {
        match self {
            Self::Path(directory) => directory.join(name).is_dir(),
            Self::Embedded(_) => self.group(name).is_some(),
        }
    }

    /// Returns the names of the subdirectories that contain labs, sorted.
    #[must_use]
    pub fn groups(self) -> Vec<String> {
        let mut groups: Vec<String> = match self {
            Self::Path(directory) => std::fs::read_dir(directory)
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.is_dir() && labs_in(path).is_ok_and(|labs| !labs.is_empty()))
                .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
                .collect(),
            Self::Embedded(labs) => labs
                .iter()
                .filter_map(|lab| Some(lab.name.rsplit_once('/')?.0.to_owned()))
                .collect(),
        };
        groups.sort();
        groups.dedup();
        groups
    }

    /// Returns the names of the labs in the directory and its subdirectories, without reading them.
    #[must_use]
    pub fn lab_names(self) -> Vec<String> {
        let groups = self.groups();
        let inside = groups.iter().filter_map(|group| self.group(group));
        let labs = std::iter::once(self.labs())
            .chain(inside)
            .flatten()
            .flatten();
        labs.map(|lab| self.cli_name(&lab)).collect()
    }

    /// Returns the name of a lab on the command line: the path without extension relative to the
    /// directory. For a lab outside the directory, the path of its file.
    pub(super) fn cli_name(self, file: &LabFile) -> String {
        match (self, file) {
            (_, LabFile::Embedded(lab)) => lab.name.to_owned(),
            (Self::Path(directory), LabFile::Path(path)) => match path.strip_prefix(directory) {
                Ok(inside) => inside.with_extension("").display().to_string(),
                Err(_) => path.display().to_string(),
            },
            (_, LabFile::Stdin) => "-".to_owned(),
            (Self::Embedded(_), LabFile::Path(path)) => path.display().to_string(),
        }
    }
}

/// Returns the embedded labs directly in a group, which is empty or ends with `/`.
fn embedded_in(labs: &[EmbeddedLab], group: &str) -> Vec<LabFile> {
    let is_directly_in = |lab: &&EmbeddedLab| {
        let inside = lab.name.strip_prefix(group);
        inside.is_some_and(|name| !name.contains('/'))
    };
    let labs = labs.iter().filter(is_directly_in);
    labs.map(|lab| LabFile::Embedded(*lab)).collect()
}

/// Lab before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LabFile {
    /// Path of a file.
    Path(PathBuf),
    /// Part of the program.
    Embedded(EmbeddedLab),
    /// Standard input, named `-`.
    Stdin,
}

impl LabFile {
    /// Returns the path for messages and results.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Embedded(lab) => PathBuf::from(format!("{EMBEDDED_PREFIX}{}.yaml", lab.name)),
            Self::Stdin => PathBuf::from(STDIN),
        }
    }

    /// Returns the files that the lab may name.
    pub(super) fn access(&self, allow_outside: bool) -> FileAccess {
        match self {
            Self::Embedded(_) => FileAccess::None,
            Self::Path(_) | Self::Stdin if allow_outside => FileAccess::Anywhere,
            Self::Path(_) | Self::Stdin => FileAccess::LabDirectory,
        }
    }

    /// Reads the text of the lab.
    pub(super) fn read(&self) -> Result<Source, SourceError> {
        match self {
            Self::Path(path) => Source::read(path),
            Self::Embedded(lab) => {
                let name = self.path().display().to_string();
                Source::from_bytes(name, without_modeline(lab.text).as_bytes().to_vec())
            }
            Self::Stdin => Source::read_stdin(),
        }
    }
}

/// Returns a lab without the comment that names its schema for editors. The path in the comment is
/// only valid in the repository.
fn without_modeline(text: &str) -> &str {
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("# yaml-language-server:") => rest,
        _ => text,
    }
}

/// Whether a path is that of an embedded lab.
pub(in crate::run) fn is_embedded(path: &str) -> bool {
    path.starts_with(EMBEDDED_PREFIX)
}

/// Returns the lab files directly in a directory. Fails if there are none.
pub(super) fn require_labs_in(directory: &Path) -> Result<Vec<LabFile>, SelectError> {
    let files = labs_in(directory)?;
    if files.is_empty() {
        return Err(SelectError::NoLabs {
            directory: directory.display().to_string(),
        });
    }
    Ok(files)
}

/// Whether a file has the extension of a lab: `.yaml` or `.yml`.
pub(super) fn is_lab_name(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Returns the lab files directly in a directory, sorted by name, including unreadable files.
fn labs_in(directory: &Path) -> Result<Vec<LabFile>, SelectError> {
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
    Ok(files.into_iter().map(LabFile::Path).collect())
}
