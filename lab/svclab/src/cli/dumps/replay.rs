//! Implements `svclab replay`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::args::{Common, ReplayArguments, ReplayFormat, shell_word};
use crate::cli::cases::explain::{case_journeys, render_text};
use crate::cli::cases::labs::{load_labs, print_diagnostics};
use crate::cli::cases::run::run_options;
use crate::cli::exit::Exit;
use crate::cli::interrupt::run_interruptible;
use crate::cli::output::{print, print_json, print_start_error};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::files::{self, Location};
use svclab_diagnostic::printable::printable;
use svclab_diagnostic::source::Sources;
use svclab_diagnostic::source::{MAX_BYTES, Source};
use svclab_dump::ParsedDump;
use svclab_model::evidence::Evidence;
use svclab_model::plan::ProbeProtocol;
use svclab_planner::replay::{DumpedNode, expect_observed, find_node_of_dump, write_lab};
use svclab_report::replay::ReplayDocument;
use svclab_runner::run::dumps::{self, count_unusable, omit_rejected, read_dump};
use svclab_runner::run::{PrepareOptions, Prepared, SelectedLab, explain as explained, prepare};
use svclab_scenario::lab::Probe;
use svclab_scenario::objects::Objects;
use svclab_scenario::{Case, Scenario};

/// Name of a generated lab that is not written to a file.
const DEFAULT_LAB_NAME: &str = "replay";

/// Dump from the command line.
#[derive(Clone)]
pub(crate) struct DumpArgument {
    node: Option<String>,
    path: PathBuf,
    pub(crate) dump: dumps::DumpOverride,
}

/// Builds dumped nodes in a lab, runs the probes and explains the results.
pub fn replay(common: &Common, arguments: &ReplayArguments) -> Exit {
    let given = match read_dumps(arguments) {
        Ok(given) => given,
        Err(exit) => return exit,
    };
    let has_lab = arguments.objects.iter().any(|name| is_lab(name));
    let mut keep = None;
    let prepared = if has_lab {
        if arguments.write.is_some() {
            return input_error(
                "--objects is a lab, so --write has nothing to generate",
                "set `nodes: {NODE: {dump: PATH}}` in that lab",
            );
        }
        prepare_in_lab(common, arguments, given)
    } else {
        match prepare_generated_lab(arguments, &given) {
            Ok((prepared, lab)) => {
                keep = arguments.write.as_deref().map(|file| (file, lab));
                Ok(prepared)
            }
            Err(exit) => Err(exit),
        }
    };
    match prepared {
        Ok(_) if !has_lab && arguments.probe.is_empty() => {
            eprintln!(
                "error: nothing was selected: --objects is not a lab, and --probe is missing"
            );
            eprintln!(
                "  help: select a probe with --probe: pod/default/client->service/default/web:80"
            );
            Exit::Nothing
        }
        // A generated lab has no expectations, so only a given lab is judged.
        Ok(prepared) => {
            let judged = has_lab && arguments.probe.is_empty();
            run_and_explain(arguments, prepared, judged, keep.as_ref())
        }
        Err(exit) => exit,
    }
}

fn input_error(message: &str, remedy: &str) -> Exit {
    eprintln!("error: {message}\n  help: {remedy}");
    Exit::Input
}

/// Reads the dumps and prints their diagnostics.
pub(crate) fn read_dumps(arguments: &ReplayArguments) -> Result<Vec<DumpArgument>, Exit> {
    read_dump_arguments(&arguments.dumps, arguments.lenient)
}

/// Reads dumps in the form `[NODE=]DUMP` and prints their diagnostics.
pub(crate) fn read_dump_arguments(
    names: &[String],
    lenient: bool,
) -> Result<Vec<DumpArgument>, Exit> {
    let mut dumps = Vec::new();
    let (mut lines, mut files) = (0_usize, 0_usize);
    for name in names {
        let whole = Path::new(name);
        let (node, path) = match name.split_once('=').filter(|_| !whole.exists()) {
            Some((node, path)) => (Some(node.to_owned()), PathBuf::from(path)),
            None => (None, whole.to_owned()),
        };
        let read: ParsedDump = read_dump(&path).map_err(|error| {
            eprintln!("error: {error}");
            Exit::Input
        })?;
        print_diagnostics(&read.sources, &read.diagnostics);
        if !lenient {
            let refused = count_unusable(&read);
            lines += refused.0;
            files += refused.1;
        }
        let whole = read.diagnostics.is_empty();
        let (dump, left) = omit_rejected(read);
        if (whole || lenient) && dump.formats().next().is_none() {
            return Err(input_error(
                &format!("no file of {} can be read", path.display()),
                "collect the node again with scripts/collect-node",
            ));
        }
        let dump = dumps::DumpOverride {
            dump,
            lenient,
            omitted: left,
        };
        dumps.push(DumpArgument { node, path, dump });
    }
    match (lines, files) {
        (0, 0) => Ok(dumps),
        (0, files) => {
            let (what, them) = count_phrase(files, "file", "files");
            Err(input_error(
                &format!("{what} (see above) cannot be used as part of a dump"),
                &format!("collect the node again, or omit {them} with --lenient"),
            ))
        }
        (lines, _) => {
            let (what, them) = count_phrase(lines, "line", "lines");
            Err(input_error(
                &format!("{what} of the dump (see above) cannot be applied"),
                &format!("collect the node again, or omit {them} with --lenient"),
            ))
        }
    }
}

/// Returns a count with its noun, and the pronoun for a later reference.
fn count_phrase(count: usize, singular: &str, plural: &str) -> (String, &'static str) {
    match count {
        1 => (format!("1 {singular}"), "it"),
        count => (format!("{count} {plural}"), "them"),
    }
}

/// Whether a name is that of a lab or a case, and not that of a file of objects.
fn is_lab(name: &str) -> bool {
    let Ok((bytes, _)) = Location::anywhere(name).read(MAX_BYTES) else {
        return true;
    };
    let text = String::from_utf8_lossy(&bytes);
    text.lines().any(|line| line.trim_end() == "kind: Lab")
}

/// Prepares the case of a lab with its nodes replaced by the dumps.
fn prepare_in_lab(
    common: &Common,
    arguments: &ReplayArguments,
    given: Vec<DumpArgument>,
) -> Result<Prepared, Exit> {
    let labs = load_labs(&arguments.objects, &common.topologies)?;
    let cases: Vec<(&SelectedLab, usize)> = labs
        .iter()
        .flat_map(|lab| lab.cases.iter().map(move |case| (lab, *case)))
        .collect();
    let [(lab, case_index)] = cases.as_slice() else {
        return Err(input_error(
            &format!(
                "{} cases are selected, but only one can be replayed",
                cases.len()
            ),
            "select one: LAB/axis=value,axis=value",
        ));
    };
    let case = &lab.scenario.cases()[*case_index];
    let dumps = dumps_by_node(case, given)?;
    let case = with_probes(case, arguments);
    prepare_case(lab, &case, arguments, dumps)
}

/// Assigns the dumps to the nodes of a case.
pub(crate) fn dumps_by_node(
    case: &Case,
    given: Vec<DumpArgument>,
) -> Result<BTreeMap<String, dumps::DumpOverride>, Exit> {
    let nodes = node_addresses(&case.objects);
    let mut dumps = BTreeMap::new();
    for argument in given {
        let node = node_name(&argument, &nodes)?;
        if dumps.contains_key(&node) {
            return Err(duplicate_dump(&node));
        }
        dumps.insert(node, argument.dump);
    }
    Ok(dumps)
}

/// Reports two dumps of the same node.
fn duplicate_dump(node: &str) -> Exit {
    input_error(
        &format!("two dumps are for node `{node}`"),
        "give one dump per node",
    )
}

fn prepare_case(
    lab: &SelectedLab,
    case: &Case,
    arguments: &ReplayArguments,
    dumps: BTreeMap<String, dumps::DumpOverride>,
) -> Result<Prepared, Exit> {
    let wishes = PrepareOptions {
        dumps,
        allow_outside: arguments.allow_outside,
        ..PrepareOptions::from(arguments.max_wait)
    };
    prepare(lab, case, wishes).map_err(|diagnostics| {
        print_diagnostics(&lab.scenario.sources, &diagnostics);
        Exit::Input
    })
}

/// Adds the probes of the command line to the case.
fn with_probes(case: &Case, arguments: &ReplayArguments) -> Case {
    let mut case = case.clone();
    let spec = Arc::make_mut(&mut case.spec);
    for (index, (from, to)) in arguments.probe.iter().enumerate() {
        let probe = Probe {
            from: from.clone(),
            to: to.clone(),
            protocol: ProbeProtocol::default(),
            connections: 1,
            bind: None,
            max_wait: None,
            after: None,
            across: None,
        };
        spec.probes.insert(format!("probe-{}", index + 1), probe);
    }
    case
}

/// Returns the nodes of the objects with their internal addresses.
fn node_addresses(objects: &Objects) -> Vec<(String, Vec<IpAddr>)> {
    let nodes = objects.nodes.iter().map(|node| {
        let status = node.value.status.as_ref();
        let node_addresses = status.and_then(|status| status.addresses.as_ref());
        let internal = node_addresses
            .into_iter()
            .flatten()
            .filter(|address| address.type_ == "InternalIP")
            .filter_map(|address| address.address.parse().ok());
        let name = node.value.metadata.name.clone().unwrap_or_default();
        (name, internal.collect())
    });
    nodes.collect()
}

/// Returns the name of the node that a dump belongs to.
fn node_name(given: &DumpArgument, nodes: &[(String, Vec<IpAddr>)]) -> Result<String, Exit> {
    let is_node = |name: &&String| nodes.iter().any(|(known, _)| known == *name);
    let path = given.path.display();
    let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
    match &given.node {
        Some(name) if nodes.is_empty() || is_node(&name) => return Ok(name.clone()),
        Some(name) => {
            return Err(input_error(
                &format!("node `{name}` is not among the objects"),
                &format!("use one of: {}", names.join(", ")),
            ));
        }
        None => {}
    }
    if let Some(node) = find_node_of_dump(&given.dump.dump, nodes) {
        return Ok(node.to_owned());
    }
    match names.as_slice() {
        [] => {
            let stem = given.path.file_name().unwrap_or_default().to_string_lossy();
            Ok(stem.split('.').next().unwrap_or_default().to_lowercase())
        }
        [only] => Ok((*only).to_owned()),
        _ => Err(input_error(
            &format!("no address in {path} belongs to a node of the objects"),
            &format!("name the node: {}={path}", names.join("|")),
        )),
    }
}

/// Generates a lab from the dumps and the objects. Returns its case and its text.
pub(crate) fn prepare_generated_lab(
    arguments: &ReplayArguments,
    given: &[DumpArgument],
) -> Result<(Prepared, String), Exit> {
    let mut files = Vec::new();
    for path in &arguments.objects {
        files.push(Source::read(Path::new(path)).map_err(|error| {
            eprintln!("error: {error}");
            Exit::Input
        })?);
    }
    let sources = Sources::new(files.clone());
    let (objects, _) = Objects::load(&sources).map_err(|diagnostics| {
        print_diagnostics(&sources, &diagnostics);
        Exit::Input
    })?;
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
        input_error(
            &format!(
                "node {node} has no known address: none in its Node object, `ip addr` or `ip route`"
            ),
            "give a file with its Node object with --objects",
        )
    })?;
    let whole = append_objects(text.clone(), &files);
    let mut sources = vec![Source::from_text(file.display().to_string(), text)];
    sources.extend(files);
    let sources = Sources::new(sources);
    let (scenario, warnings) = Scenario::load(&sources).map_err(|diagnostics| {
        print_diagnostics(&sources, &diagnostics);
        Exit::Input
    })?;
    print_diagnostics(&sources, &warnings);
    let case = scenario.cases()[0].clone();
    let lab = SelectedLab {
        scenario,
        cases: vec![0],
        warnings: Vec::<Diagnostic>::new(),
        cli_name: DEFAULT_LAB_NAME.to_owned(),
    };
    let dumps = named_dumps
        .iter()
        .map(|(node, _, argument)| (node.clone(), argument.dump.clone()));
    Ok((
        prepare_case(&lab, &case, arguments, dumps.collect())?,
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
fn write_lab_with_results(file: &Path, text: &str, evidence: &Evidence) -> Result<(), Exit> {
    let text = expect_observed(text, &evidence.attempts);
    files::write_file(file, |out| out.write_all(text.as_bytes())).map_err(|error| {
        eprintln!("error: cannot write {}: {error}", file.display());
        eprintln!("  help: give a writable file with --write");
        Exit::Machine
    })?;
    // The lab contains an absolute path for a dump outside its directory.
    let outside = if text.contains("{dump: /") || text.contains("{dump: \"/") {
        " --allow-outside"
    } else {
        ""
    };
    eprintln!(
        "wrote {} with the observed results as expectations; run it with `svclab run {}{outside}`",
        file.display(),
        shell_word(&file.display().to_string())
    );
    Ok(())
}

/// Runs the probes and explains where the packets went.
fn run_and_explain(
    arguments: &ReplayArguments,
    prepared: Prepared,
    judged: bool,
    keep: Option<&(&Path, String)>,
) -> Exit {
    let before = describe_nodes(&prepared);
    let options = run_options(None, false, arguments.kernels.choice());
    let ran = run_interruptible(explained(vec![prepared], &options, std::future::pending()));
    let results = match ran {
        Ok(Some(Some(seen))) => seen,
        Ok(_) => {
            eprintln!("interrupted");
            return Exit::Interrupted;
        }
        Err(error) => return print_start_error(&error),
    };
    let mut text = String::new();
    for result in results {
        match result {
            Ok(one) => {
                if let Some((file, lab)) = keep
                    && let Err(exit) = write_lab_with_results(file, lab, &one.evidence)
                {
                    return exit;
                }
                let probes = probe_names(arguments);
                if arguments.format == ReplayFormat::Json {
                    let case = case_journeys(&one, &probes, judged);
                    return print_json(&ReplayDocument::new(one.prepared.replay_reports, case));
                }
                text += &describe_nodes(&one.prepared);
                text += &render_text(&[one], &probes, arguments.verbose, judged);
            }
            Err((_, error)) => {
                if arguments.format == ReplayFormat::Human {
                    let _ = print(&before);
                }
                eprintln!("error: {}", error.message);
                if let Some(remedy) = &error.remedy {
                    eprintln!("  help: {remedy}");
                }
                return Exit::Code(error.kind.exit_code());
            }
        }
    }
    print(&text)
}

/// Lists the replayed, simulated and omitted parts of each node.
fn describe_nodes(prepared: &Prepared) -> String {
    let mut text = String::new();
    for account in &prepared.replay_reports {
        let _ = writeln!(text, "{account}");
    }
    text
}

/// Returns the names of the probes from the command line; empty if there are none.
fn probe_names(arguments: &ReplayArguments) -> Vec<String> {
    let count = arguments.probe.len();
    (1..=count).map(|at| format!("probe-{at}")).collect()
}
