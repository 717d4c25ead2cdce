//! Reads the dumps that replace nodes of a lab, and checks that a kernel accepts their contents.

use std::borrow::Cow;
use std::path::Path;

use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::files::{FileError, Location};
use svclab_dump::folder::{Folder, FolderError};
use svclab_dump::{NodeDump, Read};
use svclab_planner::cluster::Problem;
use svclab_planner::cluster::place;
use svclab_planner::replay::{At, LeftOut, leave_out};
use svclab_scenario::lab::LabSpec;

use super::prepare::Wishes;

/// Reason for omitting a line that was parsed but that no kernel accepts.
const UNTAKEN: &str = "no kernel takes it";

/// Reason for omitting a line that cannot be parsed.
const UNREAD: &str = "what it means is not known";

/// Effect of omitting a line that cannot be parsed.
const LOST: &str = "packets fare as if what stood there, or was lost there, did not exist";

/// Dump that a user passes for a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Given {
    /// Parsed dump.
    pub dump: NodeDump,
    /// Whether lines that a kernel rejects are omitted.
    pub lenient: bool,
    /// Items that are already omitted from `dump`.
    pub left: Vec<LeftOut>,
}

/// Reads and parses the dump at `path`.
///
/// # Errors
///
/// When `path` is no readable dump.
pub fn read(path: &Path) -> Result<Read, FolderError> {
    Ok(Folder::read(path)?.parse())
}

/// Returns the location of a dump that a lab names. The dump must be below the lab's directory,
/// unless the user permits other places.
fn location(directory: &Path, path: &str, may_be_outside: bool) -> Location {
    if may_be_outside {
        Location::anywhere(directory.join(path))
    } else {
        Location::below(directory, path)
    }
}

fn place_of(read: &Read, diagnostic: &Diagnostic) -> (String, u32) {
    let Some(label) = &diagnostic.primary else {
        return (diagnostic.message.clone(), 0);
    };
    let source = read.sources.get(label.span.file);
    let name = source.map_or("", |source| source.name());
    (name.to_owned(), label.span.line)
}

/// Returns the number of lines that cannot be parsed or that no kernel accepts, and the number of
/// files that cannot be used at all. The number of files is 0 if there are such lines.
#[must_use]
pub fn unbuildable(read: &Read) -> (usize, usize) {
    let whole = |diagnostic: &&Diagnostic| diagnostic.primary.is_none();
    let files = read.diagnostics.iter().filter(whole).count();
    (
        read.places.len(),
        if read.places.is_empty() { files } else { 0 },
    )
}

/// Returns the dump without the lines that no kernel accepts, and the omitted items.
#[must_use]
pub fn leniently(read: Read) -> (NodeDump, Vec<LeftOut>) {
    let told: Vec<(Option<At>, String, &str)> = read
        .diagnostics
        .iter()
        .map(|diagnostic| {
            let (file, line) = place_of(&read, diagnostic);
            let at = (line > 0).then_some(At { file, line });
            let because = match (line, diagnostic.is_error()) {
                (0, _) => "it is left alone",
                (_, true) => UNREAD,
                (_, false) => UNTAKEN,
            };
            (at, diagnostic.message.clone(), because)
        })
        .collect();
    let mut dump = read.dump;
    let stood = leave_out(&mut dump, &read.places);
    let left = told.into_iter().map(|(at, message, because)| {
        let place = at.as_ref().map(|at| (at.file.clone(), at.line));
        let mut left = LeftOut::of(at, message, because);
        if because == UNREAD {
            LOST.clone_into(&mut left.affects);
        }
        match place.and_then(|place| stood.get(&place)) {
            Some(chain) => left.in_chain(chain.clone()),
            None => left,
        }
    });
    let left = left.collect();
    (dump, left)
}

/// Dump of a node of a case.
#[derive(Debug)]
pub(super) struct Taken<'d> {
    pub node: String,
    /// Parsed dump, borrowed if the user passed it.
    pub dump: Cow<'d, NodeDump>,
    /// Whether lines that a kernel rejects are omitted.
    pub lenient: bool,
    /// Items that are already omitted from `dump`.
    pub left: Vec<LeftOut>,
}

/// Returns the dumps of a case's nodes: those that the user passes and those that the lab names. A
/// dump of the user overrides the lab's dump of the same node.
///
/// # Errors
///
/// When a dump cannot be read, or when lines of it would have to be omitted and the lab does not
/// permit that.
pub(super) fn dumps<'d>(
    directory: &Path,
    spec: &LabSpec,
    wishes: &'d Wishes,
) -> Result<Vec<Taken<'d>>, Vec<Problem>> {
    let given = &wishes.dumps;
    let mut problems = Vec::new();
    let mut dumps: Vec<Taken<'d>> = given
        .iter()
        .map(|(node, given)| Taken {
            node: node.clone(),
            dump: Cow::Borrowed(&given.dump),
            lenient: given.lenient,
            left: given.left.clone(),
        })
        .collect();
    for (node, said) in &spec.nodes {
        let Some(path) = said.dump.as_ref().filter(|_| !given.contains_key(node)) else {
            continue;
        };
        let at = place!["spec", "nodes", node, "dump"];
        let location = location(directory, path, wishes.allow_outside);
        let read = match Folder::read_at(&location) {
            Ok(folder) => folder.parse(),
            Err(error) => {
                let is_outside = matches!(
                    error,
                    FolderError::Io {
                        source: FileError::Outside,
                        ..
                    }
                );
                let problem = Problem::in_lab(at, error.to_string());
                problems.push(if is_outside {
                    problem.help(
                        "put the dump beside the lab, or permit it with --allow-outside".to_owned(),
                    )
                } else {
                    problem
                });
                continue;
            }
        };
        if said.lenient || read.diagnostics.is_empty() {
            let (dump, left) = leniently(read);
            dumps.push(Taken {
                node: node.clone(),
                dump: Cow::Owned(dump),
                lenient: said.lenient,
                left,
            });
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
