//! Dumps that take the place of a lab's nodes: read, and checked whether a kernel would
//! hold what they say.

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

/// Why lines of a dump are left out that can be read.
const UNTAKEN: &str = "no kernel takes it";

/// Why lines of a dump are left out that cannot be read.
const UNREAD: &str = "what it means is not known";

/// What that means.
const LOST: &str = "packets fare as if what stood there, or was lost there, did not exist";

/// A dump that a user names, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Given {
    /// The dump.
    pub dump: NodeDump,
    /// Whether what a kernel refuses of it is left out.
    pub lenient: bool,
    /// What of it is left out already.
    pub left: Vec<LeftOut>,
}

/// Reads a dump.
///
/// # Errors
///
/// When there is none.
pub fn read(path: &Path) -> Result<Read, FolderError> {
    Ok(Folder::read(path)?.parse())
}

/// Where a dump is that a lab names: below the lab's directory, unless the user lets it
/// be elsewhere.
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

/// How many lines of a dump cannot be read or hold what no kernel would take, and how many
/// files cannot be taken as a whole.
#[must_use]
pub fn unbuildable(read: &Read) -> (usize, usize) {
    let whole = |diagnostic: &&Diagnostic| diagnostic.primary.is_none();
    let files = read.diagnostics.iter().filter(whole).count();
    (
        read.places.len(),
        if read.places.is_empty() { files } else { 0 },
    )
}

/// The dump without what no kernel would take of it, and what that is.
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

/// A dump of a case's node.
#[derive(Debug)]
pub(super) struct Taken<'d> {
    /// The node.
    pub node: String,
    /// The dump.
    pub dump: Cow<'d, NodeDump>,
    /// Whether what a kernel refuses is left out.
    pub lenient: bool,
    /// What of it is left out already.
    pub left: Vec<LeftOut>,
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
