//! Dumps that take the place of a lab's nodes: read, and checked whether a kernel would
//! hold what they say.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::cluster::Problem;
use crate::cluster::place;
use crate::dump::folder::{Folder, FolderError};
use crate::dump::{NodeDump, Read};
use crate::replay::leave_out;
use crate::scenario::Diagnostic;
use crate::scenario::lab::LabSpec;

/// Reads a dump.
///
/// # Errors
///
/// When there is none.
pub fn read(path: &Path) -> Result<Read, FolderError> {
    Ok(NodeDump::read(Folder::read(path)?.files))
}

/// The places of a dump, files with lines, at which is something that no kernel would
/// take or that cannot be read.
#[must_use]
pub fn unbuildable(read: &Read) -> BTreeSet<(String, u32)> {
    let places = read
        .diagnostics
        .iter()
        .map(|diagnostic| place_of(read, diagnostic));
    places.collect()
}

fn place_of(read: &Read, diagnostic: &Diagnostic) -> (String, u32) {
    let Some(label) = &diagnostic.primary else {
        return (diagnostic.message.clone(), 0);
    };
    let source = read.sources.get(label.span.file);
    let name = source.map_or("", |source| source.name());
    (name.to_owned(), label.span.line)
}

/// The dump without what no kernel would take of it.
#[must_use]
pub fn leniently(read: Read) -> NodeDump {
    let places = unbuildable(&read);
    let mut dump = read.dump;
    leave_out(&mut dump, &places);
    dump
}

/// The dumps of a case's nodes: those that the lab names, and those that the user does.
///
/// # Errors
///
/// Dumps that cannot be read, and those of which something would have to be left out,
/// unless the lab says that it may be.
pub(super) fn dumps<'d>(
    directory: &Path,
    spec: &LabSpec,
    given: &'d BTreeMap<String, NodeDump>,
) -> Result<Vec<(String, Cow<'d, NodeDump>)>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut dumps: Vec<(String, Cow<'d, NodeDump>)> = given
        .iter()
        .map(|(node, dump)| (node.clone(), Cow::Borrowed(dump)))
        .collect();
    for (node, said) in &spec.nodes {
        let Some(path) = said.dump.as_ref().filter(|_| !given.contains_key(node)) else {
            continue;
        };
        let at = place!["spec", "nodes", node, "dump"];
        let read = match read(&directory.join(path)) {
            Ok(read) => read,
            Err(error) => {
                problems.push(Problem::in_lab(at, error.to_string()));
                continue;
            }
        };
        if said.lenient || read.diagnostics.is_empty() {
            dumps.push((node.clone(), Cow::Owned(leniently(read))));
            continue;
        }
        for diagnostic in &read.diagnostics {
            let (file, line) = place_of(&read, diagnostic);
            let message = if line > 0 {
                format!("{file}:{line}: {}", diagnostic.message)
            } else {
                diagnostic.message.clone()
            };
            let help =
                "collect the node again, or say `lenient: true` beside `dump` to leave it out";
            problems.push(Problem::in_lab(at.clone(), message).help(help.to_owned()));
        }
    }
    if problems.is_empty() {
        Ok(dumps)
    } else {
        Err(problems)
    }
}
