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
    let [mut first_side, mut second_side] = both(read_dump(first), read_dump(second))?;
    // A single output is compared with the same output of a bundle.
    if first_side.is_single_output != second_side.is_single_output {
        let (file, bundle) = if first_side.is_single_output {
            (&first_side, &mut second_side)
        } else {
            (&second_side, &mut first_side)
        };
        let formats: BTreeSet<Format> = file.dump.formats().collect();
        bundle
            .dump
            .retain_formats(|format| formats.contains(&format));
        bundle.unread.clear();
    }
    let (first_dump, second_dump) = (first_side.dump, second_side.dump);
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
    .with_not_compared([first_side.unread, second_side.unread].concat());
    match arguments.format {
        DiffFormat::Human => print(&document.render_text(has_colour_on_stdout()))?,
        DiffFormat::Json => print_json(&document)?,
    }
    Ok(Outcome::passed_if(document.is_equivalent()))
}

/// Dump to compare.
struct ReadDump {
    dump: NodeDump,
    /// Files and outputs that are not read and that may be state of the node.
    unread: Vec<String>,
    is_single_output: bool,
}

/// Reads a dump and prints its warnings.
fn read_dump(path: &Path) -> Result<ReadDump, CliError> {
    let files = DumpFiles::read(path)?;
    let is_single_output = files.is_single_output;
    let read = files.parse();
    warn_unread(read.gaps.iter().map(Gap::describe));
    let relevant = read
        .gaps
        .iter()
        .filter(|gap| gap.is_uncompared || gap.may_affect_packets());
    let unread = relevant.map(Gap::describe).collect();
    Ok(ReadDump {
        dump: complete_dump(read)?,
        unread,
        is_single_output,
    })
}
