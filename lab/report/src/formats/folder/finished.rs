//! Makes one page about finished runs.

use std::io;
use std::path::Path;

use thiserror::Error;

use super::evidence_files::{CaseFile, EvidenceFiles};
use super::stored::{StoredRun, StoredRunError};
use crate::case_details::CaseDetails;
use crate::commands::compare::Comparison;
use crate::formats::html::evidence::{escape_path, with_embedded_files};
use crate::formats::html::{CasePage, PAGE, Page, ShownRun};
use svclab_diagnostic::files;

/// Reason why a page about finished runs cannot be made.
#[derive(Debug, Error)]
pub enum PageError {
    /// The evidence of a case cannot be read.
    #[error(transparent)]
    Evidence(#[from] StoredRunError),
    /// The page cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
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
/// Returns an error if the evidence of a case cannot be read, or the page cannot be written.
pub fn write_page(
    runs: &[StoredRun],
    baselines: &[StoredRun],
    comparison: Option<&Comparison>,
    target: PageTarget<'_>,
) -> Result<(), PageError> {
    let files = |runs: &[StoredRun]| {
        let files = runs.iter().map(|run| EvidenceFiles::find(&run.path));
        files.collect::<Result<Vec<_>, _>>()
    };
    let (own_files, baseline_files) = (files(runs)?, files(baselines)?);
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
    for ((run, files), label) in runs.iter().zip(&own_files).zip(&labels) {
        for case in &run.document.cases {
            let directory = files.directory(case);
            let file = directory.map(CaseFile::open).transpose()?;
            let details = file.as_ref().map(CaseFile::details).transpose()?;
            let details = details
                .unwrap_or_else(|| CaseDetails::without_evidence(case.clone(), "svclab run"));
            if let (PageTarget::Directory(path), Some(directory), []) =
                (target, directory, baselines)
            {
                let href = relative_url(path, &directory.join(PAGE))?;
                page.add_link(label, &details, href);
                continue;
            }
            let mut earlier = baseline_files.iter();
            let earlier = earlier.find_map(|files| files.same_case(case));
            let earlier = earlier.map(|directory| CaseFile::open(directory)?.details());
            let evidence = file.as_ref().map(CaseFile::evidence).transpose()?;
            let page_of_case = CasePage {
                baseline: earlier.transpose()?,
                ..with_embedded_files(details, evidence.as_ref(), cases)?
            };
            page.add_section(label, &page_of_case)?;
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
    Ok(super::write_file(&path, |out| {
        out.write_all(page.as_bytes())
    })?)
}

/// Returns the relative URL of a file from a page in `directory`.
fn relative_url(directory: &Path, file: &Path) -> io::Result<String> {
    let [from, to] = [directory, file].map(Path::canonicalize);
    let (from, to) = (from?, to?);
    let relative = pathdiff::diff_paths(&to, &from).unwrap_or(to);
    Ok(escape_path(&relative.display().to_string()))
}
