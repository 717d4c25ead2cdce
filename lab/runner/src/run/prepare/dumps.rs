//! Reads the dumps that replace nodes of a lab, and checks that a kernel accepts their contents.

use std::borrow::Cow;
use std::path::Path;

use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::files::{FileError, Location};
use svclab_dump::folder::{DumpFiles, DumpFilesError};
use svclab_dump::node::NOT_SHOWN;
use svclab_dump::{Gap, NodeDump, ParsedDump};
use svclab_planner::cluster::Problem;
use svclab_planner::cluster::place;
use svclab_planner::replay::{FileLine, OmittedItem, remove_rules};
use svclab_scenario::lab::LabSpec;

use super::{PrepareOptions, no_directory};

/// Reason for omitting a line that was parsed but that no kernel accepts.
const REASON_REJECTED: &str = "no kernel accepts this line";

/// Reason for omitting a whole file.
const REASON_IGNORED: &str = "the file is ignored";

/// Reason for omitting a line that cannot be parsed.
const REASON_UNPARSED: &str = "svclab cannot parse this line";

/// Effect of omitting a line that cannot be parsed.
const EFFECT_OF_UNPARSED: &str =
    "packets are handled as if the line, or the lost text, did not exist";

/// Dump that a user passes for a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DumpOverride {
    /// Parsed dump.
    pub dump: NodeDump,
    /// Whether lines that a kernel rejects are omitted.
    pub lenient: bool,
    /// Items that are already omitted from `dump`.
    pub omitted: Vec<OmittedItem>,
    /// Files that are not read.
    pub gaps: Vec<Gap>,
}

/// Reads and parses the dump at `path`.
///
/// # Errors
///
/// When `path` is no readable dump.
pub fn read_dump(path: &Path) -> Result<ParsedDump, DumpFilesError> {
    Ok(DumpFiles::read(path)?.parse())
}

/// Returns the location of a dump that a lab names. The dump must be below the lab's directory,
/// unless the user permits other places.
fn dump_location(directory: &Path, path: &str, may_be_outside: bool) -> Location {
    if may_be_outside {
        Location::anywhere(directory.join(path))
    } else {
        Location::below(directory, path)
    }
}

fn diagnostic_location(read: &ParsedDump, diagnostic: &Diagnostic) -> (String, u32) {
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
pub fn count_unusable(read: &ParsedDump) -> (usize, usize) {
    let whole = |diagnostic: &&Diagnostic| diagnostic.primary.is_none();
    let files = read.diagnostics.iter().filter(whole).count();
    (
        read.problem_lines.len(),
        if read.problem_lines.is_empty() {
            files
        } else {
            0
        },
    )
}

/// Returns the dump without the lines that no kernel accepts, and the omitted items.
#[must_use]
pub fn omit_rejected(read: ParsedDump) -> (NodeDump, Vec<OmittedItem>) {
    let causes: Vec<(Option<FileLine>, String, &str)> = read
        .diagnostics
        .iter()
        .map(|diagnostic| {
            let (file, line) = diagnostic_location(&read, diagnostic);
            let file_line = (line > 0).then_some(FileLine { file, line });
            let because = match (line, diagnostic.is_error()) {
                (0, _) if !diagnostic.message.ends_with(NOT_SHOWN) => REASON_IGNORED,
                (_, true) => REASON_UNPARSED,
                (_, false) => REASON_REJECTED,
            };
            (file_line, diagnostic.message.clone(), because)
        })
        .collect();
    let mut dump = read.dump;
    let lost_table_lines = read.lost_table_lines;
    let chains = remove_rules(&mut dump, &read.problem_lines);
    let omitted = causes.into_iter().map(|(at, message, because)| {
        let place = at.as_ref().map(|at| (at.file.clone(), at.line));
        let mut left = OmittedItem::new(at, message, because);
        if because == REASON_UNPARSED {
            EFFECT_OF_UNPARSED.clone_into(&mut left.affects);
        }
        let is_lost = |place: &(String, u32)| lost_table_lines.contains(place);
        left.is_whole_table = because == REASON_IGNORED || place.as_ref().is_some_and(is_lost);
        match place.and_then(|place| chains.get(&place)) {
            Some(chain) => left.with_chain(chain.clone()),
            None => left,
        }
    });
    let left = omitted.collect();
    (dump, left)
}

/// Dump of a node of a case.
#[derive(Debug)]
pub(super) struct CaseDump<'d> {
    pub node: String,
    /// Parsed dump, borrowed if the user passed it.
    pub dump: Cow<'d, NodeDump>,
    /// Whether lines that a kernel rejects are omitted.
    pub lenient: bool,
    /// Items that are already omitted from `dump`.
    pub omitted: Vec<OmittedItem>,
    /// Files that are not read.
    pub gaps: Vec<Gap>,
}

/// Returns the dumps of a case's nodes: those that the user passes and those that the lab names. A
/// dump of the user overrides the lab's dump of the same node. `directory` is the lab's directory,
/// `None` for an embedded lab.
pub(super) fn read_dumps<'d>(
    directory: Option<&Path>,
    spec: &LabSpec,
    options: &'d PrepareOptions,
) -> Result<Vec<CaseDump<'d>>, Vec<Problem>> {
    let given = &options.dumps;
    let mut problems = Vec::new();
    let mut dumps: Vec<CaseDump<'d>> = given
        .iter()
        .map(|(node, given)| CaseDump {
            node: node.clone(),
            dump: Cow::Borrowed(&given.dump),
            lenient: given.lenient,
            omitted: given.omitted.clone(),
            gaps: given.gaps.clone(),
        })
        .collect();
    for (node, node_spec) in &spec.nodes {
        let Some(path) = node_spec
            .dump
            .as_ref()
            .filter(|_| !given.contains_key(node))
        else {
            continue;
        };
        let path_in_lab = place!["spec", "nodes", node, "dump"];
        let Some(directory) = directory else {
            problems.push(no_directory(path_in_lab.to_vec()));
            continue;
        };
        let location = dump_location(directory, path, options.allow_outside);
        let read = match DumpFiles::read_at(&location) {
            Ok(folder) => folder.parse(),
            Err(error) => {
                let is_outside = matches!(
                    error,
                    DumpFilesError::Io {
                        source: FileError::OutsideDirectory,
                        ..
                    }
                );
                let problem = Problem::in_lab(path_in_lab, error.to_string());
                problems.push(if is_outside {
                    problem.with_help(
                        "put the dump in the directory of the lab, or add --allow-outside"
                            .to_owned(),
                    )
                } else {
                    problem
                });
                continue;
            }
        };
        if node_spec.lenient || read.diagnostics.is_empty() {
            let gaps = read.gaps.clone();
            let (dump, left) = omit_rejected(read);
            dumps.push(CaseDump {
                node: node.clone(),
                dump: Cow::Owned(dump),
                lenient: node_spec.lenient,
                omitted: left,
                gaps,
            });
            continue;
        }
        for diagnostic in &read.diagnostics {
            let (file, line) = diagnostic_location(&read, diagnostic);
            let message = if line > 0 {
                format!("{file}:{line}: {}", diagnostic.message)
            } else {
                diagnostic.message.clone()
            };
            let help =
                "collect the node again, or set `lenient: true` next to `dump` to omit the line";
            problems.push(Problem::in_lab(path_in_lab.clone(), message).with_help(help.to_owned()));
        }
    }
    if problems.is_empty() {
        Ok(dumps)
    } else {
        Err(problems)
    }
}
