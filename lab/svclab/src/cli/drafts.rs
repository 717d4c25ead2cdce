//! Implements `svclab new` and `svclab import`, which write labs.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};

use super::args::{ImportArguments, ModeArgument, NewArguments, shell_word};
use super::error::{CliError, CommandResult, Outcome};
use super::output::{print, print_diagnostics, print_message, print_note};
use svclab_diagnostic::source::Source;
use svclab_model::plan::Mode;
use svclab_scenario::draft::{self, ImportOptions, NewLab, is_lab_name};
use svclab_scenario::objects::Objects;
use svclab_scenario::{FileAccess, with_object_files};

/// Name of an imported lab on standard output.
const DEFAULT_NAME: &str = "cluster";

/// Writes a new lab.
pub(crate) fn new(arguments: &NewArguments) -> CommandResult {
    let (file, name) = lab_file(&arguments.name)?;
    let text = if arguments.from.is_empty() {
        draft::new_lab(&NewLab {
            name,
            mode: arguments.mode.unwrap_or_default().into(),
            load_balancer: arguments.load_balancer,
            nodes: NonZeroU8::new(arguments.nodes).unwrap_or(NonZeroU8::MIN),
        })
    } else {
        import_files(&arguments.from, name, arguments.mode)?
    };
    write_new_file(&file, &text)?;
    Ok(Outcome::SUCCESS)
}

/// Writes a lab from the objects of a cluster.
pub(crate) fn import(arguments: &ImportArguments) -> CommandResult {
    let Some(output) = &arguments.output else {
        let text = import_files(&arguments.files, DEFAULT_NAME.to_owned(), arguments.mode)?;
        print(&text)?;
        return Ok(Outcome::SUCCESS);
    };
    let (file, name) = lab_file(output)?;
    let text = import_files(&arguments.files, name, arguments.mode)?;
    write_new_file(&file, &text)?;
    Ok(Outcome::SUCCESS)
}

/// Returns the file for a lab that a user names with or without extension, and the lab's name.
fn lab_file(named: &Path) -> Result<(PathBuf, String), CliError> {
    let extension = named.extension().and_then(|extension| extension.to_str());
    let name = match extension {
        Some("yaml" | "yml") => named.file_stem(),
        _ => named.file_name(),
    };
    let name = name.unwrap_or_default().to_string_lossy().into_owned();
    if !is_lab_name(&name) {
        return Err(CliError::refused(
            format!("`{name}` is not a valid name of a lab"),
            "use letters, digits, `-`, `_` and `.`, such as my-lab",
        ));
    }
    let file = match extension {
        Some("yaml" | "yml") => named.to_owned(),
        _ => named.with_file_name(format!("{name}.yaml")),
    };
    Ok((file, name))
}

/// Returns a lab from the objects of files. Prints notes about the objects.
fn import_files(
    files: &[PathBuf],
    name: String,
    mode: Option<ModeArgument>,
) -> Result<String, CliError> {
    let sources: Result<Vec<Source>, _> = files
        .iter()
        .map(|file| match file.to_str() {
            Some("-") => Source::read_stdin(),
            _ => Source::read(file),
        })
        .collect();
    let sources = with_object_files(sources?, FileAccess::LabDirectory)?;
    let (objects, warnings) = Objects::load(&sources)
        .map_err(|diagnostics| CliError::invalid_input(&sources, diagnostics))?;
    print_diagnostics(&sources, &warnings);
    let options = ImportOptions {
        name,
        mode: mode.map(Mode::from),
    };
    let draft = draft::import(&objects, &options).map_err(|error| {
        CliError::refused(
            error.to_string(),
            "give all of `kubectl get nodes,pods,services,endpointslices -A -o yaml`",
        )
    })?;
    for note in &draft.notes {
        print_note(note);
    }
    Ok(draft.text)
}

/// Writes a file that does not exist yet.
fn write_new_file(file: &Path, text: &str) -> Result<(), CliError> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => CliError::refused(
            format!("{} already exists", file.display()),
            "use another name, or remove the file",
        ),
        io::ErrorKind::NotFound => CliError::refused(
            format!(
                "cannot write {}: its directory does not exist",
                file.display()
            ),
            "create the directory first",
        ),
        _ => CliError::Write {
            target: file.display().to_string(),
            help: None,
            source,
        },
    })?;
    let word = shell_word(&file.display().to_string());
    print_message(format_args!(
        "wrote {}; run it with `svclab run {word}`",
        file.display()
    ));
    Ok(())
}
