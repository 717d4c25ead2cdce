//! Reads the files that a lab names in `objects`. The input is the lab's file, the output are the
//! sources of the scenario: the lab first, then the files in the order of the list.

use std::path::{Component, Path};

use crate::lab::KIND;
use crate::yaml;
use crate::yaml::tree::Tree;
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::files::{FileError, Location};
use svclab_diagnostic::source::{FileId, MAX_BYTES, Source, SourceError, Sources, Span};

/// Maximum number of files that a lab names.
const MAX_FILES: usize = 256;

/// Files that a lab may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Files in the directory of the lab, or in the current directory for a lab on standard input.
    LabDirectory,
    /// All files, because the user permits paths outside the directory of the lab.
    Anywhere,
    /// None, because the lab is part of the program.
    None,
}

/// Files of a lab or of objects that are invalid.
#[derive(Debug, Clone)]
pub struct InvalidScenario {
    /// Files, for rendering the diagnostics.
    pub sources: Sources,
    /// All errors that were found, then all warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the files of objects that the labs among `files` name, and appends them.
///
/// # Errors
///
/// Returns errors at the paths in the labs. An invalid lab without such paths has no error here,
/// because its decoder reports them.
pub fn with_object_files(
    files: Vec<Source>,
    access: FileAccess,
) -> Result<Sources, Box<InvalidScenario>> {
    let sources = Sources::new(files);
    let mut reader = Reader {
        access,
        files: Vec::new(),
        left: MAX_BYTES,
        errors: Vec::new(),
    };
    for (file, source) in sources.iter() {
        reader.read_files(source, &object_paths(source, file));
    }
    if !reader.errors.is_empty() {
        return Err(Box::new(InvalidScenario {
            diagnostics: sources.redact(reader.errors),
            sources,
        }));
    }
    if reader.files.is_empty() {
        return Ok(sources);
    }
    let given = sources.iter().map(|(_, source)| source.clone());
    Ok(Sources::new(given.chain(reader.files).collect()))
}

struct Reader {
    access: FileAccess,
    files: Vec<Source>,
    /// Number of bytes that further files may have.
    left: usize,
    errors: Vec<Diagnostic>,
}

impl Reader {
    /// Reads the files that a lab names.
    fn read_files(&mut self, lab: &Source, paths: &[(String, Span)]) {
        if let Some((_, span)) = paths.get(MAX_FILES) {
            let message = format!("a lab names at most {MAX_FILES} files of objects");
            self.errors
                .push(Diagnostic::error(message).with_position(*span, "one too many"));
            return;
        }
        for (index, (path, span)) in paths.iter().enumerate() {
            let is_same = |(other, _): &&(String, Span)| parts(other).eq(parts(path));
            if let Some((_, first)) = paths[..index].iter().find(is_same) {
                let error = Diagnostic::error(format!("the file `{path}` is listed twice"));
                let error = error.with_position(*span, "again here");
                self.errors.push(error.with_related(*first, "first here"));
                continue;
            }
            match read_file(path, &lab.directory(), self.access, self.left) {
                Ok(file) => {
                    self.left -= file.text().len();
                    self.files.push(file);
                }
                Err(error) => self.errors.push(error.with_position(*span, "named here")),
            }
        }
    }
}

/// Returns the paths in `objects` of the lab in a file, with their spans.
fn object_paths(lab: &Source, file: FileId) -> Vec<(String, Span)> {
    // Parsing a large file twice would take seconds.
    if !lab.text().contains("objects") {
        return Vec::new();
    }
    let documents = yaml::parse(lab, file).unwrap_or_default();
    let is_lab = |tree: &&Tree| tree.get("kind").and_then(Tree::as_str) == Some(KIND);
    let Some(document) = documents.iter().find(is_lab) else {
        return Vec::new();
    };
    let list = document.node_at(crate::path!["spec", "objects"]);
    let entries = list.and_then(Tree::as_sequence).unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| Some((entry.as_str()?.to_owned(), entry.span)))
        .collect()
}

/// Returns the components of a path, without `.` at its start.
fn parts(path: &str) -> impl Iterator<Item = Component<'_>> {
    let components = Path::new(path).components();
    components.filter(|part| *part != Component::CurDir)
}

/// Reads a file that a lab in `directory` names, of at most `max_bytes` bytes.
fn read_file(
    path: &str,
    directory: &Path,
    access: FileAccess,
    max_bytes: usize,
) -> Result<Source, Diagnostic> {
    let location = match access {
        _ if path == "-" => {
            return Err(
                Diagnostic::error("a lab cannot read objects from standard input").with_help(
                    "write the objects to a file, or append them to the lab: `cat lab.yaml \
                     objects.yaml | svclab run -`",
                ),
            );
        }
        FileAccess::None => {
            return Err(Diagnostic::error(
                "an embedded lab has no directory, so it cannot name a file",
            )
            .with_help(
                "print the lab with `svclab labs show`, and write it to a file next to this file",
            ));
        }
        FileAccess::Anywhere => Location::anywhere(directory.join(path)),
        FileAccess::LabDirectory => Location::below(directory, path),
    };
    let source = Source::read_at(&location).map_err(|error| read_error(&error))?;
    if source.text().len() > max_bytes {
        let max = MAX_BYTES >> 20;
        let message = format!("the files of objects are larger than {max} MiB together");
        let error = Diagnostic::error(message);
        return Err(error.with_help("remove objects that the lab does not need"));
    }
    let is_blank = |line: &str| matches!(line.trim_start().chars().next(), None | Some('#'));
    let mut lines = source.text().lines();
    if lines.all(|line| is_blank(line) || line.trim_end() == "---") {
        let message = format!("{} contains no objects", source.name());
        return Err(Diagnostic::error(message));
    }
    Ok(source)
}

fn read_error(error: &SourceError) -> Diagnostic {
    match error {
        SourceError::Directory { name } => {
            Diagnostic::error(format!("cannot read {name}: is a directory"))
                .with_help("list its files one by one")
        }
        SourceError::Io {
            source: FileError::OutsideDirectory,
            ..
        } => Diagnostic::error(error.to_string())
            .with_help("put the file in the directory of the lab, or add --allow-outside"),
        _ => Diagnostic::error(error.to_string()),
    }
}
