//! Writes the reports of commands: one page, or a directory with pages and files.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::cli::args::shell_word;
use crate::cli::error::CliError;
use svclab_diagnostic::files::{self, UnfinishedFile};
use svclab_report::folder::{Folder, PageTarget};
use svclab_report::verify::ComparedTables;
use svclab_report::{Additions, Answer, AtomicFileWriter, CaseAdditions, HtmlWriter, Writer};
use svclab_runner::results::{CaseResult, Results, RunStart};
use svclab_runner::run::{CaseEvidence, Event, ExplainedCase};

/// Case with its evidence.
pub(crate) type ReportedCase = (CaseResult, Arc<CaseEvidence>);

/// Report that a command other than `run` writes at its end.
#[derive(Debug)]
pub(crate) struct ReportOutput {
    path: PathBuf,
    start: RunStart,
}

impl ReportOutput {
    /// Starts a report. `None` without a path.
    ///
    /// # Errors
    ///
    /// When the report cannot be written: the user need not wait for the answer to learn that.
    pub(crate) fn start(path: Option<&Path>) -> Result<Option<Self>, CliError> {
        let Some(path) = path else {
            return Ok(None);
        };
        create_report_writer(path, "", Additions::default())?;
        Ok(Some(Self {
            path: path.to_owned(),
            start: RunStart::now(),
        }))
    }

    /// Writes the answer of the command, and the cases that it concerns.
    pub(crate) fn write(
        &self,
        additions: Additions,
        cases: Vec<ReportedCase>,
    ) -> Result<(), CliError> {
        let writer = create_report_writer(&self.path, "", additions)?;
        self.write_events(writer, cases).map_err(CliError::Report)
    }

    /// Writes a page that is already rendered, and the answer beside it.
    pub(crate) fn write_page(&self, page: &str, answer: &Answer) -> Result<(), CliError> {
        svclab_report::folder::write_answer_page(PageTarget::from_path(&self.path), page, answer)
            .map_err(CliError::Report)
    }

    fn write_events(
        &self,
        mut writer: Box<dyn Writer>,
        cases: Vec<ReportedCase>,
    ) -> io::Result<()> {
        let mut results = Vec::new();
        writer.event(&Event::RunStarted { cases: cases.len() })?;
        for (result, evidence) in cases {
            results.push(result.clone());
            writer.event(&Event::CaseEnded {
                result: Box::new(result),
                evidence: Some(evidence),
            })?;
        }
        let mut results = Results::new(BTreeMap::new(), results);
        results.run = Some(self.start.facts(1, command_line()));
        writer.event(&Event::RunEnded {
            results: Box::new(results),
            duration: self.start.elapsed(),
        })
    }
}

/// Returns the answer of a command, as it prints it.
///
/// # Errors
///
/// When the document cannot be written as JSON.
pub(crate) fn answer(
    title: String,
    text: &str,
    document: &impl Serialize,
) -> Result<Answer, CliError> {
    let json = serde_json::to_string_pretty(document)
        .map_err(|error| CliError::Report(io::Error::other(error)))?;
    Ok(Answer {
        title,
        command: command_line(),
        text: anstream::adapter::strip_str(text).to_string(),
        json: json + "\n",
        flows: ComparedTables::default(),
    })
}

/// Returns explained cases for a report, and that they are not judged if `judged` is false.
pub(crate) fn reported_cases(
    cases: Vec<ExplainedCase>,
    judged: bool,
) -> (Vec<ReportedCase>, HashMap<String, CaseAdditions>) {
    let cases: Vec<ReportedCase> = cases.into_iter().map(ExplainedCase::into_result).collect();
    let additions = cases.iter().map(|(result, _)| {
        let additions = CaseAdditions {
            unjudged: !judged,
            ..CaseAdditions::default()
        };
        (result.case.clone(), additions)
    });
    let additions = additions.collect();
    (cases, additions)
}

/// Creates the writer of a report. `rerun_command` is the command that repeats a case, without the
/// case name, for additions without an answer.
pub(crate) fn create_report_writer(
    path: &Path,
    rerun_command: &str,
    additions: Additions,
) -> Result<Box<dyn Writer>, CliError> {
    match PageTarget::from_path(path) {
        PageTarget::File(path) => {
            let directory = path.parent().unwrap_or(Path::new("."));
            let created = std::fs::create_dir_all(directory).and_then(|()| create_output(path));
            let (file, unfinished) = created.map_err(|error| {
                let message = format!("{}: {error}", path.display());
                CliError::Report(io::Error::new(error.kind(), message))
            })?;
            let writer = Box::new(HtmlWriter::new(file, rerun_command, additions));
            Ok(Box::new(AtomicFileWriter::new(writer, unfinished)))
        }
        PageTarget::Directory(path) => {
            let folder = Folder::create(path, rerun_command, additions);
            Ok(Box::new(folder.map_err(CliError::Report)?))
        }
    }
}

/// Creates a file for results. The results of an earlier run are removed immediately, so that they
/// are not mistaken for those of an incomplete run.
pub(crate) fn create_output(file: &Path) -> io::Result<(File, UnfinishedFile)> {
    let begun = files::begin_file(file)?;
    files::remove_file_if_exists(file)?;
    Ok(begun)
}

/// Returns the command that started this program, as a shell reads it.
pub(crate) fn command_line() -> String {
    let arguments = std::env::args_os().skip(1);
    let words = arguments.map(|argument| shell_word(&argument.to_string_lossy()));
    let words: Vec<String> = std::iter::once("svclab".to_owned()).chain(words).collect();
    words.join(" ")
}
