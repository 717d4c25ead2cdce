//! Implements `svclab diff`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cli::args::{DiffArguments, DiffFormat};
use crate::cli::cases::labs::print_diagnostics;
use crate::cli::exit::Exit;
use crate::cli::output::{has_colour_on_stdout, print, print_json};
use svclab_diagnostic::Diagnostic;
use svclab_dump::folder::DumpFiles;
use svclab_dump::{NodeDump, compare};
use svclab_report::diff::Document;
use svclab_ruleset::tool::Format;

/// Compares two dumps and prints their differences.
pub fn diff(arguments: &DiffArguments) -> Exit {
    let (first, second) = (&arguments.first, &arguments.second);
    // Errors of both dumps are reported together.
    let (Some(mut first_dump), Some(mut second_dump)) = (read_dump(first), read_dump(second))
    else {
        return Exit::Input;
    };
    // A single file is compared with the same file of a directory.
    if first.is_dir() != second.is_dir() {
        let (file, folder) = if first.is_dir() {
            (&second_dump, &mut first_dump)
        } else {
            (&first_dump, &mut second_dump)
        };
        let formats: BTreeSet<Format> = file.formats().collect();
        folder.retain_formats(|format| formats.contains(&format));
    }
    let compared: Vec<String> = first_dump
        .formats()
        .filter(|format| second_dump.has(*format))
        .map(|format| format.to_string())
        .collect();
    if compared.is_empty() {
        eprintln!(
            "error: {} and {} contain nothing that can be compared\n  help: give two dumps with \
             the output of the same program, such as two of `iptables-save`",
            first.display(),
            second.display()
        );
        return Exit::Input;
    }
    let differences = compare(&first_dump, &second_dump);
    let document = Document::new(
        first.display().to_string(),
        second.display().to_string(),
        compared,
        differences,
    );
    let printed = match arguments.format {
        DiffFormat::Human => print(&document.render_text(has_colour_on_stdout())),
        DiffFormat::Json => print_json(&document),
    };
    match printed {
        Exit::Success if document.same => Exit::Success,
        Exit::Success => Exit::Failed,
        other => other,
    }
}

/// Reads a dump and reports its diagnostics; `None` if the dump is not complete.
fn read_dump(path: &Path) -> Option<NodeDump> {
    let folder = match DumpFiles::read(path) {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("error: {error}");
            return None;
        }
    };
    let unknown_files = folder.unknown_files.clone();
    let read = folder.parse();
    for other in unknown_files {
        let diagnostic = Diagnostic::warning(format!(
            "{other}: ignored, no supported program has this name"
        ));
        print_diagnostics(&read.sources, &[diagnostic]);
    }
    print_diagnostics(&read.sources, &read.diagnostics);
    read.has_no_errors().then_some(read.dump)
}
