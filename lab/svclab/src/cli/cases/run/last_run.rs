//! Stores the names of the cases that failed in the last run from a directory, and reads them for
//! `svclab run --last-failed`.
//!
//! The file is `$XDG_STATE_HOME/svclab/last-run-HASH.json`, or below `~/.local/state`. The hash is
//! that of the current directory: paths of labs depend on it.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::cli::error::CliError;
use svclab_diagnostic::files::{FileError, Location, write_file};
use svclab_diagnostic::printable::is_control;
use svclab_runner::results::Results;

/// Name and version of the format.
const SCHEMA: &str = "svclab/last-run/v1alpha1";

/// Maximum size of the file, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Maximum length of the name of a case, in bytes.
const MAX_NAME: usize = 4096;

/// Cases that did not pass in the last run from a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LastRun {
    schema: String,
    /// Current directory of the run.
    directory: String,
    /// Names of the cases on the command line.
    pub(crate) failed: Vec<String>,
}

impl LastRun {
    /// Returns the failed cases of a run from the current directory. With `keeps_not_run`, cases
    /// that did not run count as failed.
    fn new(directory: &Path, results: &Results, keeps_not_run: bool) -> Self {
        let cases = results.cases.iter();
        let failed = cases.filter(|case| !case.result.has_passed());
        let failed = failed.map(|case| (&case.named, &case.case));
        let not_run = results.not_run.iter().filter(|_| keeps_not_run);
        let not_run = not_run.map(|case| (&case.named, &case.case));
        let mut names: Vec<String> = Vec::new();
        for (named, case) in failed.chain(not_run) {
            let name = if named.is_empty() { case } else { named };
            // A case that ran in several kernels is named once.
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Self {
            schema: SCHEMA.to_owned(),
            directory: directory.display().to_string(),
            failed: names,
        }
    }

    /// Stores the failed cases of a run. An interrupted run does not replace an earlier one. With
    /// `keeps_not_run`, cases that did not run count as failed.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(crate) fn store(results: &Results, keeps_not_run: bool) -> io::Result<()> {
        let directory = std::env::current_dir()?;
        let Some(file) = state_file(&directory).filter(|_| !results.interrupted) else {
            return Ok(());
        };
        if let Some(parent) = file.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)?;
        }
        let run = Self::new(&directory, results, keeps_not_run);
        let text = serde_json::to_string(&run)?;
        write_file(&file, |out| writeln!(out, "{text}"))
    }

    /// Reads the failed cases of the last run from the current directory, at least one.
    ///
    /// # Errors
    ///
    /// When no run is stored, the file cannot be trusted, or no case failed.
    pub(crate) fn read() -> Result<Self, CliError> {
        let directory = std::env::current_dir().map_err(|error| {
            CliError::refused(
                format!("cannot find the current directory: {error}"),
                "change to another directory",
            )
        })?;
        let Some(file) = state_file(&directory) else {
            return Err(CliError::refused(
                "cannot find the failed cases: neither XDG_STATE_HOME nor HOME is an absolute path",
                "set XDG_STATE_HOME, in this run and in the previous one",
            ));
        };
        let run = read_file(&file, &directory).map_err(|problem| match problem {
            Problem::Missing => CliError::refused(
                format!("no run from {} is stored", directory.display()),
                "run the labs without --last-failed first",
            ),
            Problem::Invalid(reason) => CliError::refused(
                format!("cannot use {}: {reason}", file.display()),
                "remove the file, and run the labs without --last-failed",
            ),
        })?;
        if run.failed.is_empty() {
            return Err(CliError::NothingSelected {
                message: "no case failed in the last run".to_owned(),
                help: None,
            });
        }
        Ok(run)
    }
}

/// Reason why there are no cases of the last run.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    Missing,
    Invalid(String),
}

/// Reads a file, and checks that nobody but this user can have written it.
fn read_file(file: &Path, directory: &Path) -> Result<LastRun, Problem> {
    let invalid = |error: FileError| {
        if error.is_missing() {
            Problem::Missing
        } else {
            Problem::Invalid(error.to_string())
        }
    };
    let refuse = |reason: &str| Err(Problem::Invalid(reason.to_owned()));
    let opened = Location::anywhere(file).open().map_err(invalid)?;
    let metadata = opened
        .metadata()
        .map_err(|error| Problem::Invalid(error.to_string()))?;
    if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o002 != 0 {
        return refuse("other users can write it");
    }
    let (bytes, link_target) = opened.read(MAX_BYTES).map_err(invalid)?;
    if link_target.is_some() {
        return refuse("it is a symbolic link");
    }
    if bytes.len() > MAX_BYTES {
        return refuse("it is too large");
    }
    let run: LastRun = serde_json::from_slice(&bytes)
        .map_err(|error| Problem::Invalid(format!("it is not the file of a run: {error}")))?;
    if run.schema != SCHEMA {
        return refuse("it has an unknown format");
    }
    if run.directory != directory.display().to_string() {
        return refuse("it is that of another directory");
    }
    let is_valid =
        |name: &String| !name.is_empty() && name.len() <= MAX_NAME && !name.contains(is_control);
    if !run.failed.iter().all(is_valid) {
        return refuse("a name in it is invalid");
    }
    Ok(run)
}

/// Returns the file for runs from a directory. `None` if no variable has a valid path.
fn state_file(directory: &Path) -> Option<PathBuf> {
    let state = state_directory(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?;
    let hash = Sha256::digest(directory.as_os_str().as_bytes());
    let name = format!("last-run-{}.json", HEXLOWER.encode(&hash[..8]));
    Some(state.join("svclab").join(name))
}

/// Returns the directory of state files. The XDG Base Directory Specification 0.8 ignores relative
/// paths.
fn state_directory(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(state).or_else(|| absolute(home).map(|home| home.join(".local/state")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn state_directory_relative_paths_are_ignored() {
        let directory = |state: &str, home: &str| {
            state_directory(Some(state.into()), Some(home.into()))
                .map(|path| path.display().to_string())
        };
        assert_eq!(directory("/s", "/h").as_deref(), Some("/s"));
        assert_eq!(directory("", "/h").as_deref(), Some("/h/.local/state"));
        assert_eq!(directory("s", "h"), None);
    }

    #[test]
    fn read_file_hostile_content_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("last-run.json");
        let valid =
            r#"{"schema":"svclab/last-run/v1alpha1","directory":"/d","failed":["lab/a=b"]}"#;
        let read = |text: &str| {
            fs::write(&file, text).expect("a file");
            read_file(&file, Path::new("/d"))
        };
        assert_eq!(read_file(&file, Path::new("/d")), Err(Problem::Missing));
        assert_eq!(
            read(valid).map(|run| run.failed),
            Ok(vec!["lab/a=b".to_owned()])
        );
        let control = valid.replace("lab/a=b", r"a\u001b[2J");
        let long = valid.replace("lab/a=b", &"a".repeat(MAX_NAME + 1));
        for (text, reason) in [
            ("", "it is not the file of a run"),
            ("[]", "it is not the file of a run"),
            (
                &valid.replace("\"failed\"", "\"more\""),
                "it is not the file of a run",
            ),
            (&valid.replace("v1alpha1", "v2"), "it has an unknown format"),
            (
                &valid.replace("/d", "/e"),
                "it is that of another directory",
            ),
            (&valid.replace("lab/a=b", ""), "a name in it is invalid"),
            (&control, "a name in it is invalid"),
            (&long, "a name in it is invalid"),
            (&" ".repeat(MAX_BYTES + 1), "it is too large"),
        ] {
            match read(text) {
                Err(Problem::Invalid(found)) => assert!(found.starts_with(reason), "{found}"),
                other => panic!("{reason}: {other:?}"),
            }
        }
        fs::write(&file, valid).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("permissions");
        let shared = read_file(&file, Path::new("/d"));
        assert_eq!(
            shared,
            Err(Problem::Invalid("other users can write it".to_owned()))
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("permissions");
        let link = directory.path().join("link.json");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        let linked = read_file(&link, Path::new("/d"));
        assert_eq!(
            linked,
            Err(Problem::Invalid("it is a symbolic link".to_owned()))
        );
    }
}
