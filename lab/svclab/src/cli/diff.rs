//! Implements `svclab diff`.

use std::collections::BTreeSet;
use std::path::Path;

use super::args::{DiffArguments, DiffFormat};
use super::exit::Exit;
use super::labs::tell;
use super::output::{colour, print, print_json};
use svclab_diagnostic::Diagnostic;
use svclab_dump::folder::Folder;
use svclab_dump::{NodeDump, compare};
use svclab_report::diff::Document;
use svclab_ruleset::tool::Format;

/// Compares two dumps and prints their differences.
pub fn diff(arguments: &DiffArguments) -> Exit {
    let (first, second) = (&arguments.first, &arguments.second);
    // Errors of both dumps are reported together.
    let (Some(mut one), Some(mut other)) = (read(first), read(second)) else {
        return Exit::Input;
    };
    // A single file is compared with the same file of a directory.
    if first.is_dir() != second.is_dir() {
        let (file, folder) = if first.is_dir() {
            (&other, &mut one)
        } else {
            (&one, &mut other)
        };
        let formats: BTreeSet<Format> = file.formats().collect();
        folder.keep(|format| formats.contains(&format));
    }
    let compared: Vec<String> = one
        .formats()
        .filter(|format| other.has(*format))
        .map(|format| format.to_string())
        .collect();
    if compared.is_empty() {
        eprintln!(
            "error: {} and {} hold nothing that can be compared\n  what to do: name two dumps with the output of the same program, such as two of `iptables-save`",
            first.display(),
            second.display()
        );
        return Exit::Input;
    }
    let differences = compare(&one, &other);
    let document = Document::new(
        first.display().to_string(),
        second.display().to_string(),
        compared,
        differences,
    );
    let printed = match arguments.format {
        DiffFormat::Human => print(&document.human(colour())),
        DiffFormat::Json => print_json(&document),
    };
    match printed {
        Exit::Success if document.same => Exit::Success,
        Exit::Success => Exit::Failed,
        other => other,
    }
}

/// Reads a dump and reports its diagnostics; `None` if the dump is not complete.
fn read(path: &Path) -> Option<NodeDump> {
    let folder = match Folder::read(path) {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("error: {error}");
            return None;
        }
    };
    let others = folder.others.clone();
    let read = folder.parse();
    for other in others {
        let diagnostic = Diagnostic::warning(format!(
            "{other}: not read, no program that svclab knows is named so"
        ));
        tell(&read.sources, &[diagnostic]);
    }
    tell(&read.sources, &read.diagnostics);
    read.is_whole().then_some(read.dump)
}
