//! Generates a lab from dumps and objects.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::prepare::prepare_with_dumps;
use crate::cli::args::{ReplayArguments, shell_word};
use crate::cli::error::CliError;
use crate::cli::input::dumps::DumpArgument;
use crate::cli::input::nodes::{duplicate_dump, node_addresses, node_name};
use crate::cli::output::{print_diagnostics, print_message};
use svclab_diagnostic::files;
use svclab_diagnostic::printable::printable;
use svclab_diagnostic::source::{Source, Sources};
use svclab_model::evidence::Evidence;
use svclab_planner::replay::{DumpedNode, HardwareAddresses, expect_observed, write_lab};
use svclab_runner::run::{Prepared, SelectedLab};
use svclab_scenario::Scenario;
use svclab_scenario::objects::Objects;

/// Name of a generated lab that is not written to a file.
const DEFAULT_LAB_NAME: &str = "replay";

/// Generates a lab from the dumps and the objects. Returns its case and its text. `known` are the
/// link-layer addresses according to other dumps.
pub(super) fn prepare_generated_lab(
    arguments: &ReplayArguments,
    given: &[DumpArgument],
    known: &HardwareAddresses,
) -> Result<(Prepared, String), CliError> {
    let mut files = Vec::new();
    for path in &arguments.objects {
        files.push(Source::read(Path::new(path))?);
    }
    let sources = Sources::new(files.clone());
    let (objects, _) = Objects::load(&sources)
        .map_err(|diagnostics| CliError::invalid_input(&sources, diagnostics))?;
    let nodes = node_addresses(&objects);
    let mut named_dumps: Vec<(String, String, &DumpArgument)> = Vec::new();
    for argument in given {
        let path = dump_path_from_lab(arguments.write.as_deref(), &argument.path);
        let node = node_name(argument, &nodes)?;
        if named_dumps.iter().any(|(known, ..)| *known == node) {
            return Err(duplicate_dump(&node));
        }
        named_dumps.push((node, path.display().to_string(), argument));
    }
    let dumped: Vec<DumpedNode<'_>> = named_dumps
        .iter()
        .map(|(node, path, argument)| DumpedNode {
            node,
            path,
            dump: &argument.dump.dump,
            lenient: arguments.lenient,
        })
        .collect();
    let file = arguments.write.clone();
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{DEFAULT_LAB_NAME}.yaml")));
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let text = write_lab(&name, &dumped, &nodes, &arguments.probe).map_err(|node| {
        CliError::refused(
            format!(
                "node {node} has no known address: none in its Node object, `ip addr` or `ip route`"
            ),
            "give a file with its Node object with --objects",
        )
    })?;
    let whole = append_objects(text.clone(), &files);
    let mut sources = vec![Source::from_text(file.display().to_string(), text)];
    sources.extend(files);
    let sources = Sources::new(sources);
    let (scenario, warnings) = Scenario::load(&sources)
        .map_err(|diagnostics| CliError::invalid_input(&sources, diagnostics))?;
    print_diagnostics(&sources, &warnings);
    let case = scenario.cases()[0].clone();
    let lab = SelectedLab {
        scenario,
        cases: vec![0],
        warnings: Vec::new(),
        cli_name: DEFAULT_LAB_NAME.to_owned(),
    };
    let dumps = named_dumps
        .iter()
        .map(|(node, _, argument)| (node.clone(), argument.dump.clone()));
    Ok((
        prepare_with_dumps(&lab, &case, arguments, dumps.collect(), known)?,
        whole,
    ))
}

/// Returns the path of a dump for use in a lab file: relative if the dump is below the lab's
/// directory, otherwise absolute.
fn dump_path_from_lab(lab: Option<&Path>, dump: &Path) -> PathBuf {
    let whole = |path: &Path| fs::canonicalize(path).ok();
    let dump = whole(dump).unwrap_or_else(|| dump.to_owned());
    let directory = lab.map(|lab| match lab.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    });
    let below = directory.and_then(whole);
    let below = below.and_then(|directory| dump.strip_prefix(directory).ok().map(Path::to_owned));
    below.unwrap_or(dump)
}

/// Appends the objects to the text of the lab.
fn append_objects(mut text: String, objects: &[Source]) -> String {
    for source in objects {
        let objects = printable(source.text());
        let begins = objects.trim_start().starts_with("---");
        let divider = if begins { "" } else { "---\n" };
        let _ = write!(text, "{divider}{objects}");
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

/// Writes the lab with the observed results as its expectations.
pub(super) fn write_lab_with_results(
    file: &Path,
    text: &str,
    evidence: &Evidence,
) -> Result<(), CliError> {
    let text = expect_observed(text, evidence.attempts());
    files::write_file(file, |out| out.write_all(text.as_bytes())).map_err(|source| {
        CliError::Write {
            target: file.display().to_string(),
            source,
            help: Some("give a writable file with --write"),
        }
    })?;
    // The lab contains an absolute path for a dump outside its directory.
    let outside = if text.contains("{dump: /") || text.contains("{dump: \"/") {
        " --allow-outside"
    } else {
        ""
    };
    print_message(format_args!(
        "wrote {} with the observed results as expectations; run it with `svclab run {}{outside}`",
        file.display(),
        shell_word(&file.display().to_string())
    ));
    Ok(())
}
