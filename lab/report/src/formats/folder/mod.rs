//! Writes a run as files: the results, a `JUnit` XML file and a page about everything, and for each
//! case its evidence, capture, explanation and page.
//!
//! Each file gets its name only when it is complete.

mod evidence_files;
mod finished;
mod stored;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::additions::{Additions, Answer};
use crate::formats::capture::write_capture;
use crate::formats::evidence::{EVIDENCE, EvidenceDocument};
use crate::formats::html::evidence::escape_path;
use crate::formats::html::{CasePage, FileLink, PAGE, Page, ShownRun};
use crate::formats::junit::Junit;
use crate::formats::write_json_line;
use crate::results::Document;
use crate::text::journey::render_case_journeys;
use crate::writer::{Options, Writer};
use svclab_diagnostic::files;
use svclab_diagnostic::printable::{PrintableWriter, TextKind, printable};
use svclab_runner::results::CaseResult;
use svclab_runner::run::{CaseEvidence, Event};

pub use finished::{PageError, PageTarget, write_page};
pub use stored::{StoredRun, StoredRunError};

/// Maximum length of a case directory's name in bytes; file systems allow 255.
const MAX_NAME_BYTES: usize = 120;

/// Files about the whole run.
const JUNIT: &str = "junit.xml";
pub(crate) const RESULTS: &str = "results.json";

/// Relative URL from the page of a case to the directory of the run: the directory of a case is two
/// levels below it.
const ROOT: &str = "../../";

/// Answer of a command other than `run`.
const ANSWER_TEXT: &str = "answer.txt";
const ANSWER_JSON: &str = "answer.json";

/// Files of a case. Its page is [`PAGE`].
pub(crate) const CAPTURE: &str = "capture.pcapng";
const EXPLANATION: &str = "explain.txt";

/// Writer of a run's files.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    rerun_command: String,
    additions: Additions,
    page: Page,
    /// Command line name of the first case of each directory.
    firsts: HashMap<PathBuf, String>,
    /// Directories of this run.
    written: HashSet<PathBuf>,
}

impl Folder {
    /// Creates the directory. `again` is the command that repeats a case, without the case name.
    /// The answer of the command is part of the page, and written to files of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created.
    pub fn create(path: &Path, again: &str, additions: Additions) -> io::Result<Self> {
        files::create_output_directory(path).map_err(|error| with_path(path, &error))?;
        // Results of an earlier run must not be mistaken for those of an incomplete run.
        for name in [JUNIT, PAGE, RESULTS, ANSWER_TEXT, ANSWER_JSON] {
            let file = path.join(name);
            files::remove_file_if_exists(&file).map_err(|error| with_path(&file, &error))?;
        }
        Ok(Self {
            path: path.to_owned(),
            rerun_command: again.to_owned(),
            page: Page::new(additions.answer.clone()),
            additions,
            firsts: HashMap::new(),
            written: HashSet::new(),
        })
    }

    /// Returns the directory of a case, which is unique in the run.
    fn case_directory(&mut self, result: &CaseResult) -> PathBuf {
        let lab = self.path.join(file_name(&result.lab));
        let directory = lab.join(file_name(result.short_name()));
        let first = self.firsts.entry(directory.clone());
        let first = first.or_insert_with(|| result.named.clone());
        let (case, directory) = if *first == result.named {
            (result.short_name(), directory)
        } else {
            // Another file contains a lab of the same name.
            (result.named.as_str(), lab.join(file_name(&result.named)))
        };
        if self.written.insert(directory.clone()) {
            return directory;
        }
        // Another kernel ran the same case.
        let directory = lab.join(file_name(&format!("{case}@{}", result.kernel)));
        self.written.insert(directory.clone());
        directory
    }

    fn write_case(&mut self, result: &CaseResult, seen: Option<&CaseEvidence>) -> io::Result<()> {
        let path = self.case_directory(result);
        for directory in path.parent().into_iter().chain([path.as_path()]) {
            files::create_output_directory(directory)
                .map_err(|error| with_path(directory, &error))?;
        }
        let details = self.additions.details(result, seen, &self.rerun_command);
        let mut files = Vec::new();
        if let Some(seen) = seen {
            write_file(&path.join(CAPTURE), |out| {
                let interfaces = seen.interfaces.iter().cloned();
                write_capture(out, interfaces, &seen.evidence, &details.stages)
            })?;
            let evidence = EvidenceDocument::new(&details, &seen.evidence).file()?;
            write_file(&path.join(EVIDENCE), |out| out.write_all(&evidence))?;
            write_file(&path.join(EXPLANATION), |out| {
                out.write_all(printable(&render_case_journeys(result, seen)).as_bytes())
            })?;
            files.extend([CAPTURE, EVIDENCE, EXPLANATION].map(|name| FileLink {
                name: name.to_owned(),
                href: name.to_owned(),
            }));
        }
        let page = path.join(PAGE);
        // A page of an earlier run must not be mistaken for that of an incomplete run.
        files::remove_file_if_exists(&page).map_err(|error| with_path(&page, &error))?;
        let relative = page.strip_prefix(&self.path).unwrap_or(&page);
        let href = escape_path(&relative.display().to_string());
        let case = CasePage::new(details, files);
        self.page.add_page(&case, page, href, ROOT)
    }

    /// Writes the results of a run. `event` is its end.
    fn write_results(&self, document: &Document, event: &Event) -> io::Result<()> {
        write_json(&self.path.join(RESULTS), document)?;
        let options = Options {
            rerun_command: self.rerun_command.clone(),
            ..Options::default()
        };
        write_file(&self.path.join(JUNIT), |out| {
            Junit::new(PrintableWriter::new(out, TextKind::Text), options).event(event)
        })
    }
}

/// Writes a page about the answer of a command, and the answer beside it if the target is a
/// directory.
///
/// # Errors
///
/// When a file cannot be written.
pub fn write_answer_page(target: PageTarget<'_>, page: &str, answer: &Answer) -> io::Result<()> {
    match target {
        PageTarget::File(path) => write_file(path, |out| out.write_all(page.as_bytes())),
        PageTarget::Directory(path) => {
            write_file(&path.join(PAGE), |out| out.write_all(page.as_bytes()))?;
            write_answer(path, answer)
        }
    }
}

/// Writes the answer of a command other than `run`.
fn write_answer(directory: &Path, answer: &Answer) -> io::Result<()> {
    let files = [
        (ANSWER_TEXT, &answer.text, TextKind::Text),
        (ANSWER_JSON, &answer.json, TextKind::Json),
    ];
    files.into_iter().try_for_each(|(name, text, kind)| {
        write_file(&directory.join(name), |out| {
            let mut out = PrintableWriter::new(out, kind);
            out.write_all(text.as_bytes())?;
            out.flush()
        })
    })
}

impl Writer for Folder {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::CaseEnded { result, evidence } => self.write_case(result, evidence.as_deref()),
            Event::RunEnded { results, .. } => {
                let document = &Document::from(&**results);
                let run = ShownRun {
                    label: "",
                    document,
                };
                let page = self.page.render(&[run], None)?;
                write_file(&self.path.join(PAGE), |out| out.write_all(page.as_bytes()))?;
                for page in self.page.pages() {
                    let (path, page) = page?;
                    write_file(path, |out| out.write_all(page.as_bytes()))?;
                }
                match &self.additions.answer {
                    Some(answer) => write_answer(&self.path, answer),
                    None => self.write_results(document, event),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Writes a document as a line of JSON.
fn write_json(path: &Path, document: &impl serde::Serialize) -> io::Result<()> {
    write_file(path, |out| write_json_line(out, document))
}

/// Writes a file atomically.
fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    files::write_file(path, write).map_err(|error| with_path(path, &error))
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Converts a text to a file name. Special characters are replaced.
fn file_name(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|each| match each {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '=' | ',' | '+' | '-' | '@' => each,
            _ => '_',
        })
        .collect();
    if plain == text && text.len() <= MAX_NAME_BYTES && !text.starts_with('.') && !text.is_empty() {
        return plain;
    }
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(text)[..4]);
    let plain = plain.trim_start_matches('.');
    format!("{}-{digest}", &plain[..plain.len().min(MAX_NAME_BYTES)])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use svclab_runner::results::RunError;

    #[test]
    fn names_stay_in_their_directory() {
        assert_eq!(
            file_name("policy=Local,rpFilter=0"),
            "policy=Local,rpFilter=0"
        );
        for odd in ["../../etc", "..", "", "a/b", "a\0b", &"x".repeat(1000)] {
            let name = file_name(odd);
            assert!(
                !name.contains('/') && !name.starts_with('.') && name.len() <= 130,
                "{name}"
            );
            assert!(!name.is_empty());
        }
        assert_ne!(file_name("a/b"), file_name("a:b"));
    }

    #[test]
    fn labs_of_one_name_have_directories_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let additions = Additions::default();
        let mut folder = Folder::create(folder.path(), "svclab run", additions).unwrap();
        let mut places = HashSet::new();
        for named in ["da/same.yaml/a=x", "db/same.yaml/a=x", "dc/same.yaml/a=x"] {
            for kernel in ["6.1", "6.12"] {
                let error = RunError::no_kernel();
                let mut result = CaseResult::without_verdict("same", "same/a=x", error);
                result.named = named.to_owned();
                result.kernel = kernel.to_owned();
                let directory = folder.case_directory(&result);
                assert!(places.insert(directory), "{places:?}");
            }
        }
    }

    #[test]
    fn create_removes_results_of_earlier_run() {
        let folder = tempfile::tempdir().unwrap();
        for name in [JUNIT, PAGE, RESULTS, ANSWER_TEXT, ANSWER_JSON, "kept.txt"] {
            fs::write(folder.path().join(name), "earlier").unwrap();
        }
        Folder::create(folder.path(), "svclab run", Additions::default()).unwrap();
        let files = fs::read_dir(folder.path()).unwrap();
        let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names, ["kept.txt"]);
    }

    #[test]
    fn write_file_failure_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("half");
        let error = write_file(&path, |out| {
            out.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert!(
            error.to_string().contains("half: no storage space"),
            "{error}"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
