//! Finds and reads the evidence of the cases of a finished run. The evidence of one case can have
//! several megabytes, so that only one is in memory at a time.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::stored::{JsonFile, StoredRunError};
use crate::case_details::CaseDetails;
use crate::commands::compare::short_kernel;
use crate::formats::evidence::{EVIDENCE, SCHEMA};
use crate::results::CaseDocument;
use svclab_diagnostic::files::Location;
use svclab_model::evidence::Evidence;

/// Results and directories of the cases with evidence.
#[derive(Debug)]
pub(super) struct EvidenceFiles {
    cases: BTreeMap<CaseKey, (CaseDocument, PathBuf)>,
}

/// Name, name on the command line, and kernel of a case.
type CaseKey = (String, String, String);

/// Result in the evidence of a case.
#[derive(Deserialize)]
struct OfCase {
    result: CaseDocument,
}

/// Recorded part of the evidence of a case.
#[derive(Deserialize)]
struct Recorded {
    evidence: Evidence,
}

impl EvidenceFiles {
    /// Finds the evidence of a run in its directory. A file of results has none.
    pub(super) fn find(path: &Path) -> Result<Self, StoredRunError> {
        let mut cases = BTreeMap::new();
        if path.is_dir() {
            for directory in case_directories(path)? {
                let OfCase { result } = CaseFile::open(&directory)?.0.parse()?;
                cases.insert(key(&result), (result, directory));
            }
        }
        Ok(Self { cases })
    }

    /// Returns the directory of a case if it has evidence. The directory may also contain evidence
    /// of an earlier run, which is not used.
    pub(super) fn directory(&self, case: &CaseDocument) -> Option<&Path> {
        let (result, directory) = self.cases.get(&key(case))?;
        (result == case).then_some(directory)
    }

    /// Returns the directory of a case in this run, which may have used another patch level of the
    /// kernel.
    pub(super) fn same_case(&self, case: &CaseDocument) -> Option<&Path> {
        let mut all = self.cases.values();
        let same = all.find(|(result, _)| {
            (&result.case, &result.named) == (&case.case, &case.named)
                && short_kernel(&result.kernel) == short_kernel(&case.kernel)
        });
        same.map(|(_, directory)| directory.as_path())
    }
}

/// Evidence of a case, read from its directory.
pub(super) struct CaseFile(JsonFile);

impl CaseFile {
    pub(super) fn open(directory: &Path) -> Result<Self, StoredRunError> {
        let file = Location::below(directory, EVIDENCE);
        JsonFile::open_compressed(file, SCHEMA).map(Self)
    }

    pub(super) fn details(&self) -> Result<CaseDetails, StoredRunError> {
        self.0.parse()
    }

    /// Returns what was recorded.
    pub(super) fn evidence(&self) -> Result<Evidence, StoredRunError> {
        self.0.parse().map(|Recorded { evidence }| evidence)
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
