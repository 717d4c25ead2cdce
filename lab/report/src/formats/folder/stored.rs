//! Reads the files of finished runs, and makes one page about them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{CAPTURE, RESULTS};
use crate::case_details::CaseDetails;
use crate::commands::compare::{Comparison, short_kernel};
use crate::formats::evidence::{self, EVIDENCE};
use crate::formats::gzip::{compressed, decompressed};
use crate::formats::html::evidence::{embedded, escape_path, includes_evidence};
use crate::formats::html::{CasePage, FileLink, PAGE, Page, ShownRun};
use crate::results::{CaseDocument, Document, SCHEMA};
use svclab_diagnostic::files::{self, FileError, Location};

/// Maximum size of a file that is read, in bytes, also after decompression.
const MAX_BYTES: usize = 512 << 20;

/// Finished run, read from its files.
#[derive(Debug)]
pub struct StoredRun {
    /// Path of the run's files, as the user gave it.
    pub path: PathBuf,
    /// Results of the run.
    pub document: Document,
    /// Details of the cases with evidence, each with its directory.
    cases: BTreeMap<CaseKey, (CaseDetails, PathBuf)>,
}

/// Name, name on the command line, and kernel of a case.
type CaseKey = (String, String, String);

/// Reason why a run cannot be read.
#[derive(Debug, Error)]
pub enum StoredRunError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system, or the kind of the file.
        source: FileError,
    },
    /// A file is too large.
    #[error("{} has more than {} MiB", path.display(), MAX_BYTES >> 20)]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file does not contain what its name says.
    #[error("{} is not a file of a run: {reason}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Problem of the file.
        reason: String,
    },
    /// A file has another schema, such as that of another version of svclab.
    #[error("{} is not a file of a run: its schema is {found} instead of {expected}", path.display())]
    Schema {
        /// Path of the file.
        path: PathBuf,
        /// Schema of the file.
        found: String,
        /// Schema that this version reads.
        expected: &'static str,
    },
}

impl StoredRun {
    /// Reads the directory of `svclab run --report`, or a file of `svclab run --format json`.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, or is not one of a run.
    pub fn read(path: &Path) -> Result<Self, StoredRunError> {
        let is_directory = path.is_dir();
        let results = if is_directory {
            // A link in the files of a stranger must not add a file of this machine to the page.
            Location::below(path, RESULTS)
        } else {
            Location::anywhere(path)
        };
        let document: Document = parse_json(&results, &read_file(&results)?, SCHEMA)?;
        let mut cases = BTreeMap::new();
        let directories = if is_directory {
            case_directories(path)?
        } else {
            Vec::new()
        };
        for directory in directories {
            let file = Location::below(&directory, EVIDENCE);
            let bytes = read_compressed(&file)?;
            let details: CaseDetails = parse_json(&file, &bytes, evidence::SCHEMA)?;
            cases.insert(key(&details.result), (details, directory));
        }
        Ok(Self {
            path: path.to_owned(),
            document,
            cases,
        })
    }

    /// Returns the details of a case in this run, which may have used another patch level of the
    /// kernel.
    fn same_case(&self, case: &CaseDocument) -> Option<&CaseDetails> {
        let all = self.cases.values().map(|(details, _)| details);
        let mut same = all.filter(|details| {
            let result = &details.result;
            (&result.case, &result.named) == (&case.case, &case.named)
                && short_kernel(&result.kernel) == short_kernel(&case.kernel)
        });
        same.next()
    }

    /// Returns the details of a case, and its directory if it has evidence. The directory may also
    /// contain evidence of an earlier run, which is not used.
    fn details(&self, case: &CaseDocument) -> (CaseDetails, Option<&Path>) {
        match self.cases.get(&key(case)) {
            Some((details, directory)) if details.result == *case => {
                (details.clone(), Some(directory))
            }
            _ => (
                CaseDetails::without_evidence(case.clone(), "svclab run"),
                None,
            ),
        }
    }
}

fn key(case: &CaseDocument) -> CaseKey {
    (case.case.clone(), case.named.clone(), case.kernel.clone())
}

/// Returns the directories of a run's cases: two levels below the directory of the run.
fn case_directories(path: &Path) -> Result<Vec<PathBuf>, StoredRunError> {
    let mut cases = Vec::new();
    for lab in directories_in(path)? {
        let of_lab = directories_in(&lab)?.into_iter();
        cases.extend(of_lab.filter(|case| case.join(EVIDENCE).is_file()));
    }
    Ok(cases)
}

fn directories_in(path: &Path) -> Result<Vec<PathBuf>, StoredRunError> {
    let error = |error: io::Error| StoredRunError::File {
        path: path.to_owned(),
        source: error.into(),
    };
    let mut directories = Vec::new();
    for entry in path.read_dir().map_err(error)? {
        let entry = entry.map_err(error)?;
        if entry.file_type().map_err(error)?.is_dir() {
            directories.push(entry.path());
        }
    }
    directories.sort();
    Ok(directories)
}

fn read_file(location: &Location) -> Result<Vec<u8>, StoredRunError> {
    match location.read(MAX_BYTES) {
        Ok((bytes, _)) => within_limit(location, bytes),
        Err(source) => Err(StoredRunError::File {
            path: location.display_path(),
            source,
        }),
    }
}

fn read_compressed(location: &Location) -> Result<Vec<u8>, StoredRunError> {
    let bytes = decompressed(&read_file(location)?, MAX_BYTES + 1);
    within_limit(
        location,
        bytes.map_err(|error| content_error(location, &error))?,
    )
}

fn within_limit(location: &Location, bytes: Vec<u8>) -> Result<Vec<u8>, StoredRunError> {
    if bytes.len() > MAX_BYTES {
        let path = location.display_path();
        return Err(StoredRunError::TooLarge { path });
    }
    Ok(bytes)
}

/// Parses a file with a schema.
fn parse_json<T: DeserializeOwned>(
    location: &Location,
    bytes: &[u8],
    expected: &'static str,
) -> Result<T, StoredRunError> {
    #[derive(Deserialize)]
    struct Header {
        schema: String,
    }
    let error = |error: serde_json::Error| content_error(location, &error);
    // The fields of another schema are unknown.
    let header: Header = serde_json::from_slice(bytes).map_err(error)?;
    if header.schema != expected {
        return Err(StoredRunError::Schema {
            path: location.display_path(),
            found: header.schema,
            expected,
        });
    }
    serde_json::from_slice(bytes).map_err(error)
}

fn content_error(location: &Location, reason: &dyn fmt::Display) -> StoredRunError {
    StoredRunError::Content {
        path: location.display_path(),
        reason: reason.to_string(),
    }
}

/// Where a page is written.
#[derive(Debug, Clone, Copy)]
pub enum PageTarget<'p> {
    /// To a file, with the evidence of all cases in it.
    File(&'p Path),
    /// To `index.html` in a directory, with links to the pages of the cases.
    Directory(&'p Path),
}

impl<'p> PageTarget<'p> {
    /// Returns the target of a path: a file if its name ends in `.html`, else a directory.
    #[must_use]
    pub fn from_path(path: &'p Path) -> Self {
        match path.extension() {
            Some(extension) if extension == "html" => Self::File(path),
            _ => Self::Directory(path),
        }
    }
}

/// Writes a page about finished runs. `baselines` are the earlier runs of the comparison.
///
/// # Errors
///
/// When the evidence of a case cannot be read, or the page cannot be written.
pub fn write_page(
    runs: &[StoredRun],
    baselines: &[StoredRun],
    comparison: Option<&Comparison>,
    target: PageTarget<'_>,
) -> io::Result<()> {
    let mut page = Page::new(None);
    let labels: Vec<String> = runs
        .iter()
        .map(|run| match runs.len() {
            1 => String::new(),
            _ => run.path.display().to_string(),
        })
        .collect();
    if let PageTarget::Directory(path) = target {
        files::create_output_directory(path).map_err(|error| super::with_path(path, &error))?;
    }
    let cases = runs.iter().map(|run| run.document.cases.len()).sum();
    for (run, label) in runs.iter().zip(&labels) {
        for case in &run.document.cases {
            let (details, directory) = run.details(case);
            match (target, directory) {
                (PageTarget::Directory(path), Some(directory)) if baselines.is_empty() => {
                    let href = relative_url(path, &directory.join(PAGE))?;
                    page.add_link(label, &details, href);
                }
                (_, directory) => {
                    let with_evidence = includes_evidence(cases, details.result.result);
                    let names = if with_evidence {
                        &[CAPTURE, EVIDENCE][..]
                    } else {
                        &[CAPTURE]
                    };
                    let omits_evidence = directory.is_some() && !with_evidence;
                    let files = directory.map(|directory| embedded_files(directory, names));
                    let files = files.transpose()?.unwrap_or_default();
                    let baseline = baselines.iter().find_map(|run| run.same_case(case));
                    let page_of_case = CasePage {
                        baseline: baseline.cloned(),
                        omits_evidence,
                        ..CasePage::new(details, files)
                    };
                    page.add_section(label, &page_of_case)?;
                }
            }
        }
    }
    let shown: Vec<ShownRun<'_>> = runs
        .iter()
        .zip(&labels)
        .map(|(run, label)| ShownRun {
            label,
            document: &run.document,
        })
        .collect();
    let page = page.render(&shown, comparison)?;
    let path = match target {
        PageTarget::File(path) => path.to_owned(),
        PageTarget::Directory(path) => path.join(PAGE),
    };
    super::write_file(&path, |out| out.write_all(page.as_bytes()))
}

/// Returns the files of a case as data URLs, compressed.
fn embedded_files(directory: &Path, names: &[&str]) -> io::Result<Vec<FileLink>> {
    names
        .iter()
        .map(|name| {
            let location = Location::below(directory, name);
            let read = location.read(MAX_BYTES);
            let (bytes, _) = read.map_err(|error| {
                super::with_path(&location.display_path(), &io::Error::other(error))
            })?;
            if *name == EVIDENCE {
                return Ok(embedded(name, &bytes));
            }
            let file = compressed(|out| out.write_all(&bytes))?;
            Ok(embedded(&format!("{name}.gz"), &file))
        })
        .collect()
}

/// Returns the relative URL of a file from a page in `directory`.
fn relative_url(directory: &Path, file: &Path) -> io::Result<String> {
    let [from, to] = [directory, file].map(Path::canonicalize);
    let (from, to) = (from?, to?);
    let relative = pathdiff::diff_paths(&to, &from).unwrap_or(to);
    Ok(escape_path(&relative.display().to_string()))
}
