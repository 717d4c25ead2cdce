//! Implements `svclab diff`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cli::args::{DiffArguments, DiffFormat};
use crate::cli::error::{CliError, CommandResult, Outcome};
use crate::cli::input::dumps::{both, complete_dump, warn_unread};
use crate::cli::output::{has_colour_on_stdout, print, print_json};
use svclab_dump::folder::DumpFiles;
use svclab_dump::{Gap, NodeDump, compare};
use svclab_report::diff::DiffDocument;
use svclab_ruleset::tool::Format;

/// Compares two dumps and prints their differences.
pub(crate) fn diff(arguments: &DiffArguments) -> CommandResult {
    let (first, second) = (&arguments.first, &arguments.second);
    let [
        (mut first_dump, mut first_unread),
        (mut second_dump, mut second_unread),
    ] = both(read_dump(first), read_dump(second))?;
    // A single file is compared with the same file of a directory.
    if first.is_dir() != second.is_dir() {
        let (file, folder) = if first.is_dir() {
            (&second_dump, &mut first_dump)
        } else {
            (&first_dump, &mut second_dump)
        };
        let formats: BTreeSet<Format> = file.formats().collect();
        folder.retain_formats(|format| formats.contains(&format));
        first_unread.clear();
        second_unread.clear();
    }
    let compared: Vec<String> = first_dump
        .formats()
        .filter(|format| second_dump.has(*format))
        .map(|format| format.to_string())
        .collect();
    if compared.is_empty() {
        return Err(CliError::refused(
            format!(
                "{} and {} contain nothing that can be compared",
                first.display(),
                second.display()
            ),
            "give two dumps with the output of the same program, such as two of `iptables-save`",
        ));
    }
    let differences = compare(&first_dump, &second_dump);
    let document = DiffDocument::new(
        first.display().to_string(),
        second.display().to_string(),
        compared,
        differences,
    )
    .with_not_compared([first_unread, second_unread].concat());
    match arguments.format {
        DiffFormat::Human => print(&document.render_text(has_colour_on_stdout()))?,
        DiffFormat::Json => print_json(&document)?,
    }
    Ok(Outcome::passed_if(document.is_equivalent()))
}

/// Reads a dump and prints its warnings. Also returns the files that are not read and that may
/// affect packets.
fn read_dump(path: &Path) -> Result<(NodeDump, Vec<String>), CliError> {
    let read = DumpFiles::read(path)?.parse();
    warn_unread(read.gaps.iter().map(Gap::describe));
    let relevant = read.gaps.iter().filter(|gap| gap.may_affect_packets());
    let unread = relevant.map(Gap::describe).collect();
    Ok((complete_dump(read)?, unread))
}
