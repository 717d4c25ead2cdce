//! Reads the dumps of the command line.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::cli::error::CliError;
use crate::cli::output::{print_diagnostics, print_error};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Sources;
use svclab_dump::{NodeDump, ParsedDump};
use svclab_runner::run::dumps::{DumpOverride, count_unusable, omit_rejected, read_dump};

/// Dump from the command line.
#[derive(Clone)]
pub(crate) struct DumpArgument {
    pub(crate) node: Option<String>,
    pub(crate) path: PathBuf,
    pub(crate) dump: DumpOverride,
}

/// Splits `NODE=DUMP`. `None` if no node is named, or if a file has the whole name.
pub(crate) fn split_node(name: &str) -> Option<(&str, &str)> {
    name.split_once('=').filter(|_| !Path::new(name).exists())
}

/// Reads dumps in the form `[NODE=]DUMP` and prints their diagnostics.
pub(crate) fn read_dump_arguments(
    names: &[String],
    lenient: bool,
) -> Result<Vec<DumpArgument>, CliError> {
    let parsed = names.iter().map(|name| {
        let (node, path) = match split_node(name) {
            Some((node, path)) => (Some(node.to_owned()), PathBuf::from(path)),
            None => (None, PathBuf::from(name)),
        };
        let read = read_dump(&path)?;
        Ok((node, path, read))
    });
    check_dumps(parsed, lenient)
}

/// Prints the diagnostics of parsed dumps and omits their rejected parts. Each dump has an optional
/// node and a path.
pub(crate) fn check_dumps(
    parsed: impl IntoIterator<Item = Result<(Option<String>, PathBuf, ParsedDump), CliError>>,
    lenient: bool,
) -> Result<Vec<DumpArgument>, CliError> {
    let mut dumps = Vec::new();
    let (mut lines, mut files) = (0_usize, 0_usize);
    for parsed in parsed {
        let (node, path, read) = parsed?;
        print_diagnostics(&read.sources, &read.diagnostics);
        if !lenient {
            let refused = count_unusable(&read);
            lines += refused.0;
            files += refused.1;
        }
        let whole = read.diagnostics.is_empty();
        let gaps = read.gaps.clone();
        let (dump, omitted) = omit_rejected(read);
        if (whole || lenient) && dump.formats().next().is_none() {
            return Err(CliError::refused(
                format!("no file of {} can be read", path.display()),
                "collect the node again with `svclab collect-node`",
            ));
        }
        let dump = DumpOverride {
            dump,
            lenient,
            omitted,
            gaps,
        };
        dumps.push(DumpArgument { node, path, dump });
    }
    let (message, them) = match (lines, files) {
        (0, 0) => return Ok(dumps),
        (0, files) => {
            let (count, them) = count_phrase(files, "file", "files");
            let message = format!("{count} (see above) cannot be used as part of a dump");
            (message, them)
        }
        (lines, _) => {
            let (count, them) = count_phrase(lines, "line", "lines");
            let message = format!("{count} of the dump (see above) cannot be applied");
            (message, them)
        }
    };
    Err(CliError::refused(
        message,
        format!("collect the node again, or omit {them} with --lenient"),
    ))
}

/// Returns a count with its noun, and the pronoun for a later reference.
fn count_phrase(count: usize, singular: &str, plural: &str) -> (String, &'static str) {
    match count {
        1 => (format!("1 {singular}"), "it"),
        count => (format!("{count} {plural}"), "them"),
    }
}

/// Warns about files of dumps that are not read, each given as `NAME: REASON`.
pub(crate) fn warn_unread<T: Display>(unread: impl IntoIterator<Item = T>) {
    let unread = unread.into_iter();
    let warnings = unread.map(|gap| Diagnostic::warning(format!("not read: {gap}")));
    let warnings: Vec<Diagnostic> = warnings.collect();
    print_diagnostics(&Sources::default(), &warnings);
}

/// Prints the warnings of a dump and returns the dump. A dump that is not complete is an error.
pub(crate) fn complete_dump(read: ParsedDump) -> Result<NodeDump, CliError> {
    if !read.has_no_errors() {
        return Err(CliError::invalid_input(&read.sources, read.diagnostics));
    }
    print_diagnostics(&read.sources, &read.diagnostics);
    Ok(read.dump)
}

/// Returns both values. If both have an error, the first is printed and the second returned.
pub(crate) fn both<T>(
    first: Result<T, CliError>,
    second: Result<T, CliError>,
) -> Result<[T; 2], CliError> {
    if let (Err(error), Err(_)) = (&first, &second) {
        print_error(error);
    }
    let second = second?;
    Ok([first?, second])
}
